"""The way into a queue: gates, limits, duplicates."""
