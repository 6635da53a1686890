"""Consumers in rows: their numbers, and the names that each segment gives them."""

from __future__ import annotations

from journal_house import FOLDER, House
from tests.disk.sim_files import SimFiles

from penstock.journal.format import rows
from penstock.journal.names import ACTOR_MAX
from penstock.journal.reading.replay import BatchView, replay


def named_in(files: SimFiles) -> list[tuple[int, int, bytes]]:
    """(segment, number, text) of every name of a consumer, in order."""
    found: list[tuple[int, int, bytes]] = []

    def visit(batch: BatchView) -> None:
        for row in batch.rows:
            if row[rows.ROW_KIND] == rows.NAME and row[rows.ROW_ARG] == rows.NAME_CONSUMER:
                assert (row[rows.ROW_QUEUE], row[rows.ROW_COUNT]) == (-1, 1)
                found.append((batch.segment, row[rows.ROW_SEQ], batch.body(row[rows.ROW_ENTRY])))

    end = replay(files, FOLDER, 0, 0, visit)
    assert not end.rotten
    return found


def settled_in(files: SimFiles) -> list[tuple[int, ...]]:
    """(kind, seq, count, bytes, actor, arg) of every settlement."""
    found: list[tuple[int, ...]] = []

    def visit(batch: BatchView) -> None:
        for seq, _, actor, count, _, _, kind, _, arg, number in batch.rows:
            if kind < rows.NAME:
                found.append((kind, seq, count, number, actor, arg))

    replay(files, FOLDER, 0, 0, visit)
    return found


def test_a_consumer_is_named_once_before_its_first_row() -> None:
    house = House()
    actor = house.journal.names.name_actor(b"c")
    house.journal.settle(rows.DELIVERED, 1, 0, 1, 5, actor)
    house.journal.settle(rows.DELIVERED, 1, 7, 1, 5, actor)
    house.commit()
    house.journal.settle(rows.DELIVERED, 2, 3, 1, 5, actor)
    house.commit()
    assert named_in(house.files) == [(1, actor, b"c")]
    assert house.journal.next_lsn == 6


def test_a_consumer_that_gets_nothing_is_not_named() -> None:
    house = House()
    house.journal.names.name_actor(b"idle")
    house.journal.settle(rows.DELIVERED, 1, 0, 1, 5)
    house.journal.settle(rows.DELIVERED, 1, 1, 1, 5, -1)
    house.commit()
    assert named_in(house.files) == []


def test_a_consumer_is_named_again_in_the_next_segment() -> None:
    house = House()
    actor = house.journal.names.name_actor(b"c")
    house.journal.settle(rows.FETCHED, 1, 0, 1, 5, actor)
    house.journal.roll()
    house.commit()
    house.journal.settle(rows.FETCHED, 1, 1, 1, 5, actor)
    house.commit()
    assert named_in(house.files) == [(1, actor, b"c"), (2, actor, b"c")]


def test_a_run_goes_on_only_with_the_same_actor_and_reason() -> None:
    house = House()
    one, two = house.journal.names.name_actor(b"1"), house.journal.names.name_actor(b"2")
    for seq_id, actor, arg in ((0, one, 0), (1, one, 0), (2, two, 0), (3, two, 1), (4, two, 1), (5, -1, 1), (6, 0, 1)):
        house.journal.settle(rows.DEAD_LETTERED, 1, seq_id, 1, 10, actor, arg)
    house.commit()
    assert [row[1:] for row in settled_in(house.files)] == [
        (0, 2, 20, one, 0),
        (2, 1, 10, two, 0),
        (3, 2, 20, two, 1),
        (5, 1, 10, -1, 1),
        (6, 1, 10, 0, 1),
    ]


def test_numbers_grow_and_are_not_given_again() -> None:
    journal = House().journal
    first = journal.names.name_actor(b"1")
    journal.names.forget_actor(first)
    assert first > 0
    assert journal.names.name_actor(b"2") == first + 1


def test_a_forgotten_consumer_is_nobody_in_rows() -> None:
    house = House()
    actor = house.journal.names.name_actor(b"gone")
    house.journal.names.forget_actor(actor)
    house.journal.names.forget_actor(actor)
    house.journal.settle(rows.DELIVERED, 1, 0, 1, 5, actor)
    house.commit()
    assert named_in(house.files) == []
    assert settled_in(house.files) == [(rows.DELIVERED, 0, 1, 5, 0, 0)]


def test_when_there_are_no_numbers_left_consumers_have_none() -> None:
    journal = House().journal
    journal.names._last_actor = ACTOR_MAX - 1
    last = journal.names.name_actor(b"last")
    journal.settle(rows.DELIVERED, 1, 0, 1, 5, last)
    assert last == ACTOR_MAX
    assert journal.names.name_actor(b"one too many") == 0


def test_a_name_may_come_between_rows_of_other_queues() -> None:
    house = House()
    actor = house.journal.names.name_actor(b"c")
    house.publish(0, [b"a", b"b"], 1)
    house.journal.settle(rows.ACKED, 1, 0, 1, 1)
    house.journal.settle(rows.DELIVERED, 2, 0, 1, 1, actor)
    entry = house.publish(2, [b"c"], 1)
    found = house.journal.batches.read(*house.commit())[entry]
    assert found is not None
    assert found[1] == b"c\xce"
    assert [row[0] for row in settled_in(house.files)] == [rows.PUBLISHED, rows.ACKED, rows.DELIVERED, rows.PUBLISHED]
