"""Connections to PostgreSQL, one for each purpose."""
