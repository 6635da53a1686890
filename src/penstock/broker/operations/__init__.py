"""Everything that a person or a tool may do to a broker; AMQP, the control socket and HTTP are doors to it."""
