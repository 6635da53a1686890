"""A queue whose messages are rows in PostgreSQL."""
