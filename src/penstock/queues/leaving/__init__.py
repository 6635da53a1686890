"""The way out without a consumer: expiry, dead letters, returns, the end of the queue itself."""
