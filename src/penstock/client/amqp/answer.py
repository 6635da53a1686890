"""What a call or a publish is waiting for."""

from __future__ import annotations

from penstock.client.amqp.delivery import Delivery
from penstock.client.errors import ClientError
from penstock.wire.methods import Method


class Answer:
    """Filled in by the channel when the broker has answered, or when it cannot any more."""

    __slots__ = ("delivery", "error", "expected", "is_done", "message_id", "reply")

    def __init__(self, expected: tuple[type[Method], ...] = (), message_id: str = "") -> None:
        # The methods that answer the call; none for a publish, which is answered by a confirm.
        self.expected = expected
        # Of a publish: a returned message is told by it.
        self.message_id = message_id
        self.is_done = False
        self.reply: Method | None = None
        self.delivery: Delivery | None = None
        self.error: ClientError | None = None

    def succeed(self, reply: Method | None = None, delivery: Delivery | None = None) -> None:
        self.reply = reply
        self.delivery = delivery
        self.is_done = True

    def fail(self, error: ClientError) -> None:
        # A returned message is confirmed besides; its error stands.
        self.error = self.error or error
        self.is_done = True
