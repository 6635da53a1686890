"""What one queue keeps on disk: its index, its own records, what of it is alive."""
