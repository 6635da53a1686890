"""invoke, terminate, delete, restart and crash, and what a queue may ask at any time."""

from __future__ import annotations

import math
import threading

from penstock.backing.backing_queue import TIMEOUT_IDLE, TIMEOUT_NONE, TIMEOUT_TIMED, BackingQueue
from penstock.message import Incoming, MessageProps
from tests.contract.backings import QUEUE_ID, OpenBacking, stored
from tests.contract.model import GONE, PENDING, READY, BackingModel
from tests.contract.noted_token import NotedToken


def test_every_implementation_has_a_name(bq: BackingQueue) -> None:
    assert bq.KIND


def test_invoke_runs_work_on_the_backing_at_once_and_on_the_callers_thread(bq: BackingQueue) -> None:
    seen: list[tuple[BackingQueue, threading.Thread]] = []
    bq.invoke(bq.KIND, lambda backing: seen.append((backing, threading.current_thread())))
    assert seen == [(bq, threading.current_thread())]


def test_invoke_ignores_work_for_another_implementation(backing: OpenBacking, bq: BackingQueue) -> None:
    """CX-2"""
    backing.publish(b"a")
    for kind in ("another", "", bq.KIND.upper(), bq.KIND + " "):
        bq.invoke(kind, lambda backing: backing.purge() and None)
    assert len(bq) == 1


def test_work_is_done_in_the_order_in_which_one_thread_handed_it_over(backing: OpenBacking, bq: BackingQueue) -> None:
    """CX-3"""
    done: list[int] = []

    def append(index: int) -> None:
        backing.call_later(bq.KIND, lambda _: done.append(index))
        backing.call_later("another", lambda _: done.append(-1))

    producer = threading.Thread(target=lambda: [append(index) for index in range(100)])
    producer.start()
    producer.join()
    assert done == []
    backing.run_callbacks()
    assert done == list(range(100))


def test_work_can_use_the_backing_it_is_given(backing: OpenBacking, bq: BackingQueue) -> None:
    bq.invoke(bq.KIND, lambda inner: inner.publish(Incoming(backing.envelope(), stored([b"a"])), None) and None)
    assert [payload for _, payload in backing.ready()] == [b"a"]


def test_a_crash_may_follow_a_clean_stop(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b")
    backing.take(1)
    bq.terminate()
    backing.open_queues.stop()
    backing.crash()
    backing.publish(b"c")
    assert [payload for _, payload in backing.ready()][-1] == b"c"


def test_a_deleted_queue_leaves_nothing(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b", b"c", props=MessageProps(confirm=NotedToken()))
    bq.requeue([seq_id for seq_id, _, _ in backing.take(2)][:1])
    assert len(backing.settle()) == 1
    backing.delete()
    assert (backing.folded(), backing.queue.depth(), backing.queue.ready_bytes()) == ([], 0, 0)


def test_what_a_crashed_queue_left_can_be_removed_without_opening_it(backing: OpenBacking) -> None:
    backing.publish(b"a", b"b", b"c", props=MessageProps(confirm=NotedToken()))
    assert len(backing.settle()) == 1
    backing.spec.lose_power(backing.folder)
    backing.open_queues = backing.spec.factory(backing.folder)
    backing.open_queues.start([QUEUE_ID])
    backing.open_queues.delete_crashed(QUEUE_ID)
    backing.open_queues.delete_crashed("never there")
    backing.open_queues.stop()
    backing.crash()
    assert backing.folded() == []


def test_start_answers_for_each_queue_in_order(backing: OpenBacking) -> None:
    backing.queue.terminate()
    backing.open_queues.stop()
    backing.open_queues = backing.spec.factory(backing.folder)
    assert len(backing.open_queues.start(["a1", QUEUE_ID, "b2"])) == 3
    backing.crash()


def test_queues_of_one_vhost_share_no_messages(backing: OpenBacking, bq: BackingQueue) -> None:
    other = backing.open_queues.open("77", True, None, backing.call_later)
    first = backing.publish(b"a", b"b")
    backing.take(1)
    assert (other.depth(), other.fetch(1, 1, True)) == (0, None)
    assert other.ack([first]) == 0
    other.publish(Incoming(backing.envelope(), stored([b"other"])), None)
    other.purge()
    assert backing.pending() == [(first, b"a")]
    assert backing.ready() == [(first + 1, b"b")]
    other.delete_and_terminate()
    assert bq.depth() == 2


def fill(backing: OpenBacking) -> BackingModel:
    """Ready, pending, requeued and acked messages, transient and persistent, the last run not confirmed."""
    model = BackingModel(backing.spec.keeps_transient)
    bodies = stored([b"a", b"b", b"c", b"d"])
    envelope, props = backing.envelope(), MessageProps(confirm=NotedToken())
    first = backing.queue.publish(Incoming(envelope, bodies), props)
    model.publish(first, envelope, bodies, props, READY, seen=False)
    backing.take(4)
    model.take(model.in_state(READY), ack_required=True)
    for persistent in (False, True, backing.persistent):
        model.confirm(backing.settle())
        backing.persistent = persistent
        envelope, props = backing.envelope(), MessageProps(60_000, NotedToken())
        model.publish(
            backing.queue.publish(Incoming(envelope, bodies), props), envelope, bodies, props, READY, seen=False
        )
        backing.take(3)
        model.take(model.in_state(READY)[:3], ack_required=True)
        newest = [held.seq_id for held in model.in_state(PENDING)][-2:]
        assert backing.queue.ack(newest[1:]) == model.settle(newest[1:], GONE) == 1
        assert backing.queue.requeue(newest[:1]) == model.settle(newest[:1], READY) == 1
    return model


def check_recovered(backing: OpenBacking, model: BackingModel, clean: bool) -> None:
    found = backing.folded()
    assert [seq_id for seq_id, _, pending in found if pending] == [], "after a restart nobody waits for an ack"
    model.recover([(seq_id, entry) for seq_id, entry, _ in found], clean, backing.spec.survives)
    assert len(backing.queue) == len(found)
    backing.queue.check_invariants()
    while not backing.queue.is_empty():
        run = backing.queue.fetch(10, 1_000, True)
        model.take(model.check_run(run, model.in_state(READY), 10, 1_000), ack_required=True)
    envelope, bodies = backing.envelope(), stored([b"new"])
    model.publish(backing.queue.publish(Incoming(envelope, bodies), None), envelope, bodies, None, READY, seen=False)


def test_a_clean_restart_brings_back_what_is_persistent(backing: OpenBacking) -> None:
    """An implementation that keeps nothing comes back empty."""
    model = fill(backing)
    backing.restart()
    check_recovered(backing, model, clean=True)


def test_a_crash_loses_nothing_that_was_confirmed(backing: OpenBacking) -> None:
    model = fill(backing)
    backing.crash()
    check_recovered(backing, model, clean=False)


def test_hints_about_memory_and_time_change_no_message(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b", b"c")
    bq.requeue([seq_id for seq_id, _, _ in backing.take(2)][:1])
    before = backing.folded()
    for seconds in (0.0, 0.5, math.inf):
        bq.set_ram_duration_target(seconds)
        assert bq.ram_duration() >= 0
    for lazy in (True, True, False):
        bq.set_queue_mode(lazy)
        bq.resume()
    assert bq.needs_timeout() in (TIMEOUT_NONE, TIMEOUT_IDLE, TIMEOUT_TIMED)
    assert backing.settle() == []
    assert [(seq_id, entry[1], pending) for seq_id, entry, pending in backing.folded()] == [
        (seq_id, entry[1], pending) for seq_id, entry, pending in before
    ]
    assert (len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == (2, 3, 2, 1)


def test_numbers_are_never_negative(backing: OpenBacking, bq: BackingQueue) -> None:
    for _ in range(2):
        assert bq.ram_bytes() >= 0
        backing.publish(b"a")
        bq.ack([seq_id for seq_id, _, _ in backing.take(1)])


def test_status_names_what_every_queue_has(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c")
    backing.take(1)
    status = bq.status()
    assert (status["kind"], status["len"], status["pending_acks"]) == (bq.KIND, 2, 1)
    assert status["next_seq_id"] == first + 3
    assert all(isinstance(value, int | float | str) for value in status.values())
