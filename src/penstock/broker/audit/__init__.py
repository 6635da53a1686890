"""Who did what, from where: a log that is only appended to, and the events of `amq.rabbitmq.event`."""
