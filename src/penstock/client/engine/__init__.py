"""Penstock's own durable engine in the caller's process, for sessions over file://. No sockets, no event loop."""
