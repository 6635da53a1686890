"""What gold says, for people: a page, tables in the terminal, a look ahead. Without Spark."""
