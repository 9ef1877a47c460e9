"""Anthropic's Messages API: what coding agents speak; nothing here knows the prompt's format."""
