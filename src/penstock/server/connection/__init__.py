"""A client's connection: its bytes in and out, handshake, heartbeats, frames to methods."""
