"""Features of queues, each through a real client against a real broker."""
