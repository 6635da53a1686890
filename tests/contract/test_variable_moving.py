"""Bodies leave old journal segments, and the segments go; whatever happens in between, no message does."""

from __future__ import annotations

import pytest

from penstock.backing.variable.paging import PagingOptions
from penstock.store.node.options import StoreOptions
from penstock.store.queue.places import JOURNAL
from penstock.store.queue.stored_queue import NO_SEGMENT
from tests.contract.variable_house import QUEUE, VariableHouse, fill_all_zones, no_paging, plain_options
from tests.disk.sim_files import Survival


def many_segments(embed_below: int = 200) -> StoreOptions:
    """Every batch begins a segment, and history is not kept."""
    options = plain_options(segment_bytes=300, retention_bytes=0, embed_below=embed_below)
    options.journal.batch_bytes_max = 100
    return options


def new_house(paging: PagingOptions | None = None, survival: Survival = Survival.NOTHING) -> VariableHouse:
    return VariableHouse(many_segments(), paging or no_paging(), survival=survival)


def move_all(house: VariableHouse, count_max: int = 3) -> None:
    while house.stored().move_home(house.node.journal.segments.position()[0], count_max):
        house.check()
    house.check()


def end_turns(house: VariableHouse, count: int) -> None:
    for _ in range(count):
        house.node.end_turn()
        house.clock.advance(0.001)


def remove_history(house: VariableHouse) -> None:
    """As a node does: checkpoints, and moving in the turns between them."""
    for _ in range(100):
        house.checkpoint()
        end_turns(house, 3)
        if len(house.node.journal.segments.numbers()) <= 2:
            break


def places_of(house: VariableHouse) -> set[int]:
    zones = house.queue.zones
    runs = [*zones.q4, *zones.q3, *zones.q2, *zones.q1, *house.queue.pending.runs()]
    return {run.msg_in_store for run in runs}


@pytest.mark.parametrize("count_max", [1, 3, 1000])
def test_every_body_leaves_the_journal_wherever_it_stands(count_max: int) -> None:
    house = new_house()
    fill_all_zones(house)
    house.fetch(8)
    house.queue.pending.evict(4)
    before = house.zones()
    move_all(house, count_max)
    assert JOURNAL not in places_of(house)
    assert house.stored().journal_segment_needed() == NO_SEGMENT
    assert house.zones() == before
    assert house.queue.requeue(range(8)) == 8
    assert house.numbers() == list(range(21))


@pytest.mark.parametrize("end", ["restart", "crash", "kill"])
def test_messages_that_moved_are_there_after_a_checkpoint_and_an_end(end: str) -> None:
    house = new_house()
    fill_all_zones(house)
    house.fetch(8)
    move_all(house)
    house.checkpoint()
    getattr(house, end)()
    assert len(house.queue) == 21
    house.check()
    assert house.numbers() == list(range(21))
    assert house.queue.lost_count == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_move_that_no_checkpoint_knows_is_forgotten_by_a_crash_and_the_journal_has_the_body(seed: int) -> None:
    """The index may know of the move while the copy never reached the disk."""
    house = new_house(survival=Survival.ANYTHING)
    house.numbered(0, 29)
    house.push_alphas(100)
    house.push_betas(100)
    house.checkpoint()
    move_all(house)
    # What is written here is not synced.
    house.queue.homes.flush()
    house.queue.homes.synced()
    house.crash(seed)
    assert [int(payload) for _, payload, _ in house.folded()] == list(range(30))
    move_all(house)
    house.checkpoint()
    house.crash(seed)
    assert house.numbers() == list(range(30))
    assert house.queue.lost_count == 0


def test_a_move_is_forgotten_by_a_kill_when_its_copy_was_still_in_a_buffer() -> None:
    house = new_house()
    house.numbered(0, 29)
    house.push_alphas(100)
    house.push_betas(100)
    house.checkpoint()
    move_all(house)
    # Reading the delta writes the index, and not the store.
    house.zones()
    house.kill()
    assert house.numbers() == list(range(30))
    assert house.queue.lost_count == 0


def test_moves_that_a_checkpoint_knows_hold_through_any_number_of_lives() -> None:
    """Also when the checkpoint that a crash falls back on is one of a later life."""
    house = new_house()
    house.numbered(0, 29)
    house.push_alphas(100)
    house.push_betas(100)
    move_all(house)
    remove_history(house)
    for _ in range(2):
        house.restart()
        house.checkpoint()
        house.crash()
        house.kill()
    assert house.numbers() == list(range(30))
    assert house.queue.lost_count == 0


def test_what_is_needed_of_the_journal_only_moves_forward() -> None:
    house = new_house()
    needed = 0
    for number in range(40):
        house.numbered(number, number)
        if number % 3 == 0:
            house.push_alphas(2)
            house.push_betas(2)
        if number % 4 == 3:
            house.fetch(2)
        if number % 7 == 6:
            house.queue.ack(house.queue.pending.seq_ids()[1:])
        if number % 10 == 9:
            house.stored().move_home(house.stored().journal_segment_needed(), 2)
        if number % 15 == 14:
            house.checkpoint()
        now = house.stored().journal_segment_needed()
        assert needed <= now < NO_SEGMENT
        in_journal = [
            run.place.segment
            for run in [*house.queue.zones.q4, *house.queue.zones.q3, *house.queue.zones.q2, *house.queue.zones.q1]
            if run.msg_in_store == JOURNAL
        ]
        assert now <= min(in_journal, default=NO_SEGMENT)
        needed = now


def test_a_queue_without_messages_needs_no_segment_and_the_next_message_needs_its_own() -> None:
    house = new_house()
    assert house.stored().journal_segment_needed() == NO_SEGMENT
    house.numbered(0, 3)
    house.drain()
    house.commit()
    assert house.stored().journal_segment_needed() == NO_SEGMENT
    segment = house.node.journal.segments.position()[0]
    house.numbered(4, 4)
    assert house.stored().journal_segment_needed() == segment


def test_without_retention_old_segments_go_after_two_checkpoints_and_their_messages_stay() -> None:
    house = new_house()
    fill_all_zones(house)
    house.fetch(5)
    assert len(house.node.journal.segments.numbers()) > 20
    oldest = house.node.journal.segments.numbers()[0]
    move_all(house)
    house.checkpoint()
    assert oldest in house.node.journal.segments.numbers(), "the older checkpoint may still need it"
    house.checkpoint()
    house.checkpoint()
    assert len(house.node.journal.segments.numbers()) <= 2
    assert house.queue.requeue(range(5)) == 5
    house.crash()
    assert house.numbers() == list(range(21))


def test_a_node_moves_and_removes_by_itself() -> None:
    house = new_house()
    fill_all_zones(house)
    house.fetch(5)
    remove_history(house)
    assert len(house.node.journal.segments.numbers()) <= 2
    house.check()
    house.crash()
    assert house.numbers() == list(range(21))
    assert house.queue.lost_count == 0


def test_after_a_start_a_segment_is_not_taken_for_the_last_one_that_the_delta_is_in() -> None:
    """What the index leads to is not known segment by segment. Moving out of one says nothing about the next."""
    house = new_house()
    house.numbered(0, 39)
    house.push_alphas(100)
    house.push_betas(100)
    house.restart()
    house.numbered(40, 44)
    segments = house.node.journal.segments.numbers()
    for segment in segments[:20]:
        while house.stored().move_home(segment, 3):
            pass
        assert segment < house.stored().journal_segment_needed() <= segment + 1
    house.check()
    remove_history(house)
    assert len(house.node.journal.segments.numbers()) <= 2
    assert house.numbers() == list(range(45))
    assert house.queue.lost_count == 0


def test_after_a_start_without_anything_in_the_journal_new_messages_hold_their_segments() -> None:
    """Only large bodies were left: their index leads to the shared store."""
    house = VariableHouse(many_segments(embed_below=50))
    for number in range(20):
        house.publish(b"%d" % number + b" " * 60)
        house.commit()
    house.push_alphas(100)
    house.push_betas(100)
    house.restart()
    assert house.stored().journal_segment_needed() == NO_SEGMENT
    segment = house.node.journal.segments.position()[0]
    house.numbered(20, 29)
    assert house.stored().journal_segment_needed() == segment
    house.push_alphas(100)
    remove_history(house)
    assert house.numbers() == list(range(30))
    assert house.queue.lost_count == 0


def test_a_message_that_cannot_be_read_does_not_keep_its_neighbours_from_moving() -> None:
    bodies = [b"%03d" % number + b"." * 100 for number in range(100)]
    house = VariableHouse(plain_options(segment_bytes=20_000, retention_bytes=0))
    house.node.options.journal.batch_bytes_max = 100
    house.publish(*bodies)
    house.commit()
    house.push_alphas(100)
    house.node.journal.roll()
    house.numbered(0, 1)
    segment = house.node.journal.segments.numbers()[0]
    path = f"journal/{segment:08d}.pnj"
    house.disk.flip(path, house.disk.contents()[path].index(bodies[99]), 0)
    while house.stored().move_home(segment, 7):
        pass
    house.check()
    for _ in range(3):
        house.checkpoint()
        end_turns(house, 3)
    got = house.drain()
    # Checksums cover 4 KiB: a few neighbours are damaged with it.
    assert got[:50] == bodies[:50]
    assert got[-2:] == [b"0", b"1"]
    assert len(got) + house.queue.lost_count == 102
    assert house.queue.lost_count < 50


def test_a_transient_message_that_stays_does_not_hold_a_journal_segment_for_ever() -> None:
    house = new_house()
    house.publish(b"stays", persistent=False)
    house.fetch(1)
    for number in range(30):
        house.numbered(number, number)
        house.fetch(1, ack_required=False)
    house.numbered(30, 30)
    remove_history(house)
    assert len(house.node.journal.segments.numbers()) <= 2
    assert house.numbers() == [30]
    assert house.queue.ack([0]) == 1


def test_files_of_a_queue_go_with_it() -> None:
    house = new_house()
    fill_all_zones(house)
    move_all(house)
    house.checkpoint()
    assert house.paths("idx")
    assert house.paths("qs")
    house.queue.delete_and_terminate()
    house.commit()
    assert [path for path in house.disk.contents() if f"/queues/{QUEUE}/" in path] == []
