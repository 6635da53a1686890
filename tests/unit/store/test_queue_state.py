"""The state of a queue: there and back, hostile bytes, and what replay makes of it."""

from __future__ import annotations

import random
from array import array

import pytest

from penstock.store.queue.places import JOURNAL, MSG_STORE, QUEUE_STORE
from penstock.store.queue.queue_state import BadState, QueueState, RunPlace, decode_state


def random_state(rng: random.Random) -> QueueState:
    state = QueueState("5e" * rng.randrange(1, 20), "0f-003", rng.randrange(1 << 31), rng.choice([1, 4, 4096]))
    state.lsn, state.next_seq_id = rng.randrange(1 << 60), rng.randrange(1 << 60)
    state.next_deliver_seq_id = rng.randrange(1 << 60)
    state.count, state.size_bytes = rng.randrange(1 << 60), rng.randrange(1 << 60)
    state.home_below = rng.randrange(1 << 60)
    state.live.low = rng.randrange(1000)
    for _ in range(rng.randrange(4)):
        state.live.remove(state.live.low + rng.randrange(1, 10_000), rng.randrange(1, 50))
    state.index_segments = {rng.randrange(1 << 40): rng.randrange(5000) for _ in range(rng.randrange(4))}
    state.delivery_counts = {rng.randrange(1 << 60): rng.randrange(100) for _ in range(rng.randrange(4))}
    seq_id = 0
    for _ in range(rng.randrange(6)):
        run = random_run(rng, seq_id)
        state.runs.append(run)
        seq_id = run.seq_id + run.count
    return state


def random_run(rng: random.Random, seq_id: int) -> RunPlace:
    count = rng.randrange(1, 6)
    kind = rng.choice([JOURNAL, QUEUE_STORE, MSG_STORE])
    is_equal = rng.random() < 0.5
    addresses: array[int] | None = None
    if kind != JOURNAL:
        addresses = array("q", [rng.randrange(1 << 60) for _ in range(count + (kind == QUEUE_STORE))])
    return RunPlace(
        seq_id + rng.randrange(10),
        count,
        kind,
        rng.randrange(1 << 31),
        rng.randrange(1 << 40),
        rng.randrange(1 << 31),
        rng.choice([-1, 0, 1 << 41]),
        rng.randrange(1 << 31) if is_equal else -1,
        None if is_equal else array("i", [rng.randrange(1 << 31) for _ in range(count)]),
        addresses,
    )


def fields_of(run: RunPlace) -> tuple[object, ...]:
    places = (run.seq_id, run.count, run.kind, run.segment, run.pos, run.entry, run.expiry_ms, run.size_each)
    return (*places, run.sizes, run.addresses)


@pytest.mark.parametrize("seed", range(50))
def test_a_state_is_decoded_as_it_was_encoded(seed: int) -> None:
    state = random_state(random.Random(seed))
    twin = decode_state(state.encode())
    for name in QueueState.__slots__:
        if name not in ("live", "runs"):
            assert object.__getattribute__(twin, name) == object.__getattribute__(state, name), name
    assert (twin.live.slots, twin.live.low, twin.live.masks()) == (
        state.live.slots,
        state.live.low,
        state.live.masks(),
    )
    assert [fields_of(run) for run in twin.runs] == [fields_of(run) for run in state.runs]
    assert twin.encode() == state.encode()


def try_to_decode(data: bytes) -> bool:
    try:
        decode_state(data)
    except BadState:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_were_cut_or_lengthened_are_refused(seed: int) -> None:
    data = random_state(random.Random(seed)).encode()
    for size in range(len(data)):
        assert not try_to_decode(data[:size])
    assert not try_to_decode(data + b"\x00")


@pytest.mark.parametrize("seed", range(200))
def test_hostile_bytes_are_read_or_refused_and_nothing_else(seed: int) -> None:
    """No other exception, and no number that asks for all memory."""
    rng = random.Random(seed)
    data = bytearray(random_state(rng).encode())
    outcomes = []
    for _ in range(30):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 4, 30])):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        outcomes.append(try_to_decode(bytes(changed)))
    assert len(outcomes) == 30
    assert not try_to_decode(bytes(rng.randrange(256) for _ in range(rng.randrange(150))))


@pytest.mark.parametrize("slots", [0, 1 << 21, 0xFFFFFFFF])
def test_a_number_of_slots_that_nobody_uses_is_refused(slots: int) -> None:
    data = bytearray(QueueState("5e", "0f", 1, 77).encode())
    at = data.index((77).to_bytes(4, "little"))
    data[at : at + 4] = slots.to_bytes(4, "little")
    assert not try_to_decode(bytes(data))


@pytest.mark.parametrize(("count", "kind"), [(0, JOURNAL), (3, 0), (3, 4), (3, 255)])
def test_a_run_of_nothing_or_nowhere_is_refused(count: int, kind: int) -> None:
    state = QueueState("5e", "0f", 1, 4)
    state.runs = [RunPlace(0, count, kind, 1, 64, 0, -1, 5)]
    assert not try_to_decode(state.encode())


# --- replay ---------------------------------------------------------------------------------------


def published(state: QueueState, seq_id: int, *sizes: int) -> None:
    state.apply_published(seq_id, JOURNAL, 1, 64, 0, -1, array("i", sizes))


def test_what_was_left_out_between_two_publishes_was_transient_and_is_gone() -> None:
    state = QueueState("5e", "0f", 1, 4)
    published(state, 2, 5, 5)
    published(state, 7, 1, 2, 3)
    assert (state.next_seq_id, state.count, state.size_bytes) == (10, 5, 16)
    assert state.live.live_runs(0, 10) == [(2, 2), (7, 3)]
    assert [(run.size_each, run.sizes) for run in state.runs] == [(5, None), (-1, array("i", [1, 2, 3]))]


def test_what_is_gone_leaves_the_accounts_and_then_the_runs() -> None:
    state = QueueState("5e", "0f", 1, 4)
    published(state, 0, *range(10))
    state.apply_requeued([3, 4])
    state.apply_requeued([4])
    state.apply_gone(3, 2, 7)
    state.apply_gone(0, 1, 0)
    assert (state.count, state.size_bytes, state.delivery_counts) == (7, 38, {3: 1, 4: 2})
    state.prune()
    assert state.delivery_counts == {}
    assert [(run.seq_id, run.count, run.entry) for run in state.runs] == [(1, 2, 1), (5, 5, 5)]
    assert sum(run.size_bytes() for run in state.runs) == 38


def test_one_row_that_covers_everything_empties_the_accounts() -> None:
    """A purge says where it began and ended, and not how many there were."""
    state = QueueState("5e", "0f", 1, 4)
    published(state, 3, 5, 5)
    published(state, 9, 5)
    state.apply_gone(3, 7, 15)
    assert (state.count, state.size_bytes, state.live.low) == (0, 0, 10)


def test_a_part_of_a_run_keeps_its_sizes_and_places() -> None:
    addresses = array("q", [100, 110, 130, 160, 200])
    run = RunPlace(10, 4, QUEUE_STORE, 2, 0, 0, -1, -1, array("i", [1, 2, 3, 4]), addresses)
    part = run.part(1, 2)
    assert (part.seq_id, part.count, part.sizes, part.addresses) == (
        11,
        2,
        array("i", [2, 3]),
        array("q", [110, 130, 160]),
    )
    assert part.size_bytes() == 5
    shared = RunPlace(10, 3, MSG_STORE, 2, 0, 0, -1, 7, None, array("q", [5, 6, 7])).part(2, 1)
    assert (shared.addresses, shared.size_bytes()) == (array("q", [7]), 7)
    journal = RunPlace(10, 3, JOURNAL, 2, 64, 5, -1, 7).part(1, 2)
    assert (journal.entry, journal.segment, journal.pos, journal.size_bytes()) == (6, 2, 64, 14)
