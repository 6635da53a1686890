"""A consumer that fails while it is served costs the queue nothing."""

from __future__ import annotations

import pytest

from penstock.broker.broker import Broker
from penstock.clock import ManualClock
from penstock.config import Config
from penstock.message import Envelope, Incoming
from penstock.queues.consumers.consumer import Consumer


class Failing(Consumer):
    def __init__(self) -> None:
        super().__init__("c", 0, True, True, False)

    def notify_work(self) -> None:
        pass

    def cancelled_by_queue(self) -> None:
        pass

    def take_now(self) -> int:
        raise KeyError("a bug")


def test_messages_expire_after_a_consumer_has_failed_to_take_one_that_was_for_it_alone() -> None:
    clock = ManualClock()
    broker = Broker(Config(), clock)
    queue = broker.vhosts["/"].declare_queue("q", False, False, None, {})
    consumer = Failing()
    queue.add_consumer(consumer, True)
    with pytest.raises(KeyError):
        queue.publish(Incoming(Envelope("", "q", b"\x00\x00", expiration_ms=0), [b"now or never\xce"]), None)
    queue.remove_consumer(consumer)
    clock.advance(1)
    broker.expiries.run_due(broker.clock.wall_ms())
    assert queue.get(True) is None
    assert len(queue) == 0
