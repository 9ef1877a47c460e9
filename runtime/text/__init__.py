"""Between text and token ids: tokenizer, streaming detokenizer, stop strings, prompts. Knows no torch."""
