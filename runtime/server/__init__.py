"""HTTP for an engine bundle: OpenAI's and Anthropic's APIs, a page, metrics. Never imports torch.

The engine runs in a process of its own (`executor_process.py`); `engine_client.py` is this side of it.
"""
