"""Sessions over amqp://: the I/O around the client in `penstock.client.amqp`."""
