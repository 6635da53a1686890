"""Settlements and transactions of many messages, in slices."""
