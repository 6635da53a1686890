"""Slots become runs again: neighbours that lie side by side are joined, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from backing_house import SLOTS, Parts

from penstock.backing.zones.delta_reader import DeltaPart, read_delta
from penstock.store.queue import places
from penstock.store.queue.live_map import LiveMap
from penstock.store.queue.places import Slot


def read(
    parts: Parts, stop: int, live: LiveMap | None = None, pending: Sequence[int] = (), threshold: int = 0, seen: int = 0
) -> DeltaPart:
    return read_delta(parts.homes.index, live or LiveMap(SLOTS), pending, 0, stop, threshold, seen)


def runs(part: DeltaPart) -> list[tuple[int, int]]:
    return [(status.seq_id, status.count) for status in part.betas]


def in_journal(
    entry: int, segment: int = 1, pos: int = 64, flags: int = places.PERSISTENT, expiry_ms: int = -1
) -> Slot:
    return (places.JOURNAL, flags, 10 + entry, expiry_ms, segment, pos, entry)


def in_store(number: int, pos: int, size: int = 50) -> Slot:
    return (places.QUEUE_STORE, 0, 7, -1, number, pos, size)


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ([in_journal(0), in_journal(1), in_journal(2)], [(0, 3)]),
        ([in_journal(0), in_journal(2), in_journal(3)], [(0, 1), (1, 2)]),
        ([in_journal(0), in_journal(1, pos=128), in_journal(2, pos=128)], [(0, 1), (1, 2)]),
        ([in_journal(0), in_journal(1, segment=2)], [(0, 1), (1, 1)]),
        ([in_journal(0), in_journal(1, expiry_ms=5), in_journal(2, expiry_ms=5)], [(0, 1), (1, 2)]),
        ([in_journal(0), in_journal(1, flags=places.PERSISTENT | places.DELIVERED)], [(0, 1), (1, 1)]),
        ([in_store(0, 64), in_store(0, 114), in_store(0, 164)], [(0, 3)]),
        ([in_store(0, 64), in_store(0, 165), in_store(0, 215)], [(0, 1), (1, 2)]),
        ([in_store(0, 64), in_store(1, 114)], [(0, 1), (1, 1)]),
        ([places.shared_slot(0, 9, -1, 77), places.shared_slot(0, 8, -1, 5)], [(0, 2)]),
        ([places.shared_slot(0, 9, -1, 77), places.shared_slot(1, 9, -1, 78)], [(0, 1), (1, 1)]),
        ([in_journal(0), in_store(0, 64)], [(0, 1), (1, 1)]),
    ],
)
def test_what_lies_side_by_side_is_one_run(slots: list[Slot], expected: list[tuple[int, int]]) -> None:
    parts = Parts()
    parts.homes.index.write(0, slots)
    part = read(parts, len(slots))
    assert runs(part) == expected
    assert [slot for status in part.betas for slot in status.slots()] == slots
    assert all(status.index_on_disk and status.msg is None for status in part.betas)


@pytest.mark.parametrize("seed", range(20))
def test_any_slots_come_back_as_they_were(seed: int) -> None:
    rng = random.Random(seed)
    parts = Parts()
    slots: list[Slot] = []
    for number in range(40):
        kind = rng.randrange(3)
        flags = rng.choice([places.PERSISTENT, places.PERSISTENT, 0])
        if kind == 0:
            slots.append(in_journal(number, pos=rng.choice([64, 64, 640]), flags=flags))
        elif kind == 1:
            slots.append(in_store(number // SLOTS, 64 + 50 * number))
        else:
            slots.append(places.shared_slot(flags, number, rng.choice([-1, 3]), rng.randrange(1 << 50)))
    parts.homes.index.write(0, slots)
    part = read(parts, 40)
    assert [slot for status in part.betas for slot in status.slots()] == slots
    assert sum(status.size_bytes for status in part.betas) == sum(slot[2] for slot in slots)
    assert (part.missing, part.outdated) == ([], [])


def test_what_is_gone_or_pending_is_left_out_and_cuts_a_run() -> None:
    parts = Parts()
    parts.homes.index.write(0, [in_journal(number) for number in range(12)])
    live = LiveMap(SLOTS)
    for seq_id in (0, 5):
        live.remove(seq_id, 1)
    assert runs(read(parts, 12, live, pending=[3, 8, 9])) == [(1, 2), (4, 1), (6, 2), (10, 2)]


def test_nothing_is_read_where_nothing_lives() -> None:
    parts = Parts()
    live = LiveMap(SLOTS)
    live.remove(0, 12)
    before = len(parts.disk.calls)
    part = read(parts, 12, live)
    assert (part.betas, part.missing, part.outdated, len(parts.disk.calls)) == ([], [], [], before)


def test_a_slot_that_was_never_written_is_missing() -> None:
    parts = Parts()
    parts.homes.index.write(0, [in_journal(0)])
    parts.homes.index.write(2, [in_journal(2)])
    part = read(parts, 6)
    assert (runs(part), part.missing) == ([(0, 1), (2, 1)], [1, 3, 4, 5])


def test_a_file_whose_head_is_damaged_has_no_slots() -> None:
    parts = Parts()
    parts.homes.index.write(0, [in_journal(number) for number in range(12)])
    parts.homes.index.close()
    parts.disk.flip(f"{parts.homes.folder}/idx/00000001.qi", 2, 1)
    assert read_delta(parts.homes.index, LiveMap(SLOTS), [], 4, 8, 0, 0).missing == [4, 5, 6, 7]


def test_transient_messages_of_an_earlier_life_are_outdated_and_those_of_this_one_are_not() -> None:
    parts = Parts()
    parts.homes.index.write(0, [in_journal(number, flags=number % 2) for number in range(8)])
    part = read(parts, 8, threshold=4)
    assert part.outdated == [0, 2]
    assert runs(part) == [(1, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]


def test_what_was_handed_out_before_is_marked_and_cut_off_from_what_was_not() -> None:
    parts = Parts()
    slots = [in_journal(number) for number in range(6)]
    slots[4] = in_journal(4, flags=places.PERSISTENT | places.DELIVERED)
    parts.homes.index.write(0, slots)
    part = read(parts, 6, seen=2)
    found = [(status.seq_id, status.count, status.is_delivered) for status in part.betas]
    assert found == [(0, 2, True), (2, 2, False), (4, 1, True), (5, 1, False)]
