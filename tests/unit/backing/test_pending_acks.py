"""Pending messages: found in the middle of runs, settled in any order, evicted and put back, against a dict."""

from __future__ import annotations

import random

import pytest
from backing_house import VHOST, Parts
from tests.effort import some

from penstock.backing.variable.pending_acks import BUCKET, PendingAcks, spans
from penstock.backing.zones.msg_status import MsgStatus
from penstock.message import body_bytes


def with_pending(count: int, persistent: bool = True, size: int = 3) -> Parts:
    parts = Parts()
    parts.publish(*[b"%05d" % number + b"x" * size for number in range(count)], persistent=persistent)
    parts.commit()
    parts.hand_out(count)
    parts.pending.check_invariants()
    return parts


def numbers(run: MsgStatus) -> list[int]:
    return list(range(run.seq_id, run.seq_id + run.count))


def test_a_long_run_is_kept_in_pieces_of_a_bucket() -> None:
    parts = with_pending(3 * BUCKET + 10)
    assert [run.count for run in parts.pending.runs()] == [BUCKET, BUCKET, BUCKET, 10]
    for seq_id in (0, BUCKET - 1, BUCKET, 3 * BUCKET + 9):
        assert seq_id in parts.pending
    for seq_id in (-1, 3 * BUCKET + 10, 1 << 60):
        assert seq_id not in parts.pending
    assert "0" not in parts.pending


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_what_is_settled_comes_as_runs_with_their_bytes(persistent: bool) -> None:
    parts = with_pending(20, persistent)
    assert parts.pending.remove([3, 4, 5, 9, 8, 4, 77, 10]) == [
        (3, 3, 24, persistent),
        (9, 1, 8, persistent),
        (8, 1, 8, persistent),
        (10, 1, 8, persistent),
    ]
    parts.pending.check_invariants()
    assert parts.pending.remove(range(20)) == [(0, 3, 24, persistent), (6, 2, 16, persistent), (11, 9, 72, persistent)]
    assert (parts.pending.count, parts.pending.size_bytes, parts.pending.ram_bytes) == (0, 0, 0)
    assert parts.pending.remove([]) == []


def test_what_belongs_together_is_settled_together_across_runs() -> None:
    """Ten fetches of one message each: one row of the journal for all of them."""
    parts = Parts()
    parts.publish(*[b"%d" % number for number in range(10)])
    for _ in range(10):
        parts.hand_out(1)
    assert len(parts.pending.runs()) == 10
    assert parts.pending.remove(range(10)) == [(0, 10, 10, True)]


def test_transient_and_persistent_neighbours_are_settled_apart() -> None:
    parts = Parts()
    for number in range(4):
        parts.publish(b"ab", persistent=number >= 2)
    parts.hand_out(4)
    assert parts.pending.remove(range(4)) == [(0, 2, 4, False), (2, 2, 4, True)]


def test_settling_a_large_message_gives_its_reference_back() -> None:
    parts = with_pending(6, size=200)
    store = parts.node.message_store(VHOST, True)
    assert store.status()["bodies"] == 6
    parts.pending.remove([1, 2])
    parts.pending.remove([5])
    assert store.status()["bodies"] == 3
    parts.pending.remove(range(6))
    assert store.status()["bodies"] == 0


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("size", [3, 200], ids=["small", "large"])
def test_the_youngest_leave_ram_first_and_can_be_read(persistent: bool, size: int) -> None:
    parts = with_pending(10, persistent, size)
    writes = parts.homes.writes
    assert parts.pending.evict(3) == 3
    parts.pending.check_invariants()
    assert (parts.pending.ram_count(), parts.pending.ram_bytes) == (7, 7 * (5 + size))
    assert [number for run in parts.pending.runs() if run.msg is None for number in numbers(run)] == [7, 8, 9]
    assert parts.homes.writes == writes + (0 if persistent else 3)
    for seq_id in range(10):
        found = parts.pending.entry(seq_id)
        assert found is not None
        assert int(body_bytes(found[1])[:5]) == seq_id
    assert parts.pending.evict(100) == 7
    assert parts.pending.evict(100) == 0
    assert parts.homes.writes == writes + (0 if persistent else 10)


def test_what_the_journal_has_not_written_stays_in_ram() -> None:
    parts = Parts()
    parts.publish(b"a", b"b")
    parts.commit()
    parts.publish(b"c")
    parts.hand_out(3)
    assert parts.pending.evict(3) == 2
    parts.commit()
    assert parts.pending.evict(3) == 1


def test_what_comes_back_is_in_order_marked_and_with_its_bodies() -> None:
    parts = with_pending(10)
    parts.pending.evict(4)
    runs = parts.pending.take_back([9, 2, 7, 3, 2, 55, 5])
    assert [numbers(run) for run in runs] == [[2, 3], [5], [7], [9]]
    assert all(run.is_delivered for run in runs)
    assert [run.msg is None for run in runs] == [False, False, True, True]
    parts.pending.check_invariants()
    assert parts.pending.seq_ids() == [0, 1, 4, 6, 8]


def test_a_handed_out_list_is_not_kept() -> None:
    parts = Parts()
    parts.publish(b"a", b"b")
    status = parts.take(2)
    entries = status.entries()
    parts.pending.record(status, entries)
    entries.clear()
    assert parts.pending.entry(1) is not None


def test_a_stretch_is_counted_and_copied() -> None:
    parts = with_pending(10)
    parts.pending.remove([4, 5])
    assert [parts.pending.count_between(*stretch) for stretch in [(0, 10), (3, 7), (4, 6), (9, 99), (5, 5)]] == [
        8,
        2,
        0,
        1,
        0,
    ]
    copies = parts.pending.runs_between(3, 7)
    assert [numbers(run) for run in copies] == [[0, 1, 2, 3], [6, 7, 8, 9]]
    copies[0].split_front(2)
    parts.pending.check_invariants()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (range(3, 7), [(3, 7)]),
        (range(0), []),
        (range(0, 6, 2), [(0, 1), (2, 3), (4, 5)]),
        ([4, 5, 6, 2, 3, 3], [(4, 7), (2, 4), (3, 4)]),
        ([0], [(0, 1)]),
        ([-1, 0, 1], [(-1, 2)]),
    ],
)
def test_neighbours_are_found_in_the_order_given(given: list[int] | range, expected: list[tuple[int, int]]) -> None:
    assert spans(given) == expected


@pytest.mark.parametrize("seed", some(range(20)))
def test_it_is_what_a_dict_would_be(seed: int) -> None:
    rng = random.Random(seed)
    parts = Parts()
    pending: PendingAcks = parts.pending
    model: dict[int, bytes] = {}
    published = 0
    for _ in range(150):
        step = rng.randrange(5)
        chosen = rng.sample(sorted(model), rng.randint(0, len(model)))
        if step <= 1:
            payloads = [
                b"%d" % (published + at) + b"x" * rng.choice([0, 5, 90]) for at in range(rng.choice([1, 5, 300]))
            ]
            parts.publish(*payloads, persistent=rng.random() < 0.5)
            model.update(enumerate(payloads, published))
            published += len(payloads)
            parts.hand_out(len(payloads))
        elif step == 2:
            assert sum(run[1] for run in pending.remove(chosen)) == len(chosen)
            for seq_id in chosen:
                del model[seq_id]
        elif step == 3:
            back = pending.take_back(chosen)
            assert [number for run in back for number in numbers(run)] == sorted(chosen)
            for run in back:
                # As if fetched again.
                entries = [entry for entry in parts.homes.read(run) if entry] if run.msg is None else run.entries()
                pending.record(run, entries)
        else:
            parts.commit()
            pending.evict(rng.randrange(50))
        pending.check_invariants()
        assert pending.seq_ids() == sorted(model)
        assert pending.size_bytes == sum(map(len, model.values()))
        for seq_id in chosen[:5]:
            found = pending.entry(seq_id)
            assert (None if found is None else body_bytes(found[1])) == model.get(seq_id)
