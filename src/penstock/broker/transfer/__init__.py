"""RabbitMQ's definitions.json: what a broker has, written to a file and read from one."""
