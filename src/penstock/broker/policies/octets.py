"""Texts out of JSON, which may have halves of characters in them that no octets stand for."""

from __future__ import annotations


def octet_count(text: str) -> int:
    """Return how many octets a name takes; -1 for a text that cannot be written as octets."""
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return -1


def is_name(text: str, octets_max: int) -> bool:
    """Return whether the text can be a name of something: not empty, and not too long."""
    return 1 <= octet_count(text) <= octets_max
