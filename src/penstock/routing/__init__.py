"""Exchanges and bindings: which queues does a message go to. Pure functions over names."""
