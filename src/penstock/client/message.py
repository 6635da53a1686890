"""What a client sees of a message and of a queue, whatever holds them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

State = Literal["ready", "reserved", "scheduled", "buried", "finalized"]


# Not frozen: that would treble the time it takes to make one, and a batch makes thousands.
@dataclass(slots=True)
class Message:
    """One message. What a driver cannot know is None."""

    # Names the message within its queue: PostgreSQL's row id, or what the driver tells messages apart by.
    id: str
    queue: str
    payload: bytes
    state: State
    # How often it was handed out, this time included. AMQP brokers that do not count say 1, or 2 for "before as well".
    deliveries: int = 1
    ready_at: datetime | None = None
    reserved_at: datetime | None = None
    reserved_by: str | None = None
    reserved_ip: str | None = None
    reserved_until: datetime | None = None
    finalized_at: datetime | None = None
    finalized_note: str | None = None
    # Why it came back or was buried.
    note: str | None = None
    # AMQP's side of it: exchange, routing key, and the properties by name.
    exchange: str | None = None
    routing_key: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self.payload.decode("utf-8")

    def json(self) -> Any:
        """Return the payload as JSON."""
        return json.loads(self.payload)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of one queue; None where the driver cannot know."""

    queue: str
    ready_count: int
    reserved_count: int | None = None
    scheduled_count: int | None = None
    buried_count: int | None = None
    finalized_count: int | None = None
    producer_count: int | None = None
    consumer_count: int | None = None
