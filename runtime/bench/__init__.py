"""The load tool: requests sent to a server, or given to an `LLM`, on a schedule, and what they tell."""
