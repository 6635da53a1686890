"""Errors of the peer, as AMQP names them; and the broker's own operating errors.

A `ChannelException` closes the channel (soft), a `ConnectionException` the connection (hard). The text is what
the client reads in the close method: `NAME - explanation`, worded as RabbitMQ words it where clients look at it.
They are raised anywhere below the server and turned into a close method in one place, `server/connection.py`.
"""

from __future__ import annotations

from typing import Final

# Reply codes with the constants' names that RabbitMQ puts in front of its texts.
REPLY_NAMES: Final[dict[int, str]] = {
    200: "OK",
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}

# Close the channel only; every other code closes the connection.
SOFT_CODES: Final = frozenset((311, 313, 403, 404, 405, 406))


class AmqpError(Exception):
    """A peer's error with its reply code."""

    def __init__(self, reply_code: int, explanation: str) -> None:
        assert reply_code in REPLY_NAMES
        super().__init__(f"{REPLY_NAMES[reply_code]} - {explanation}")
        self.reply_code = reply_code
        self.reply_text = f"{REPLY_NAMES[reply_code]} - {explanation}"


class ChannelException(AmqpError):
    """Soft: the channel is closed, the connection lives on."""


class ConnectionException(AmqpError):
    """Hard: the connection is closed."""


def access_refused(explanation: str) -> ChannelException:
    return ChannelException(403, explanation)


def not_found(explanation: str) -> ChannelException:
    return ChannelException(404, explanation)


def resource_locked(explanation: str) -> ChannelException:
    return ChannelException(405, explanation)


def precondition_failed(explanation: str) -> ChannelException:
    return ChannelException(406, explanation)


def frame_error(explanation: str) -> ConnectionException:
    return ConnectionException(501, explanation)


def syntax_error(explanation: str) -> ConnectionException:
    return ConnectionException(502, explanation)


def command_invalid(explanation: str) -> ConnectionException:
    return ConnectionException(503, explanation)


def channel_error(explanation: str) -> ConnectionException:
    return ConnectionException(504, explanation)


def unexpected_frame(explanation: str) -> ConnectionException:
    return ConnectionException(505, explanation)


def resource_error(explanation: str) -> ConnectionException:
    return ConnectionException(506, explanation)


def not_allowed(explanation: str) -> ConnectionException:
    return ConnectionException(530, explanation)


def not_implemented(explanation: str) -> ConnectionException:
    return ConnectionException(540, explanation)


def internal_error(explanation: str) -> ConnectionException:
    return ConnectionException(541, explanation)


class StartupError(Exception):
    """The broker cannot start; the text says what to do about it."""
