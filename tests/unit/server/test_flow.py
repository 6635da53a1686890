"""Publishers are held while their consumers are behind but at it, and let go when they catch up, stop, or vanish."""

from __future__ import annotations

import pytest
from fake_loop import FakeLoop

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.backing.volatile import VolatileBackingQueue
from penstock.clock import ManualClock
from penstock.message import Envelope, Incoming
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.queues.queue_owner import QueueOwner
from penstock.server.turn.flow import PublisherFlow


class Publisher:
    """A connection as the flow sees it: read, or not read for some reasons."""

    def __init__(self) -> None:
        self.stops: set[str] = set()
        self.resumed = 0

    def stop_reading(self, reason: str) -> None:
        self.stops.add(reason)

    def resume_reading(self, reason: str) -> None:
        self.stops.discard(reason)
        self.resumed += 1


class Taker(Consumer):
    def __init__(self) -> None:
        super().__init__("c", 0, True, True, False)

    def notify_work(self) -> None:
        pass

    def cancelled_by_queue(self) -> None:
        pass


class Owner(QueueOwner):
    def last_consumer_gone(self, queue: Queue) -> None:
        pass

    def open_backing(self, queue: Queue) -> BackingQueue:
        raise AssertionError("it has one")


class Bench:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.flow = PublisherFlow(self.loop)
        self.publisher = Publisher()
        self.queue = self.new_queue()
        self.taker = Taker()
        self.queue.add_consumer(self.taker, True)

    def turn(self) -> None:
        """What the scheduler does after each turn while somebody is held."""
        self.flow.release()

    def new_queue(self) -> Queue:
        return Queue("q", "/", False, False, None, {}, VolatileBackingQueue(), ManualClock(), ExpirySchedule(), Owner())

    def publish(self, count: int, size: int = 1) -> None:
        self.queue.publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x" * size + b"\xce"] * count), None)
        self.flow.after_publish(self.publisher, [self.queue])

    def take(self, count: int) -> None:
        while count > 0:
            run = self.queue.pull(self.taker, min(count, limits.PULL_MESSAGES_MAX))
            if run is None:
                return
            count -= len(run.entries)

    @property
    def is_throttled(self) -> bool:
        return "flow" in self.publisher.stops


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_publisher_whose_consumers_keep_up_is_read(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES)
    assert not bench.is_throttled
    assert bench.loop.timers == []


def test_a_publisher_is_held_when_messages_or_bytes_pile_up(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    assert bench.is_throttled
    other = Bench()
    other.publish(5, limits.THROTTLE_READY_BYTES // 4)
    assert other.is_throttled


def test_without_consumers_a_backlog_is_what_the_publisher_wants(bench: Bench) -> None:
    bench.queue.remove_consumer(bench.taker)
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    assert not bench.is_throttled


def test_a_publisher_is_let_go_when_the_consumers_have_caught_up_and_not_before(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    bench.take(limits.THROTTLE_READY_MESSAGES - limits.RELEASE_READY_MESSAGES)
    bench.flow.release()
    assert bench.is_throttled
    bench.take(1)
    bench.flow.release()
    assert not bench.is_throttled
    assert bench.flow.throttled == {}


def test_a_publisher_of_large_messages_is_let_go_when_the_bytes_have_shrunk(bench: Bench) -> None:
    size = limits.THROTTLE_READY_BYTES // 4
    bench.publish(5, size)
    bench.take(2)
    bench.flow.release()
    assert bench.is_throttled
    bench.take(1)
    bench.flow.release()
    assert not bench.is_throttled


def test_consumers_that_do_not_take_at_a_good_pace_hold_nobody(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    bench.take(limits.THROTTLE_PACE_MESSAGES - 1)
    bench.turn()
    bench.turn()
    bench.loop.pass_s(limits.THROTTLE_CHECK_S)
    assert not bench.is_throttled
    assert bench.loop.live_timers() == []


def test_consumers_that_had_no_turn_yet_are_given_more_time_but_not_for_ever(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    for _ in range(limits.THROTTLE_CHECKS_MAX - 1):
        bench.loop.pass_s(limits.THROTTLE_CHECK_S)
        assert bench.is_throttled
    bench.loop.pass_s(limits.THROTTLE_CHECK_S)
    assert not bench.is_throttled
    assert bench.loop.live_timers() == []


def test_slow_consumers_hold_nobody_again_before_they_have_taken_more(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    bench.loop.pass_s(limits.THROTTLE_CHECK_S * limits.THROTTLE_CHECKS_MAX)
    bench.publish(1)
    assert not bench.is_throttled
    bench.take(limits.THROTTLE_PACE_MESSAGES)
    bench.publish(limits.THROTTLE_PACE_MESSAGES)
    assert bench.is_throttled


def test_consumers_at_a_good_pace_hold_the_publisher_from_check_to_check(bench: Bench) -> None:
    bench.publish(2 * limits.THROTTLE_READY_MESSAGES)
    for _ in range(3):
        bench.take(limits.THROTTLE_PACE_MESSAGES)
        bench.turn()
        bench.turn()
        bench.loop.pass_s(limits.THROTTLE_CHECK_S)
        assert bench.is_throttled
    # The pace is that since the last check, not since the beginning.
    bench.take(limits.THROTTLE_PACE_MESSAGES - 1)
    bench.turn()
    bench.turn()
    bench.loop.pass_s(limits.THROTTLE_CHECK_S)
    assert not bench.is_throttled


def test_a_queue_that_is_deleted_holds_nobody(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    bench.queue.delete()
    bench.flow.release()
    assert not bench.is_throttled


def test_a_queue_that_loses_its_consumers_holds_nobody_for_long(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    bench.queue.remove_consumer(bench.taker)
    bench.loop.pass_s(limits.THROTTLE_CHECK_S * limits.THROTTLE_CHECKS_MAX)
    assert not bench.is_throttled


def test_all_publishers_of_a_queue_are_let_go_together(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    first, bench.publisher = bench.publisher, Publisher()
    bench.publish(1)
    assert bench.is_throttled
    assert len(bench.loop.live_timers()) == 1
    bench.take(limits.THROTTLE_READY_MESSAGES)
    bench.flow.release()
    assert (first.stops, bench.publisher.stops) == (set(), set())


def test_closing_stops_the_timer(bench: Bench) -> None:
    bench.publish(limits.THROTTLE_READY_MESSAGES + 1)
    bench.flow.close()
    assert bench.loop.live_timers() == []
    assert bench.flow.throttled == {}
