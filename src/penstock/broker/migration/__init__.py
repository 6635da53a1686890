"""Changing a queue in place: other arguments, and where need be another backing, with all its messages."""
