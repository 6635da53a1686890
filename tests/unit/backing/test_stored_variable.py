"""What the node's store learns of a variable queue: snapshots, files, segments."""

from __future__ import annotations

import pytest
from tests.contract.variable_house import VariableHouse, fill_all_zones, plain_options

from penstock.backing.variable.stored_variable import StoredVariable
from penstock.store.queue.places import JOURNAL, MSG_STORE, QUEUE_STORE
from penstock.store.queue.queue_state import QueueState, decode_state


def snapshot(house: VariableHouse) -> QueueState:
    house.commit()
    return house.stored().snapshot()


def live_of(state: QueueState) -> list[int]:
    runs = state.live.live_runs(0, state.next_seq_id)
    return [seq_id for first, count in runs for seq_id in range(first, first + count)]


def test_a_snapshot_shows_what_is_persistent_and_nothing_else() -> None:
    """Transient messages in RAM, in every zone, pending, evicted: none of them is live in it."""
    house = VariableHouse()
    for number in range(30):
        house.publish(b"%d" % number, persistent=number % 3 == 0)
        house.commit()
    house.fetch(9)
    house.queue.pending.evict(5)
    house.push_alphas(15)
    house.push_betas(10)
    house.publish(b"30", persistent=False)
    state = snapshot(house)
    assert live_of(state) == list(range(0, 30, 3))
    assert (state.count, state.size_bytes) == (10, 16)
    assert state.count == state.live.count(state.next_seq_id)
    assert (state.next_seq_id, state.next_deliver_seq_id) == (31, 9)
    house.check()
    assert house.queue.live.is_live(1), "the queue itself still has it"


def test_runs_and_index_segments_cover_every_live_message() -> None:
    house = VariableHouse(plain_options(embed_below=50))
    fill_all_zones(house)
    house.fetch(3)
    house.publish(b"x" * 100)
    state = snapshot(house)
    in_runs = {seq_id for run in state.runs for seq_id in range(run.seq_id, run.seq_id + run.count)}
    in_index = set(live_of(state)) - in_runs
    assert in_index == set(house.zones()["delta"])
    assert {seq_id // 5 for seq_id in in_index} <= state.index_segments.keys()
    assert {run.kind for run in state.runs} == {JOURNAL, MSG_STORE}
    assert [run.seq_id for run in state.runs] == sorted(run.seq_id for run in state.runs)


@pytest.mark.parametrize("large", [False, True])
def test_index_segments_say_whether_they_lead_to_the_shared_store(large: bool) -> None:
    """Recovery reads those, and only those, to count references."""
    house = VariableHouse(plain_options(embed_below=50))
    house.publish_each(*[b"%d" % number + b"x" * (100 if large else 1) for number in range(20)])
    house.push_alphas(100)
    house.push_betas(100)
    state = snapshot(house)
    assert set(state.index_segments) == {1, 2, 3}
    assert all((shared > 0) == large for shared in state.index_segments.values())


def test_a_snapshot_is_not_changed_by_what_follows_it() -> None:
    house = VariableHouse()
    fill_all_zones(house)
    house.queue.requeue(house.fetch(2))
    state = snapshot(house)
    before = state.encode()
    house.drain()
    house.numbered(21, 30)
    house.push_alphas(100)
    assert state.encode() == before
    assert decode_state(before).delivery_counts == {0: 1, 1: 1}


def synced_paths(stored: StoredVariable) -> list[str]:
    """Flush, and sync what a checkpoint would, a few files at a time; what that was."""
    stored.flush()
    paths: list[str] = []
    while files := stored.files_to_sync(2):
        paths.extend([file.path for file in files])
        for file in files:
            file.fdatasync()
        stored.files_synced()
    return paths


def test_files_go_when_a_checkpoint_without_them_is_published_and_not_before() -> None:
    house = VariableHouse()
    house.numbered(0, 19)
    house.push_alphas(100)
    house.push_betas(100)
    stored = house.stored()
    synced_paths(stored)
    assert len(house.paths("idx")) == 3
    house.drain()
    house.commit()
    assert len(house.paths("idx")) == 3
    assert stored.snapshot().index_segments == {}
    assert synced_paths(stored) == []
    assert len(house.paths("idx")) == 3, "the older checkpoint may be needed"
    stored.synced()
    assert house.paths("idx") == []


def test_files_that_are_wanted_again_by_a_later_snapshot_do_not_go() -> None:
    """Given up between two snapshots: the second one names other files."""
    house = VariableHouse()
    house.numbered(0, 9)
    house.push_alphas(100)
    house.push_betas(100)
    house.fetch(10, ack_required=False)
    house.commit()
    stored = house.stored()
    stored.snapshot()
    house.numbered(10, 19)
    house.push_alphas(100)
    house.push_betas(100)
    stored.flush()
    stored.synced()
    assert [path[-11:] for path in house.paths("idx")] == ["00000003.qi"]
    assert house.numbers() == list(range(10, 20))


def test_flush_names_every_file_with_bytes_that_are_not_synced() -> None:
    house = VariableHouse()
    fill_all_zones(house)
    house.numbered(21, 23, persistent=False)
    house.push_alphas(100)
    house.push_betas(100)
    files = [path for path in synced_paths(house.stored()) if path.endswith((".qi", ".qs"))]
    written = {path for name, path in house.disk.calls if name == "pwrite" and "/queues/" in path}
    assert len(files) == len(written) == len(house.paths("idx")) + len(house.paths("qs"))
    assert synced_paths(house.stored()) == []


def test_moved_messages_are_in_the_snapshot_where_they_are_now() -> None:
    house = VariableHouse()
    fill_all_zones(house)
    house.fetch(2)
    while house.stored().move_home(house.node.journal.segments.position()[0], 5):
        pass
    state = snapshot(house)
    assert {run.kind for run in state.runs} == {QUEUE_STORE}
    assert state.home_below == 21
    slots = house.queue.homes.index.read(10, 18)
    assert [slot[0] for slot in slots if slot is not None] == [QUEUE_STORE] * 8
