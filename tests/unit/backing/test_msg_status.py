"""Runs: splitting them anywhere, in every place and with every kind of sizes, keeps each message what it was."""

from __future__ import annotations

from array import array

import pytest

from penstock.backing.zones.msg_status import MsgStatus, readable_parts, status_at
from penstock.journal.place import BatchPlace
from penstock.message import Entry, Envelope, MessageProps
from penstock.store.queue import places

ENVELOPE = Envelope("", "key", b"")
PROPS = MessageProps(99)


def entries_of(sizes: list[int]) -> list[Entry]:
    return [(ENVELOPE, b"x" * size + b"\xce", PROPS) for size in sizes]


def run_in(kind: int, sizes: list[int], in_ram: bool, first: int = 100) -> MsgStatus:
    """A run of messages of these sizes whose bodies are in RAM, on disk, or both."""
    equal = sizes[0] if len(set(sizes)) == 1 else -1
    msg = entries_of(sizes) if in_ram else None
    status = MsgStatus(first, len(sizes), msg, PROPS, equal, sum(sizes), places.QUEUE_STORE)
    status.msg_in_store = kind
    status.place = BatchPlace(7, 64)
    status.msg_id = 1000
    status.is_persistent = True
    if equal < 0 and not in_ram:
        status.sizes = array("i", sizes)
    if kind == places.JOURNAL:
        status.entry = 50
    elif kind == places.MSG_STORE:
        status.addresses = array("q", [10_000 + number for number in range(len(sizes))])
    elif kind == places.QUEUE_STORE:
        status.addresses = array("q", [64 + 100 * number for number in range(len(sizes) + 1)])
    return status


def seen(status: MsgStatus) -> list[tuple[int, int, int, object]]:
    """Of each message: seq_id, LSN, size, and its place."""
    where: list[object] = [None] * status.count
    if status.msg_in_store != places.MEMORY:
        where = [slot[4:] for slot in status.slots()]
    return [
        (status.seq_id + index, status.msg_id + index, status.size_of(index), where[index])
        for index in range(status.count)
    ]


CASES = [
    (kind, sizes, in_ram)
    for kind in (places.MEMORY, places.JOURNAL, places.QUEUE_STORE, places.MSG_STORE)
    for sizes in ([5, 5, 5, 5, 5, 5], [1, 2, 0, 4, 100, 6])
    for in_ram in (True, False)
    if in_ram or kind != places.MEMORY
]


@pytest.mark.parametrize(("kind", "sizes", "in_ram"), CASES)
@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("way", ["front", "rear", "part"])
def test_both_parts_of_a_split_run_are_what_they_were(
    kind: int, sizes: list[int], in_ram: bool, count: int, way: str
) -> None:
    whole = run_in(kind, sizes, in_ram)
    expected = seen(whole)
    if way == "front":
        parts = [whole.split_front(count), whole]
    elif way == "rear":
        parts = [whole.split_rear(6 - count), whole]
        parts.reverse()
    else:
        parts = [whole.part_for(100, count), whole.part_for(100 + count, 6 - count)]
        assert seen(whole) == expected
    assert seen(parts[0]) + seen(parts[1]) == expected
    for part, start in zip(parts, (0, count), strict=True):
        assert part.size_bytes == sum(sizes[start : start + part.count])
        assert (part.expiry_ms(), part.is_persistent) == (99, True)
        assert part.last_seq_id() == part.seq_id + part.count - 1
        if in_ram:
            assert [len(entry[1]) - 1 for entry in part.entries()] == sizes[start : start + part.count]
        for taken in range(1, part.count + 1):
            assert part.size_of_first(taken) == sum(sizes[start : start + taken])


@pytest.mark.parametrize(("kind", "sizes", "in_ram"), CASES)
def test_a_run_that_is_taken_apart_from_both_ends_stays_whole(kind: int, sizes: list[int], in_ram: bool) -> None:
    whole = run_in(kind, sizes, in_ram)
    expected = seen(whole)
    first, last = whole.split_front(1), whole.split_rear(1)
    second, fifth = whole.split_front(1), whole.split_rear(1)
    assert [piece for part in (first, second, whole, fifth, last) for piece in seen(part)] == expected


@pytest.mark.parametrize(("kind", "sizes"), [(kind, sizes) for kind, sizes, in_ram in CASES if in_ram and kind])
def test_forgetting_bodies_forgets_no_size(kind: int, sizes: list[int]) -> None:
    status = run_in(kind, sizes, in_ram=True)
    status.split_front(2)
    expected = seen(status)
    status.forget_bodies()
    assert status.msg is None
    assert seen(status) == expected
    status.forget_bodies()
    assert status.size_bytes == sum(sizes[2:])


def test_bodies_that_are_nowhere_else_are_not_forgotten() -> None:
    in_memory, gathering = run_in(places.MEMORY, [1], True), run_in(places.JOURNAL, [1], True)
    gathering.place = BatchPlace()
    for status in (in_memory, gathering):
        assert not status.can_forget_bodies()
        with pytest.raises(AssertionError):
            status.forget_bodies()
    assert in_memory.is_written()
    assert not gathering.is_written()


@pytest.mark.parametrize("in_ram", [True, False])
@pytest.mark.parametrize(
    ("sizes", "count_max", "bytes_max", "expected"),
    [
        ([5, 5, 5], 10, 15, 3),
        ([5, 5, 5], 10, 14, 2),
        ([5, 5, 5], 2, 100, 2),
        ([5, 5, 5], 10, 0, 1),
        ([0, 0, 0], 10, 0, 3),
        ([1, 2, 3], 10, 5, 2),
        ([1, 2, 3], 10, 6, 3),
        ([9, 0, 0], 10, 5, 1),
        ([1, 9, 1], 10, 9, 1),
        ([1, 9, 1], 1, 0, 1),
    ],
)
def test_as_many_as_fit_and_at_least_one(
    sizes: list[int], count_max: int, bytes_max: int, expected: int, in_ram: bool
) -> None:
    assert run_in(places.JOURNAL, sizes, in_ram).count_within(count_max, bytes_max) == expected


@pytest.mark.parametrize(("kind", "sizes", "in_ram"), [case for case in CASES if case[0]])
def test_a_checkpoint_brings_back_the_same_beta(kind: int, sizes: list[int], in_ram: bool) -> None:
    status = run_in(kind, sizes, in_ram)
    status.split_front(1)
    twin = status_at(status.run_place(), True, False)
    twin.msg_id = status.msg_id
    assert seen(twin) == seen(status)
    assert (twin.msg, twin.size_bytes, twin.expiry_ms(), twin.index_on_disk) == (None, status.size_bytes, 99, False)


def test_slots_carry_the_flags_and_the_expiry() -> None:
    status = run_in(places.JOURNAL, [1, 2], False)
    assert [slot[:4] for slot in status.slots()] == [(places.JOURNAL, places.PERSISTENT, size, 99) for size in (1, 2)]
    status.is_persistent, status.is_delivered, status.msg_props = False, True, None
    assert [slot[1:4] for slot in status.slots()] == [(places.DELIVERED, size, -1) for size in (1, 2)]


@pytest.mark.parametrize("damaged", [[], [0], [5], [2, 3], [0, 2, 4], list(range(6))])
@pytest.mark.parametrize("given", [6, 4])
def test_what_could_be_read_is_cut_out_of_what_could_not(damaged: list[int], given: int) -> None:
    status = run_in(places.QUEUE_STORE, [1, 2, 0, 4, 100, 6], False)
    expected = seen(status)
    entries = entries_of([1, 2, 0, 4, 100, 6])
    found = [None if index in damaged else entry for index, entry in enumerate(entries)][:given]
    parts = readable_parts(status, found)
    assert [piece for part, _ in parts for piece in seen(part)] == expected
    for part, read in parts:
        bad = [index in damaged or index >= given for index in range(part.seq_id - 100, part.seq_id - 100 + part.count)]
        assert set(bad) == {read is None}
        if read is not None:
            assert [len(entry[1]) - 1 for entry in read] == [part.size_of(index) for index in range(part.count)]
