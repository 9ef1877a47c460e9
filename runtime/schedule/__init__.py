"""Which sequences run, in which order and with how many tokens. Knows no torch."""
