"""Direct reply-to: answers that go straight to the requester's channel, past every queue.

A channel that consumes from `amq.rabbitmq.reply-to` gets a secret address. Requests that it publishes with that
pseudo-queue as reply-to leave with the address; a publish to the address through the default exchange is handed to the
channel at once, or counts as unroutable when the channel is gone.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from penstock.message import Envelope
from penstock.native import mypyc_attr
from penstock.wire.property_shapes import DIRECT_REPLY

PSEUDO_QUEUE: Final = DIRECT_REPLY.decode()
PREFIX: Final = "amq.rabbitmq.reply-to."


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyReceiver(ABC):
    """A channel that waits for replies."""

    @abstractmethod
    def receive_replies(self, envelope: Envelope, bodies: Sequence[bytes]) -> None:
        """Deliver to the client; no copy is kept."""


class DirectReplies:
    """The receivers of replies, by address."""

    def __init__(self) -> None:
        self._receivers: dict[str, ReplyReceiver] = {}

    def open(self, receiver: ReplyReceiver) -> str:
        """Return a new address for the receiver, which cannot be guessed."""
        address = PREFIX + secrets.token_urlsafe(24)
        self._receivers[address] = receiver
        return address

    def close(self, address: str) -> None:
        self._receivers.pop(address, None)

    def receiver(self, address: str) -> ReplyReceiver | None:
        return self._receivers.get(address)
