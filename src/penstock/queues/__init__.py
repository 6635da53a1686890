"""A queue: its messages in a backing queue, its consumers in a consumer manager."""
