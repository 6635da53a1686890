"""Messages that are read one by one in any order: the same as in their run, and one record for each."""

from __future__ import annotations

import random

import pytest
from backing_house import VHOST, Parts

from penstock.backing.zones.msg_status import MsgStatus
from penstock.message import Entry, MessageProps
from penstock.store.queue import places

COUNT = 40
# Persistent, bytes of a payload, where that leads to.
HOMES = [
    (True, 20, places.JOURNAL),
    (False, 20, places.QUEUE_STORE),
    (True, 100, places.MSG_STORE),
    (False, 100, places.MSG_STORE),
]


def payload(number: int, size: int) -> bytes:
    return b"%05d" % number + b"x" * (size - 5)


def on_disk(persistent: bool, size: int) -> Parts:
    """Pending messages that are nowhere in RAM; each has its own expiry, so that some are runs of one."""
    parts = Parts()
    for number in range(0, COUNT, 4):
        parts.publish(payload(number, size), persistent=persistent, props=MessageProps(number))
        rest = [payload(number + index, size) for index in (1, 2, 3)]
        parts.publish(*rest, persistent=persistent, props=MessageProps(number + 1))
    parts.hand_out(COUNT)
    parts.commit()
    assert parts.pending.evict(COUNT) == COUNT
    parts.homes.flush()
    parts.node.message_store(VHOST, False).flush()
    return parts


def preads(parts: Parts) -> int:
    return [name for name, _ in parts.disk.calls].count("pread")


def in_runs(parts: Parts) -> dict[int, Entry | None]:
    """Read as whole runs."""
    found: dict[int, Entry | None] = {}
    for run in parts.pending.runs():
        found.update(zip(range(run.seq_id, run.seq_id + run.count), parts.homes.read(run), strict=True))
    return found


@pytest.mark.parametrize(("persistent", "size", "home"), HOMES)
def test_a_message_read_alone_is_the_one_of_its_run(persistent: bool, size: int, home: int) -> None:
    parts = on_disk(persistent, size)
    assert {run.msg_in_store for run in parts.pending.runs()} == {home}
    whole = in_runs(on_disk(persistent, size))
    assert len(whole) == COUNT
    seq_ids = list(whole)
    random.Random(1).shuffle(seq_ids)
    for seq_id in seq_ids:
        entry = parts.pending.entry(seq_id)
        expected = whole[seq_id]
        assert entry is not None
        assert expected is not None
        assert entry[:2] == expected[:2] == (entry[0], payload(seq_id, size) + b"\xce")
        assert entry[2] is not None
        assert entry[2].expiry_ms == seq_id // 4 * 4 + min(seq_id % 4, 1)


@pytest.mark.parametrize(("persistent", "size", "home"), HOMES)
def test_one_message_costs_the_reads_of_one(persistent: bool, size: int, home: int) -> None:
    parts = on_disk(persistent, size)
    # Backwards: reads in order would decode the batch whole.
    for seq_id in reversed(range(COUNT)):
        # The head of its file, or the view of the batch.
        parts.pending.entry(seq_id)
        before = preads(parts)
        assert parts.pending.entry(seq_id) is not None
        # A record at once; from the journal properties and body.
        assert preads(parts) - before == (2 if home == places.JOURNAL else 1)


def test_a_message_whose_batch_is_gone_is_none() -> None:
    parts = on_disk(True, 20)
    run = parts.pending.runs()[0]
    run.place.segment += 100
    assert parts.pending.entry(run.seq_id) is None


@pytest.mark.parametrize(("persistent", "size", "home"), HOMES)
def test_damage_costs_the_message_and_no_other(persistent: bool, size: int, home: int) -> None:
    parts = on_disk(persistent, size)
    victim = 17
    text = payload(victim, size)
    for path, data in parts.disk.contents().items():
        if text in data:
            parts.disk.flip(path, data.index(text) + 3, 2)
    assert parts.pending.entry(victim) is None
    others = [seq_id for seq_id in range(COUNT) if parts.pending.entry(seq_id) is not None]
    # In the journal all of them are in one block.
    assert others == [] if home == places.JOURNAL else [n for n in range(COUNT) if n != victim]


def test_reads_are_counted() -> None:
    parts = on_disk(True, 20)
    before = parts.homes.reads
    run: MsgStatus = parts.pending.runs()[1]
    parts.homes.read_one(run, 1)
    assert parts.homes.reads == before + 1
