"""Policies, operator policies and parameters: what people say about many queues and exchanges at once."""
