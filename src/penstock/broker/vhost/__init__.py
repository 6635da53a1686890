"""A virtual host: exchanges, queues, bindings, and messages that go from queue to queue."""
