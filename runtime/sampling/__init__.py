"""Logits in, tokens out: what a request asks of the sampler, and what the sampler knows of a sequence."""
