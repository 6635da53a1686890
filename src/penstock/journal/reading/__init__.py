"""Segments and batches of the journal, read back."""
