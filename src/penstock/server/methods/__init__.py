"""What each AMQP method does."""
