"""Moves in the index that no checkpoint knows: they do not count, and do not stand in the way of later ones."""

from __future__ import annotations

import pytest
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.store.queue.places import JOURNAL, PERSISTENT, QUEUE_STORE, Slot
from penstock.store.queue.queue_index import QueueIndex
from penstock.store.shared.handles import HandleCache

SLOTS = 4


def first(seq_id: int) -> Slot:
    return (JOURNAL, PERSISTENT, seq_id, -1, 1, 64, seq_id)


def moved(seq_id: int, life: int = 1) -> Slot:
    return (QUEUE_STORE, PERSISTENT, seq_id, -1, seq_id // SLOTS, 100 * life, 50)


def index_on(files: SimFiles, from_seq_id: int | None = None) -> QueueIndex:
    index = QueueIndex(files, "q/idx", HandleCache(files), SLOTS)
    if from_seq_id is not None:
        index.distrust_moves(from_seq_id)
    return index


@pytest.fixture
def files() -> SimFiles:
    """Twelve messages, all of them moved."""
    files = SimFiles(FaultPlan(Survival.NOTHING))
    index = index_on(files)
    index.write(0, [first(seq_id) for seq_id in range(12)])
    index.move(0, [moved(seq_id) for seq_id in range(12)])
    index.close()
    return files


@pytest.mark.parametrize("border", [0, 1, 3, 4, 5, 8, 11, 12, 100])
def test_moves_count_below_the_border_only(files: SimFiles, border: int) -> None:
    expected = [moved(seq_id) if seq_id < border else first(seq_id) for seq_id in range(12)]
    index = index_on(files, border)
    assert index.read(0, 12) == expected
    assert [index.read(seq_id, seq_id + 1)[0] for seq_id in range(12)] == expected
    assert index.read(2, 10) == expected[2:10]


def test_looking_writes_nothing(files: SimFiles) -> None:
    before = files.contents()
    index = index_on(files, 5)
    index.read(0, 12)
    index.close()
    assert files.contents() == before
    assert index_on(files).read(0, 12) == [moved(seq_id) for seq_id in range(12)]


def test_a_later_move_counts_and_takes_its_neighbours_back(files: SimFiles) -> None:
    index = index_on(files, 2)
    index.move(6, [moved(6, life=2)])
    expected = [moved(0), moved(1), *map(first, range(2, 6)), moved(6, life=2), *map(first, range(7, 12))]
    assert index.read(0, 12) == expected
    index.close()
    # The file of 4 to 7 says so by itself now; the others still have to be told.
    assert index_on(files).read(4, 8) == [first(4), first(5), moved(6, life=2), first(7)]
    assert index_on(files, 2).read(8, 12) == [first(seq_id) for seq_id in range(8, 12)]


def test_a_slot_that_is_written_again_is_not_hidden(files: SimFiles) -> None:
    index = index_on(files, 2)
    index.write(0, [first(77)])
    index.write(5, [first(78)])
    assert index.read(0, 6) == [first(77), moved(1), first(2), first(3), first(4), first(78)]


def test_what_was_moved_in_this_life_outlasts_the_closing_of_its_file(files: SimFiles) -> None:
    index = index_on(files, 0)
    index.move(4, [moved(4, life=2)])
    index.close()
    assert index.read(4, 6) == [moved(4, life=2), first(5)]
    index.delete_segment(1)
    index.write(4, [first(4)])
    index.move(4, [moved(4, life=3)])
    assert index.read(4, 6) == [moved(4, life=3), None]
