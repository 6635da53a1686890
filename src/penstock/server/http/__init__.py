"""The HTTP endpoint."""
