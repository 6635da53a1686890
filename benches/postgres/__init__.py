"""Queues in PostgreSQL: penstock beside procrastinate and a plain table, on one server in one run."""
