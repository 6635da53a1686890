"""The queue's own context: what comes from elsewhere goes through the callback, in order, and not too late.

The general part, for every backing, is in test_life; a broker's end of the callback in tests/unit/broker. Here are the
callbacks that the variable queue really has: file handles that are asked back. The fate of a batch goes to the tokens
directly.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from penstock.backing.backing_queue import BackingQueue, BackingWork
from penstock.backing.priority.priority import PriorityBackingQueues
from penstock.backing.priority.priority_queue import PriorityBackingQueue
from penstock.backing.variable.variable import VariableBackingQueue
from penstock.broker.vhost.callbacks import AsyncCallbackTo, run_now
from penstock.clock import ManualClock
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, unlike
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.queues.queue_owner import QueueOwner
from penstock.store.node.options import StoreOptions
from tests.contract.noted_token import NotedToken, confirmed
from tests.contract.variable_house import VariableHouse, plain_options

KIND = VariableBackingQueue.KIND


class Token(ConfirmToken):
    def __init__(self) -> None:
        super().__init__(1)
        self.outcomes: list[str] = []

    def complete(self) -> None:
        self.outcomes.append("ack")

    def refuse(self) -> None:
        self.outcomes.append("nack")


def in_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_answers_of_the_journal_come_in_the_order_of_the_batches_and_need_no_callback() -> None:
    """CX-3"""
    house = VariableHouse()
    tokens = [NotedToken() for _ in range(10)]
    for token in tokens:
        house.publish(b"a", confirm=token)
        house.node.journal.commit(urgent=True)
    assert house.callbacks == []
    assert house.queue.drain_confirmed() == []
    assert confirmed(house.queue) == tokens


def test_work_for_another_kind_is_ignored() -> None:
    """CX-2"""
    house = VariableHouse()
    seen: list[BackingQueue] = []
    for kind in ("priority", "volatile", "", "Variable"):
        house.queue.invoke(kind, seen.append)
        assert seen == []
    house.queue.invoke(KIND, seen.append)
    assert seen == [house.queue]


def test_an_answer_that_comes_after_the_deletion_is_dropped() -> None:
    """CX-4: the token was given when the queue was deleted, and is not given again."""
    house = VariableHouse()
    token = NotedToken()
    house.publish(b"a", confirm=token)
    house.queue.delete_and_terminate()
    assert confirmed(house.queue) == [token]
    house.node.journal.commit(urgent=True)
    assert confirmed(house.queue) == []


def test_a_broker_drops_answers_for_a_queue_that_has_ended() -> None:
    """CX-4"""
    house = VariableHouse()
    queue = broker_queue(house, "q")
    token = Token()
    queue.publish(Incoming(Envelope("", "q", b"", True), [b"a\xce"]), token)
    queue.terminate()
    house.node.journal.commit(urgent=True)
    assert token.outcomes == []


def test_every_callback_goes_through_invoke_under_the_name_of_the_queue() -> None:
    """CX-5: handles that are asked back; nothing else reaches the queue from outside."""
    house = VariableHouse(plain_options(handles_max=1))
    seen: list[str] = []
    for number in range(40):
        house.publish(b"%d" % number, persistent=number % 2 == 0, confirm=Token())
        house.node.journal.commit(urgent=True)
        house.push_alphas(2)
        house.push_betas(2)
        house.queue.homes.flush()
        house.queue.homes.synced()
        seen.extend([kind for kind, _ in house.callbacks])
        house.run_callbacks()
    assert set(seen) == {KIND}
    assert house.numbers() == list(range(40))


def test_handles_are_closed_by_their_owner_in_its_own_time_and_by_nobody_else() -> None:
    """CX-6: with room for one, opening the second asks for the first, which stays open until its owner has run."""
    house = VariableHouse(plain_options(handles_max=1))
    other = house.open_queue("77")
    for queue in (house.queue, other):
        queue.publish(Incoming(house.envelope(False), [b"a\xce"]), None)
        queue.paging.push_alphas(1)
        queue.homes.store.flush()
    handles = house.node.handles
    assert handles.status()["waiting_for"] == 1
    assert len(handles) == 2
    assert len(house.callbacks) == 1
    in_another_thread(house.run_callbacks)
    assert (len(handles), handles.status()["waiting_for"]) == (1, 0)
    for queue in (house.queue, other):
        run = queue.fetch(1, 1, False)
        assert run is not None
        assert run.entries[0][1] == b"a\xce"


def test_a_handle_that_is_asked_back_after_the_deletion_of_its_queue_harms_nobody() -> None:
    """CX-4, CX-6"""
    house = VariableHouse(plain_options(handles_max=1))
    other = house.open_queue("77")
    for queue in (other, house.queue):
        queue.publish(Incoming(house.envelope(False), [b"a\xce"]), None)
        queue.paging.push_alphas(1)
        queue.homes.store.flush()
    late = house.callbacks
    house.callbacks = []
    other.delete_and_terminate()
    house.commit()
    for kind, work in late:
        other.invoke(kind, work)
    assert len(house.node.handles) == 1
    assert house.drain() == [b"a"]


class Levels:
    """A priority queue over variable levels, and what came through its callback."""

    def __init__(self, options: StoreOptions | None = None) -> None:
        self.house = VariableHouse(options)
        self.callbacks: list[tuple[str, BackingWork]] = []
        self.queues = PriorityBackingQueues(self.house.queues, 3)
        queue = self.queues.open("99", True, None, lambda kind, work: self.callbacks.append((kind, work)))
        assert isinstance(queue, PriorityBackingQueue)
        self.queue = queue

    def publish(self, priority: int, token: ConfirmToken, *, persistent: bool = True) -> int:
        envelope = Envelope("", "key", b"", persistent=persistent, priority=priority)
        return self.queue.publish(Incoming(envelope, [b"%d\xce" % priority]), MessageProps(confirm=token))


def test_the_answers_of_levels_reach_their_tokens_and_a_divided_one_waits_for_all() -> None:
    levels = Levels()
    tokens = [NotedToken() for _ in range(3)]
    for priority, token in zip((2, 0, 3), tokens, strict=True):
        levels.publish(priority, token)
    divided = NotedToken()
    entries: list[Entry] = [
        (Envelope("", "key", b"", persistent=priority != 2, priority=priority), b"x\xce", None)
        for priority in (1, 2, 3)
    ]
    levels.queue.publish(unlike(entries), MessageProps(confirm=divided))
    assert confirmed(levels.queue) == []
    levels.house.node.journal.commit(urgent=True)
    assert levels.callbacks == []
    assert sorted(map(id, confirmed(levels.queue))) == sorted(map(id, [*tokens, divided]))


def test_a_callback_of_a_level_reaches_that_level_under_the_name_of_the_proxy() -> None:
    """CX-7"""
    levels = Levels(plain_options(handles_max=1))
    for priority in (2, 0, 3):
        levels.publish(priority, NotedToken(), persistent=False)
        level = levels.queue._levels.at(priority)
        assert isinstance(level, VariableBackingQueue)
        level.paging.push_alphas(1)
        level.homes.store.flush()
    assert [kind for kind, _ in levels.callbacks] == ["priority"] * 2
    handles = levels.house.node.handles
    assert len(handles) == 3
    random.Random(3).shuffle(levels.callbacks)
    for kind, work in levels.callbacks:
        before = len(handles)
        levels.queue.invoke(KIND, work)
        assert len(handles) == before, "not meant for the proxy's level, but for the proxy"
        levels.queue.invoke(kind, work)
        assert len(handles) == before - 1


class NoOwner(QueueOwner):
    def last_consumer_gone(self, queue: Queue) -> None:
        raise AssertionError

    def open_backing(self, queue: Queue) -> BackingQueue:
        raise AssertionError("it has one")


def broker_queue(house: VariableHouse, queue_id: str) -> Queue:
    """A queue as a broker makes it, with its callback."""
    callback = AsyncCallbackTo(run_now)
    queue = queue_over(house.queues.open(queue_id, True, None, callback))
    callback.lead_to(queue)
    return queue


def queue_over(backing: BackingQueue) -> Queue:
    return Queue("q", "/", True, False, None, {}, backing, ManualClock(), ExpirySchedule(), NoOwner())


def test_work_that_fails_costs_its_queue_and_nacks_what_it_owes_and_the_messages_stay() -> None:
    """CX-8: the next start finds them."""
    house = VariableHouse()
    broken, other = queue_over(house.queue), broker_queue(house, "0a")
    safe, owed, others = Token(), Token(), Token()
    broken.publish(Incoming(Envelope("", "q", b"", True), [b"safe\xce"]), safe)
    house.node.journal.commit(urgent=True)
    house.run_callbacks()
    broken.settle_confirms()
    broken.publish(Incoming(Envelope("", "q", b"", True), [b"owed\xce"]), owed)
    other.publish(Incoming(Envelope("", "q", b"", True), [b"x\xce"]), others)

    def fail(backing: BackingQueue) -> None:
        raise RuntimeError("a bug")

    callback = AsyncCallbackTo(run_now)
    callback.lead_to(broken)
    callback(KIND, fail)
    assert (broken.crashed, other.crashed) == (True, False)
    house.node.journal.commit(urgent=True)
    assert (safe.outcomes, owed.outcomes, others.outcomes) == (["ack"], ["nack"], ["ack"])
    house.crash()
    assert [payload for _, payload, _ in house.folded()][:1] == [b"safe"]


def test_what_a_callback_makes_safe_is_told_before_anything_else_happens() -> None:
    """CX-9: there is no mailbox that deliveries could overtake it in; on the broker's thread it runs at once."""
    house = VariableHouse()
    queue = broker_queue(house, "b1")
    token = Token()
    queue.publish(Incoming(Envelope("", "q", b"", True), [b"x\xce"]), token)
    assert token.outcomes == []
    house.node.journal.commit(urgent=True)
    assert token.outcomes == ["ack"]
