"""Messages and their history on Spark: source and sink, the lake, and the jobs."""
