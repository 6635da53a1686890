"""The broker on a socket: connections, channels, deliveries. asyncio lives here."""
