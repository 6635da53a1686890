"""fetch: bounds, runs, and what becomes of the messages."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import BackingQueue
from tests.contract.backings import MANY, OpenBacking, listed


def requeue_all(backing: OpenBacking) -> None:
    """Everything ready becomes ready again after a fetch: a different place inside many implementations."""
    backing.queue.requeue([seq_id for seq_id, _, _ in backing.take(len(backing.queue))])


def test_an_empty_queue_gives_none(backing: OpenBacking, bq: BackingQueue) -> None:
    assert bq.fetch(1, MANY, True) is None
    assert bq.fetch(100, 0, False) is None
    backing.publish(b"a")
    backing.take(1)
    assert bq.fetch(1, MANY, True) is None


@pytest.mark.parametrize("ack_required", [False, True], ids=["no ack", "ack"])
@pytest.mark.parametrize("requeued", [False, True], ids=["fresh", "requeued"])
def test_fetch_is_bounded_by_count(backing: OpenBacking, bq: BackingQueue, requeued: bool, ack_required: bool) -> None:
    first = backing.publish(*[b"%d" % index for index in range(10)])
    if requeued:
        requeue_all(backing)
    fetched: list[tuple[int, bytes, bool]] = []
    for count_max in (1, 3, 2, 100):
        run = listed(bq.fetch(count_max, MANY, ack_required))
        assert 1 <= len(run) <= count_max
        fetched += run
    fetched += backing.take(len(bq), ack_required)
    assert fetched == [(first + index, b"%d" % index, requeued) for index in range(10)]


@pytest.mark.parametrize("requeued", [False, True], ids=["fresh", "requeued"])
@pytest.mark.parametrize("bytes_max", [0, 9, 10, 19, 20, 25, 1_000])
def test_fetch_is_bounded_by_bytes(backing: OpenBacking, bq: BackingQueue, bytes_max: int, requeued: bool) -> None:
    first = backing.publish(*[b"0123456789"] * 6)
    if requeued:
        requeue_all(backing)
    fetched: list[int] = []
    while not bq.is_empty():
        run = listed(bq.fetch(100, bytes_max, True))
        assert 1 <= len(run) <= max(1, bytes_max // 10)
        fetched += [seq_id for seq_id, _, _ in run]
        bq.check_invariants()
    assert fetched == [first + index for index in range(6)]
    assert (bq.ready_bytes(), bq.pending_bytes()) == (0, 60)


@pytest.mark.parametrize("requeued", [False, True], ids=["fresh", "requeued"])
def test_the_first_message_always_passes_and_alone_when_it_is_too_large(
    backing: OpenBacking, bq: BackingQueue, requeued: bool
) -> None:
    first = backing.publish(b"x" * 1_000, b"", b"y")
    if requeued:
        requeue_all(backing)
    assert listed(bq.fetch(10, 5, True)) == [(first, b"x" * 1_000, requeued)]
    assert (bq.ready_bytes(), bq.pending_bytes()) == (1, 1_000)


def test_empty_bodies_fit_into_no_bytes(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"", b"", b"x", b"")
    sizes = []
    while not bq.is_empty():
        sizes.append([payload for _, payload, _ in listed(bq.fetch(10, 0, True))])
    assert sum(sizes, []) == [b"", b"", b"x", b""]  # noqa: RUF017
    assert all(len(run) == 1 or set(run) == {b""} for run in sizes)
    assert bq.ack(range(first, first + 4)) == 4


def test_what_did_not_fit_is_next_and_in_order(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a" * 10, b"b" * 10, b"c" * 100, b"d", b"e")
    bq.fetch(5, 25, True)
    rest = backing.ready()
    assert [seq_id for seq_id, _ in rest] == list(range(rest[0][0], first + 5))
    assert (first + 2, b"c" * 100) in rest
    assert [(seq_id, payload) for seq_id, payload, _ in backing.take(len(rest))] == rest


def test_messages_fetched_with_ack_are_pending(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"bb", b"ccc")
    backing.take(2)
    assert (len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == (1, 3, 3, 3)
    assert backing.pending() == [(first, b"a"), (first + 1, b"bb")]
    assert backing.ready() == [(first + 2, b"ccc")]


def test_messages_fetched_without_ack_are_gone(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"bb", b"ccc")
    backing.take(2, ack_required=False)
    assert (len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == (1, 1, 3, 0)
    assert bq.ack([first, first + 1]) == 0
    assert bq.requeue([first, first + 1]) == 0
    assert backing.ready() == [(first + 2, b"ccc")]


def test_requeued_messages_come_before_fresh_ones_and_are_told_apart(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d")
    backing.take(2)
    bq.requeue([first, first + 1])
    assert backing.take(4) == [
        (first, b"a", True),
        (first + 1, b"b", True),
        (first + 2, b"c", False),
        (first + 3, b"d", False),
    ]


def test_a_run_has_no_holes(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d", b"e")
    backing.take(5)
    bq.requeue([first + 4, first + 1, first])
    runs = [listed(bq.fetch(10, MANY, True))]
    while not bq.is_empty():
        runs.append(listed(bq.fetch(10, MANY, True)))
    assert [(seq_id, payload) for run in runs for seq_id, payload, _ in run] == [
        (first, b"a"),
        (first + 1, b"b"),
        (first + 4, b"e"),
    ]


def test_a_fetched_run_belongs_to_the_caller(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b")
    run = bq.fetch(2, MANY, True)
    assert run is not None
    count = len(run.entries)
    run.entries.clear()
    run.first_seq_id = 999
    assert bq.requeue([first, first + 1]) == count
    assert backing.ready() == [(first, b"a"), (first + 1, b"b")]


def test_messages_published_in_runs_are_fetched_in_runs(backing: OpenBacking, bq: BackingQueue) -> None:
    """A run may be shorter than it could be, but work per message is what runs are there to avoid."""
    for _ in range(4):
        backing.publish(*[b"0123456789ab"] * 64)
    fetches = 0
    while bq.fetch(256, MANY, True) is not None:
        fetches += 1
    assert bq.depth() == 256
    # One that keeps two messages in RAM hands them out as it reads them.
    assert fetches <= (256 if backing.spec.is_tiny else 16)


def test_fetching_nothing_is_a_programming_error(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a")
    with pytest.raises(AssertionError):
        bq.fetch(0, MANY, True)
    assert len(bq) == 1
