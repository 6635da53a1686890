"""Bytes to values and back: frames, methods, tables, content. No sockets."""
