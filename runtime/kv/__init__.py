"""KV pages: pools of ids, and which page holds which tokens of which sequence. Knows no torch."""
