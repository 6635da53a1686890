"""Journal bytes to Arrow batches: what to read (`request`), where it is (`ranges`), and reading it (`events`)."""
