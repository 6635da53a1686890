"""Arrow columns of the views `events` and `runs`."""
