"""The rows that a variable queue writes about who got a message and why it went."""

from __future__ import annotations

import json

import pytest

from penstock.backing import outcomes
from penstock.backing.variable import purge_rows
from penstock.journal import journal
from penstock.journal.format import rows
from penstock.journal.reading.replay import BatchView, replay
from penstock.message import MessageProps
from tests.contract.variable_house import VariableHouse, eager_paging

# kind, first number, how many, payload bytes, actor, arg.
Told = tuple[int, int, int, int, int, int]


def told(house: VariableHouse) -> list[Told]:
    """What the journal says of messages but that they came, once all is written."""
    house.commit()
    found: list[Told] = []

    def visit(batch: BatchView) -> None:
        for seq, _, actor, count, _, _, kind, _, arg, number in batch.rows:
            if rows.PUBLISHED < kind < rows.NAME:
                found.append((kind, seq, count, number, actor, arg))

    replay(house.disk, "journal", 0, 0, visit)
    return found


def names(house: VariableHouse) -> dict[int, str]:
    found: dict[int, str] = {}

    def visit(batch: BatchView) -> None:
        for row in batch.rows:
            if row[rows.ROW_KIND] == rows.NAME and row[rows.ROW_ARG] == rows.NAME_CONSUMER:
                found[row[rows.ROW_SEQ]] = json.loads(batch.body(row[rows.ROW_ENTRY]))["consumer"]

    replay(house.disk, "journal", 0, 0, visit)
    return found


def test_runs_of_different_consumers_are_different_rows() -> None:
    house = VariableHouse()
    queue = house.queue
    one, two = queue.name_actor(b'{"consumer":"one"}'), queue.name_actor(b'{"consumer":"two"}')
    house.publish(b"a", b"bb", b"ccc", b"dddd")
    for actor in (one, one, two):
        queue.fetch(1, 100, True, actor)
    queue.fetch(1, 100, False, two)
    assert told(house) == [
        (rows.DELIVERED, 0, 2, 3, one, 0),
        (rows.DELIVERED, 2, 1, 3, two, 0),
        (rows.FETCHED, 3, 1, 4, two, 0),
    ]
    assert names(house) == {one: "one", two: "two"}


def test_outcomes_and_reasons_are_in_the_rows() -> None:
    house = VariableHouse()
    queue = house.queue
    house.publish(b"a", b"b", b"c", b"d")
    queue.fetch(4, 100, True, outcomes.THE_QUEUE)
    queue.ack([0], outcomes.DEAD_LETTERED, outcomes.REASON_EXPIRED)
    queue.ack([1], outcomes.DEAD_LETTERED, outcomes.REASON_MAXLEN)
    queue.ack([2], outcomes.DEAD_LETTERED, outcomes.REASON_MAXLEN)
    queue.ack([3], outcomes.MOVED)
    assert told(house) == [
        (rows.DELIVERED, 0, 4, 4, outcomes.THE_QUEUE, 0),
        (rows.DEAD_LETTERED, 0, 1, 1, 0, 2),
        (rows.DEAD_LETTERED, 1, 2, 2, 0, 3),
        (rows.MOVED, 3, 1, 1, 0, 0),
    ]


def test_what_leaves_the_head_unread_says_why() -> None:
    house = VariableHouse()
    queue = house.queue
    house.publish(b"a", b"b", b"c")
    house.publish(b"d", expiry_ms=5)
    house.publish(b"e", expiry_ms=6)
    queue.drop(False)
    queue.drop(False, outcomes.PURGED)
    queue.drop(True)

    def expired(props: MessageProps | None) -> bool:
        return props is not None and props.expiry_ms == 5

    queue.dropwhile(expired)
    queue.fetchwhile(lambda props: True, lambda seq_id, entry: None)
    assert told(house) == [
        (rows.DROPPED, 0, 1, 1, 0, 0),
        (rows.PURGED, 1, 1, 1, 0, 0),
        (rows.DELIVERED, 2, 1, 1, outcomes.THE_QUEUE, 0),
        (rows.EXPIRED, 3, 1, 1, 0, outcomes.REASON_EXPIRED),
        (rows.DELIVERED, 4, 1, 1, outcomes.THE_QUEUE, 0),
    ]


def test_a_purge_tells_of_messages_and_not_of_the_numbers_between_them() -> None:
    """The numbers of a queue may be further apart than a row can count."""
    house = VariableHouse()
    queue = house.queue
    house.publish(*[b"%02d" % number for number in range(12)])
    queue.fetch_at(range(3, 9))
    queue.ack(range(3, 9))
    assert queue.purge() == 6
    purged = [row for row in told(house) if row[0] == rows.PURGED]
    assert purged == [(rows.PURGED, 0, 3, 12, 0, 0), (rows.PURGED, 9, 3, 0, 0, 0)]
    house.kill()
    assert (len(house.queue), house.queue.ready_bytes(), house.status("messages_persistent")) == (0, 0, 0)


def test_a_purge_of_more_than_a_row_can_count_is_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge_rows, "PURGED_ROW_MAX", 5)
    monkeypatch.setattr(journal, "ROW_COUNT_MAX", 5)
    house = VariableHouse()
    house.publish(*[b"%02d" % number for number in range(12)])
    assert house.queue.purge() == 12
    purged = [row[:4] for row in told(house) if row[0] == rows.PURGED]
    assert purged == [(rows.PURGED, 0, 5, 24), (rows.PURGED, 5, 5, 0), (rows.PURGED, 10, 2, 0)]
    house.kill()
    assert (len(house.queue), house.queue.ready_bytes(), house.status("messages_persistent")) == (0, 0, 0)


def test_what_the_queue_gives_and_gets_back_is_in_rows_of_its_own() -> None:
    house = VariableHouse()
    queue = house.queue
    actor = queue.name_actor(b'{"consumer":"c"}')
    house.publish(b"a", b"bb", b"ccc")
    house.publish(b"light", persistent=False)
    queue.fetch(4, 100, True, outcomes.THE_QUEUE)
    queue.fetch(4, 100, True, outcomes.THE_QUEUE)
    queue.note_given([1, 2, 3, 77], actor)
    queue.note_returned([2])
    queue.ack([2], outcomes.FETCHED, outcomes.REASON_NONE, actor)
    assert told(house) == [
        (rows.DELIVERED, 0, 3, 6, outcomes.THE_QUEUE, 0),
        (rows.GIVEN, 1, 2, 5, actor, 0),
        (rows.RETURNED, 2, 1, 3, 0, 0),
        (rows.FETCHED, 2, 1, 3, actor, 0),
    ]


def test_what_is_given_from_disk_has_its_size() -> None:
    house = VariableHouse(paging=eager_paging())
    queue = house.queue
    house.publish(b"a", b"bb", b"ccc")
    house.commit()
    queue.fetch(1, 100, True, outcomes.THE_QUEUE)
    queue.fetch_at([2, 1], outcomes.THE_QUEUE)
    queue.note_given([1, 2], 0)
    assert told(house)[-1] == (rows.GIVEN, 1, 2, 5, 0, 0)


def test_a_queue_that_is_not_durable_names_nobody() -> None:
    house = VariableHouse(durable=False)
    actor = house.queue.name_actor(b"{}")
    house.publish(b"a")
    house.queue.fetch(1, 1, True, actor)
    house.queue.note_given([0], actor)
    house.queue.note_returned([0])
    assert actor == outcomes.NO_ACTOR
    assert told(house) == []


def test_after_a_crash_names_are_written_again() -> None:
    house = VariableHouse()
    house.publish(b"a")
    house.queue.fetch(1, 1, True, house.queue.name_actor(b'{"consumer":"before"}'))
    house.commit()
    house.kill()
    house.queue.fetch(1, 1, True, house.queue.name_actor(b'{"consumer":"after"}'))
    house.commit()
    found: list[tuple[int, bytes]] = []

    def visit(batch: BatchView) -> None:
        for row in batch.rows:
            if row[rows.ROW_KIND] == rows.NAME and row[rows.ROW_ARG] == rows.NAME_CONSUMER:
                found.append((batch.segment, batch.body(row[rows.ROW_ENTRY])))

    replay(house.disk, "journal", 0, 0, visit)
    assert [text for _, text in found] == [b'{"consumer":"before"}', b'{"consumer":"after"}']
    assert found[0][0] < found[1][0]
