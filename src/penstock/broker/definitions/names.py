"""Rules for the names that clients give."""

from __future__ import annotations

from penstock.errors import ChannelException, access_refused


def default_exchange_refusal() -> ChannelException:
    return access_refused("operation not permitted on the default exchange")


def without_line_breaks(name: str) -> str:
    """Declared names lose their line breaks, as in RabbitMQ: they would break log lines."""
    return name.replace("\r", "").replace("\n", "") if "\r" in name or "\n" in name else name
