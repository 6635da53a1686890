"""What goes wrong for a client, and what it can do about it."""

from __future__ import annotations


class ClientError(Exception):
    """Something a session could not do."""


class ConnectionLost(ClientError):
    """The other side cannot be reached, or has gone. Calling again connects again."""


class SetupMissing(ClientError):
    """The other side is there but not prepared for penstock; the text says how to prepare it."""


class Closed(ClientError):
    """The session, producer or consumer was closed."""


class NotReserved(ClientError):
    """The message is not (or no longer) this consumer's: its lease ran out, or it was settled before."""


class NotSupported(ClientError):
    """What this session speaks to has no such thing."""
