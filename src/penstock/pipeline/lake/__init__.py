"""Tables in a folder: Delta or plain Parquet, one transaction for each batch."""
