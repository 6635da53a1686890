"""The group-commit log."""
