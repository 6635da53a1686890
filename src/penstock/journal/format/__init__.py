"""The bytes of a journal segment, and what its rows mean."""
