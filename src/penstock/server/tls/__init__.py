"""TLS: contexts that can be renewed, handshakes that are bounded, users named by certificates."""
