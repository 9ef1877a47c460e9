"""V4's chat format: messages to a prompt, and a model's output back to a message. Knows no torch."""
