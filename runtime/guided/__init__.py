"""Structured output: grammars become masks over token ids. xgrammar is imported here only, and late."""
