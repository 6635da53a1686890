"""Errors of the peer, as AMQP names them; and the broker's own operating errors.

A `ChannelException` closes the channel (soft), a `ConnectionException` the connection (hard). The text is what
the client reads in the close method: `NAME - explanation`, worded as RabbitMQ words it where clients look at it.
They are raised anywhere below the server and turned into a close method in one place, `server/connection`.
"""

from __future__ import annotations

from penstock.reply_codes import REPLY_NAMES, SOFT_CODES


class AmqpError(Exception):
    """A peer's error with its reply code."""

    def __init__(self, reply_code: int, explanation: str) -> None:
        assert reply_code in REPLY_NAMES
        super().__init__(f"{REPLY_NAMES[reply_code]} - {explanation}")
        self.reply_code = reply_code
        self.reply_text = f"{REPLY_NAMES[reply_code]} - {explanation}"


class ChannelException(AmqpError):
    """Soft: the channel is closed, the connection lives on."""

    def __init__(self, reply_code: int, explanation: str) -> None:
        assert reply_code in SOFT_CODES
        super().__init__(reply_code, explanation)


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
