"""Results of I/O on their way to a queue: on the broker's thread, in order, never too late; and when they fail."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from vhost_house import House, Reader, check_refused

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.volatile import VolatileBackingQueue
from penstock.broker.vhost.callbacks import AsyncCallbackTo, run_now
from penstock.broker.vhost.vhost import VHost
from penstock.message import ConfirmToken, Envelope, Incoming, unlike
from penstock.queues.queue import Queue

KIND = VolatileBackingQueue.KIND


class SlowBacking(VolatileBackingQueue):
    """Confirms nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: list[ConfirmToken] = []

    def drain_confirmed(self) -> list[ConfirmToken]:
        self.owed.extend(super().drain_confirmed())
        return []

    def take_owed(self) -> list[ConfirmToken]:
        owed, self.owed = self.owed, []
        return owed

    def release(self) -> None:
        for token in self.owed:
            token.settle()
        self.owed.clear()


class Token(ConfirmToken):
    def __init__(self) -> None:
        super().__init__(1)
        self.outcome = ""

    def complete(self) -> None:
        self.outcome = self.outcome or "ack"

    def refuse(self) -> None:
        self.outcome = "nack"


class Mailbox:
    """The broker's thread, as the callback sees it: what was posted runs when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def post(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def run(self) -> None:
        work, self.work = self.work, []
        for each in work:
            each()


@pytest.fixture
def house() -> House:
    return House()


def callback_to(queue: Queue, mailbox: Mailbox | None = None) -> AsyncCallbackTo:
    callback = AsyncCallbackTo(mailbox.post if mailbox else run_now)
    queue.own_backing()
    callback.lead_to(queue)
    return callback


def test_work_from_another_thread_runs_where_it_was_posted_to_and_in_order(house: House) -> None:
    mailbox = Mailbox()
    callback = callback_to(house.queue(), mailbox)
    seen: list[tuple[int, int]] = []

    def producer() -> None:
        for number in range(50):
            callback(KIND, lambda backing, number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]

    thread = threading.Thread(target=producer)
    thread.start()
    thread.join()
    assert seen == []
    mailbox.run()
    assert seen == [(number, threading.get_ident()) for number in range(50)]


def test_work_for_another_implementation_is_ignored(house: House) -> None:
    seen: list[BackingQueue] = []
    callback = callback_to(house.queue())
    callback("another", seen.append)
    assert seen == []
    callback(KIND, seen.append)
    assert seen == [house.vhost.queues["q"].backing]


def test_work_that_comes_before_or_after_the_queue_is_dropped(house: House) -> None:
    seen: list[BackingQueue] = []
    mailbox = Mailbox()
    AsyncCallbackTo(run_now)(KIND, seen.append)
    deleted, stopped = callback_to(house.queue("q"), mailbox), callback_to(house.queue("r"), mailbox)
    for callback in (deleted, stopped):
        callback(KIND, seen.append)
    house.delete_queue("q")
    house.vhost.queues["r"].terminate()
    mailbox.run()
    assert seen == []


def test_publishers_are_told_what_the_work_has_made_safe(house: House) -> None:
    queue = house.queue()
    token = Token()
    queue.own_backing().publish(Incoming(Envelope("", "q", b""), [b"x\xce"]), None)

    def confirm(backing: BackingQueue) -> None:
        assert isinstance(backing, VolatileBackingQueue)
        backing._confirmed.append(token)

    callback_to(queue)(KIND, confirm)
    assert token.outcome == "ack"


def failing(backing: BackingQueue) -> None:
    raise RuntimeError("a bug")


def crashed(house: House, name: str = "q") -> tuple[Queue, Token]:
    """A durable queue with a consumer and an unconfirmed publish, whose backing has just failed."""
    queue = house.queue(name, durable=True)
    queue.backing = SlowBacking()
    reader = Reader()
    queue.add_consumer(reader, False)
    token = Token()
    queue.publish(Incoming(Envelope("", name, b""), [b"x\xce"]), token)
    assert token.outcome == ""
    callback_to(queue)(KIND, failing)
    assert reader.cancelled
    return queue, token


def test_work_that_fails_costs_its_queue_only(house: House, caplog: pytest.LogCaptureFixture) -> None:
    other = house.queue("other")
    queue, token = crashed(house)
    assert queue.crashed
    assert token.outcome == "nack"
    assert "has crashed" in caplog.text
    other_token = Token()
    other.publish(Incoming(Envelope("", "other", b""), [b"x\xce"]), other_token)
    assert (len(other), other_token.outcome) == (1, "ack")


def test_a_crashed_queue_refuses_what_is_published_and_forgets_what_is_settled(house: House) -> None:
    queue, _ = crashed(house)
    before = len(queue.backing)
    for publish in (
        lambda token: queue.publish(Incoming(Envelope("", "q", b""), [b"x\xce"]), token),
        lambda token: queue.publish(unlike([(Envelope("", "q", b""), b"x\xce", None)]), token),
    ):
        token = Token()
        publish(token)
        assert token.outcome == "nack"
        publish(None)
    for settle in (queue.ack, queue.reject, queue.requeue):
        settle([0])
    assert len(queue.backing) == before
    # And late work does nothing.
    callback_to(queue)(KIND, failing)


def test_a_crashed_queue_cannot_be_used_but_deleted(house: House) -> None:
    queue, _ = crashed(house)
    text = "NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart"
    check_refused(text, lambda: house.vhost.queue("q", None))
    check_refused(text, lambda: house.queue("q", durable=True))
    assert ram_bytes(house.vhost) == 0
    assert house.vhost.queue("q", None, even_crashed=True) is queue
    assert house.delete_queue("q", if_empty=True) == 0
    house.queue("q", durable=True)
    assert not house.vhost.queues["q"].crashed


def test_a_vhost_with_a_crashed_queue_stops(house: House) -> None:
    crashed(house)
    house.queue("other")
    house.vhost.stop()
    assert all(queue.deleted for queue in house.vhost.queues.values())


def test_a_confirm_that_was_given_is_not_taken_back_by_a_crash(house: House) -> None:
    queue = house.queue(durable=True)
    token = Token()
    queue.publish(Incoming(Envelope("", "q", b""), [b"x\xce"]), token)
    assert token.outcome == "ack"
    callback_to(queue)(KIND, failing)
    assert token.outcome == "ack"


def ram_bytes(vhost: VHost) -> int:
    vhost.memory.look()
    return vhost.memory.total_bytes
