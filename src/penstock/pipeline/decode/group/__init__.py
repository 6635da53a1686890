"""Batches of the journal read together: their rows, entries and routes as arrays."""
