"""OpenAI's API: models, chat completions, completions, and the tokenizer over HTTP.

Bodies are read by pydantic models (`*_request.py`, `*_fields.py`), which also make the turn to run;
answers are plain dicts whose shapes `*_response.py` declare.
"""
