"""Where the messages of a variable queue are: in memory, half in memory, on disk."""
