"""The queue engine in PostgreSQL: schema, functions, installation, embedded server."""
