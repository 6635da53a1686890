"""penstock: the message broker that remembers. RabbitMQ-compatible, in Python."""

__version__ = "0.1.0"
