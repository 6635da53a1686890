"""A real broker in your test process."""
