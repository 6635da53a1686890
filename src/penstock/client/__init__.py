"""Sessions, producers and consumers over PostgreSQL, AMQP and an engine in a folder."""
