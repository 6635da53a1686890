"""A small AMQP 0-9-1 client without sockets: bytes in, bytes out. Both faces of the session's driver use it."""
