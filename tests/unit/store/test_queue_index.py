"""The queue index: slots that say where messages are, over several files, with damage that is noticed."""

from __future__ import annotations

import errno
import random
from zlib import crc32

import pytest
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.store.queue.places import JOURNAL, MSG_STORE, PERSISTENT, QUEUE_STORE, Slot, StoreError
from penstock.store.queue.queue_index import BUFFER_BYTES_MAX, SLOT_BYTES, QueueIndex
from penstock.store.queue.segment_files import FILE_HEAD_BYTES
from penstock.store.shared.handles import HandleCache

SLOTS = 4
FOLDER = "q/idx"
FIRST = f"{FOLDER}/00000000.qi"
SECOND = f"{FOLDER}/00000001.qi"


def make_index(files: SimFiles, limit: int = 512) -> QueueIndex:
    return QueueIndex(files, FOLDER, HandleCache(files, limit), SLOTS)


def slots_of(first: int, count: int, kind: int = JOURNAL) -> list[Slot]:
    """Different for each seq_id and kind."""
    return [
        (kind, PERSISTENT, seq_id * 10, seq_id * 1000, seq_id + 1, seq_id << 12, seq_id)
        for seq_id in range(first, first + count)
    ]


def sync(index: QueueIndex) -> None:
    index.flush()
    index.segments.begin_sync()
    for file in index.segments.files_to_sync(1000):
        file.fdatasync()
    index.segments.synced()


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.mark.parametrize("count", [1, SLOTS - 1, SLOTS, SLOTS + 1, 2 * SLOTS, 3 * SLOTS + 1])
@pytest.mark.parametrize("start", [0, 1, SLOTS - 1, SLOTS])
@pytest.mark.parametrize("flushed", [True, False])
def test_slots_come_back_over_any_boundary(files: SimFiles, start: int, count: int, flushed: bool) -> None:
    index = make_index(files)
    index.write(start, slots_of(start, count))
    if flushed:
        index.flush()
    expected = [None] * start + slots_of(start, count) + [None, None]
    assert index.read(0, start + count + 2) == expected
    assert index.read(start, start) == []
    index.flush()
    later = make_index(files.kill() if flushed else files)
    assert later.read(0, start + count + 2) == expected
    assert later.damaged == []


@pytest.mark.parametrize("seed", range(20))
def test_slots_of_single_messages_are_those_of_their_stretch(seed: int) -> None:
    """Whatever of them waits, was written, was moved, is damaged or was never there."""
    rng = random.Random(seed)
    files = SimFiles()
    index = make_index(files)
    for _ in range(12):
        first = rng.randrange(3 * SLOTS)
        slots = slots_of(first, rng.randrange(1, 6))
        if rng.random() < 0.3:
            index.move(first, [(QUEUE_STORE, *slot[1:]) for slot in slots])
        else:
            index.write(first, slots)
        if rng.random() < 0.4:
            index.flush()
        if rng.random() < 0.2 and files.exists(FIRST):
            files.flip(FIRST, rng.randrange(FILE_HEAD_BYTES, files.open(FIRST).size()), rng.randrange(8))
    for number in range(5):
        stretch = range(number * SLOTS, (number + 1) * SLOTS)
        wanted = sorted(rng.sample(stretch, rng.randint(1, SLOTS)))
        whole = index.read(stretch.start, stretch.stop)
        assert index.read_each(wanted) == [whole[seq_id - stretch.start] for seq_id in wanted]


def test_what_waits_is_read_without_being_written(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 3))
    index.flush()
    files.plan.fail(errno.ENOSPC, "pwrite", forever=True)
    index.write(2, slots_of(12, 6)[:4])
    index.move(1, slots_of(21, 1))
    assert index.read(0, 8) == [*slots_of(0, 1), *slots_of(21, 1), *slots_of(12, 4), None, None]
    assert index.read(3, 5) == slots_of(13, 2)


def test_all_fields_are_kept_up_to_their_limits(files: SimFiles) -> None:
    index = make_index(files)
    largest = 2**32 - 1
    slots: list[Slot] = [
        (QUEUE_STORE, 3, largest, 2**62, largest, largest, largest),
        (MSG_STORE, 0, 0, -1, 0, 0, 0),
        (JOURNAL, 1, 0, 0, 0, 0, 0),
    ]
    index.write(2**40 + 1, slots)
    index.flush()
    assert index.read(2**40, 2**40 + 4) == [None, *slots]


def test_one_file_has_exactly_its_slots(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS))
    index.flush()
    assert index.segments.numbers() == [0]
    index.write(SLOTS, slots_of(SLOTS, 1))
    index.flush()
    assert index.segments.numbers() == [0, 1]


def test_adjacent_slots_are_written_with_one_call(files: SimFiles) -> None:
    index = QueueIndex(files, FOLDER, HandleCache(files), 100)
    index.write(0, slots_of(0, 1))
    index.flush()
    before = files.calls.count(("pwrite", FIRST))
    for seq_id in range(1, 51):
        index.write(seq_id, slots_of(seq_id, 1))
    assert files.calls.count(("pwrite", FIRST)) == before
    index.flush()
    index.flush()
    assert files.calls.count(("pwrite", FIRST)) == before + 1


def test_slots_that_are_not_adjacent_do_not_touch_those_between(files: SimFiles) -> None:
    index = make_index(files)
    index.write(1, slots_of(1, 1))
    index.flush()
    index.write(3, slots_of(3, 1))
    index.write(0, slots_of(0, 1))
    assert index.read(0, 4) == [*slots_of(0, 2), None, *slots_of(3, 1)]


def test_the_buffer_is_written_when_it_is_full(files: SimFiles) -> None:
    index = QueueIndex(files, FOLDER, HandleCache(files))
    full = BUFFER_BYTES_MAX // SLOT_BYTES
    index.write(0, slots_of(0, full))
    assert index.segments.numbers() == []
    index.write(full, slots_of(full, 1))
    assert files.open(FIRST).size() == FILE_HEAD_BYTES + BUFFER_BYTES_MAX
    assert index.read(0, full + 1) == slots_of(0, full + 1)


def test_a_moved_slot_takes_the_place_of_the_first_one(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 6))
    index.move(2, slots_of(2, 3, QUEUE_STORE))
    expected = slots_of(0, 2) + slots_of(2, 3, QUEUE_STORE) + slots_of(5, 1)
    assert index.read(0, 6) == expected
    index.flush()
    assert make_index(files.kill()).read(0, 6) == expected


def test_a_move_does_not_overwrite_the_first_slot(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS))
    index.flush()
    before = files.contents()[FIRST]
    index.move(0, slots_of(0, SLOTS, QUEUE_STORE))
    index.flush()
    assert files.contents()[FIRST][: len(before)] == before


def test_a_file_that_is_not_there_has_no_slots(files: SimFiles) -> None:
    index = make_index(files)
    assert index.read(0, 10) == [None] * 10
    assert index.damaged == []
    assert files.contents() == {}


def test_zeros_are_no_slot_even_where_their_checksum_would_be_right(files: SimFiles) -> None:
    # The seq_id from which the CRC of 28 zeros comes to 0, as the CRC field of an empty slot says.
    seq_id = 0xF907FAA3
    assert crc32(bytes(28), seq_id) == 0
    index = make_index(files)
    index.write(seq_id - 1, slots_of(1, 1))
    index.write(seq_id + 1, slots_of(3, 1))
    assert index.read(seq_id, seq_id + 1) == [None]
    assert index.damaged == []


# --- damage -------------------------------------------------------------------------------------------


def test_no_flipped_bit_makes_a_wrong_slot_and_each_one_is_named(files: SimFiles) -> None:
    index = make_index(files)
    index.write(SLOTS, slots_of(SLOTS, 3))
    index.move(SLOTS + 1, slots_of(SLOTS + 1, 1, QUEUE_STORE))
    sync(index)
    good = index.read(SLOTS, 2 * SLOTS)
    for position in range(files.open(SECOND).size() * 8):
        machine = files.copy()
        machine.flip(SECOND, position // 8, position % 8)
        damaged = make_index(machine)
        where = position // 8 - FILE_HEAD_BYTES
        if where < 0:
            with pytest.raises(StoreError, match=r"q/idx/00000001\.qi"):
                damaged.read(SLOTS, 2 * SLOTS)
            continue
        area, slot = divmod(where // SLOT_BYTES, SLOTS)
        found = damaged.read(SLOTS, 2 * SLOTS)
        expected = list(good)
        if area == 0 and slot != 1:
            expected[slot] = None
        elif area == 1 and slot == 1:
            expected[slot] = slots_of(SLOTS + 1, 1)[0]
        assert found == expected
        assert damaged.damaged == ([SLOTS + slot] if area == 0 and slot != 1 else [])
        assert damaged.damaged_moves == ([SLOTS + slot] if area == 1 else [])


def test_a_write_that_is_torn_at_any_byte_leaves_whole_slots_or_none() -> None:
    for torn_at in range(3 * SLOT_BYTES + 1):
        files = SimFiles(FaultPlan(Survival.NOTHING, torn_at=torn_at))
        index = make_index(files)
        index.write(0, slots_of(0, 1))
        sync(index)
        index.write(1, slots_of(1, 3))
        index.flush()
        later = make_index(files.crash(random.Random(1).randrange))
        whole = torn_at // SLOT_BYTES
        assert later.read(0, SLOTS) == slots_of(0, 1 + whole) + [None] * (3 - whole)
        assert set(later.damaged) <= ({whole + 1} if torn_at % SLOT_BYTES else set())
        later.write(1, slots_of(1, 3, QUEUE_STORE))
        assert later.read(0, SLOTS) == slots_of(0, 1) + slots_of(1, 3, QUEUE_STORE)
        assert later.damaged == []


def test_a_move_that_is_torn_at_any_byte_leaves_the_first_slots() -> None:
    for torn_at in range(2 * SLOT_BYTES + 1):
        files = SimFiles(FaultPlan(Survival.NOTHING, torn_at=torn_at))
        index = make_index(files)
        index.write(0, slots_of(0, SLOTS))
        sync(index)
        index.move(1, slots_of(1, 2, QUEUE_STORE))
        index.flush()
        later = make_index(files.crash(random.Random(1).randrange))
        whole = torn_at // SLOT_BYTES
        moved = slots_of(1, whole, QUEUE_STORE)
        assert later.read(0, SLOTS) == [*slots_of(0, 1), *moved, *slots_of(1 + whole, 3 - whole)]
        assert later.damaged == []


def test_what_an_earlier_broker_moved_does_not_hide_what_a_later_one_writes(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 6))
    index.move(0, slots_of(0, 6, QUEUE_STORE))
    sync(index)
    later = make_index(files.kill())
    later.write(2, slots_of(2, 3, MSG_STORE))
    expected = slots_of(0, 2, QUEUE_STORE) + slots_of(2, 3, MSG_STORE) + slots_of(5, 1, QUEUE_STORE)
    assert later.read(0, 6) == expected
    later.move(3, slots_of(3, 1, QUEUE_STORE))
    assert later.read(2, 5) == [*slots_of(2, 1, MSG_STORE), *slots_of(3, 1, QUEUE_STORE), *slots_of(4, 1, MSG_STORE)]


def test_a_slot_of_another_message_is_not_taken_for_this_one(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS))
    sync(index)
    file = files.open(FIRST)
    file.pwrite([file.pread(SLOT_BYTES, FILE_HEAD_BYTES)], FILE_HEAD_BYTES + SLOT_BYTES)
    assert index.read(0, SLOTS) == [*slots_of(0, 1), None, *slots_of(2, 2)]
    assert index.damaged == [1]


def test_files_that_are_swapped_cost_their_slots_and_keep_nobody_from_writing(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 2 * SLOTS))
    sync(index)
    files.swap(FIRST, SECOND)
    later = make_index(files)
    for start in (0, SLOTS):
        with pytest.raises(StoreError, match="under another file's name"):
            later.read(start, start + SLOTS)
    later.write(1, slots_of(1, 2, QUEUE_STORE))
    assert later.read(0, SLOTS) == [None, *slots_of(1, 2, QUEUE_STORE), None]
    sync(later)
    assert make_index(files).read(0, SLOTS) == [None, *slots_of(1, 2, QUEUE_STORE), None]
    with pytest.raises(StoreError, match="under another file's name"):
        later.read(SLOTS, 2 * SLOTS)


def test_an_index_file_that_lost_its_end_has_lost_those_slots_only(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS))
    sync(index)
    files.truncate_durable(FIRST, FILE_HEAD_BYTES + 2 * SLOT_BYTES + 5)
    assert index.read(0, SLOTS) == [*slots_of(0, 2), None, None]
    assert index.damaged == [2]


def test_deleting_a_file_forgets_its_damage(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS))
    index.flush()
    files.flip(FIRST, FILE_HEAD_BYTES, 0)
    assert index.read(0, 1) == [None]
    assert index.damaged == [0]
    index.delete_segment(0)
    assert index.damaged == []


def test_anything_a_crash_leaves_of_unsynced_slots_is_right_or_missing() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        files = SimFiles()
        index = make_index(files)
        index.write(0, slots_of(0, 3))
        sync(index)
        index.write(3, slots_of(3, 8))
        index.move(0, slots_of(0, 6, QUEUE_STORE))
        index.flush()
        later = make_index(files.crash(chance.randrange))
        found: list[Slot | None] = []
        for seq_id in range(11):
            try:
                found += later.read(seq_id, seq_id + 1)
            except StoreError:
                # A new file whose head did not survive.
                assert seq_id >= SLOTS
                found.append(None)
        for seq_id, slot in enumerate(found):
            allowed = [*slots_of(seq_id, 1), *(slots_of(seq_id, 1, QUEUE_STORE) if seq_id < 6 else [])]
            assert slot in allowed or (slot is None and seq_id >= 3)


# --- errors ---------------------------------------------------------------------------------------


def test_a_full_disk_loses_nothing_and_writing_goes_on_later(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 10))
    files.plan.short_write(40, nth=3, error=errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC"):
        index.flush()
    files.plan.heal()
    index.flush()
    assert make_index(files.kill()).read(0, 10) == slots_of(0, 10)


def test_a_write_that_could_not_make_room_in_the_buffer_is_not_half_done(files: SimFiles) -> None:
    index = make_index(files)
    full = BUFFER_BYTES_MAX // SLOT_BYTES
    index.write(0, slots_of(0, full))
    files.plan.fail(errno.EIO, "pwrite", forever=True)
    with pytest.raises(OSError, match="EIO"):
        index.write(full, slots_of(full, 3))
    files.plan.heal()
    assert index.read(full - 1, full + 3) == [*slots_of(full - 1, 1), None, None, None]


# --- the life of the files ----------------------------------------------------------------------------


def test_a_deleted_file_is_gone_and_its_number_can_be_used_again(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS + 1))
    index.move(0, slots_of(0, 1, QUEUE_STORE))
    index.flush()
    index.delete_segment(0)
    index.delete_segment(0)
    index.delete_segment(77)
    assert list(files.contents()) == [SECOND]
    assert index.read(0, SLOTS + 1) == [None] * SLOTS + slots_of(SLOTS, 1)
    index.write(2, slots_of(2, 1))
    index.flush()
    assert index.read(0, SLOTS) == [None, None, *slots_of(2, 1), None]
    assert index.segments.numbers() == [0, 1]


def test_slots_of_a_deleted_file_that_were_not_written_yet_never_are(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS))
    index.delete_segment(0)
    index.flush()
    assert files.contents() == {}


def test_deleting_everything_removes_the_folder_and_a_new_index_can_follow(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 3 * SLOTS))
    index.flush()
    index.write(20, slots_of(20, 1))
    index.delete_all()
    assert not files.exists(FOLDER)
    index.flush()
    assert files.contents() == {}
    index.write(1, slots_of(1, 1))
    assert index.read(0, 2) == [None, *slots_of(1, 1)]


def test_closing_writes_what_waits_and_the_index_can_be_used_again(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, 2))
    index.move(0, slots_of(0, 1, QUEUE_STORE))
    index.close()
    index.write(2, slots_of(2, 1))
    expected = [*slots_of(0, 1, QUEUE_STORE), *slots_of(1, 2)]
    assert index.read(0, 3) == expected
    index.close()
    assert make_index(files.kill()).read(0, 3) == expected


def test_a_file_that_a_crash_left_without_a_head_cannot_be_read_and_is_made_again(files: SimFiles) -> None:
    index = make_index(files)
    index.write(0, slots_of(0, SLOTS + 1))
    index.flush()
    files.zero_block(SECOND, 0, FILE_HEAD_BYTES)
    later = make_index(files.kill())
    with pytest.raises(StoreError):
        later.read(SLOTS, SLOTS + 1)
    later.write(SLOTS, slots_of(SLOTS, 1))
    assert later.read(0, SLOTS + 1) == slots_of(0, SLOTS + 1)


@pytest.mark.parametrize("limit", [1, 2])
def test_few_handles_are_enough_for_many_files(files: SimFiles, limit: int) -> None:
    handles = HandleCache(files, limit)
    indexes = [QueueIndex(files, f"{name}/idx", handles, SLOTS) for name in "ab"]
    for start in range(0, 6 * SLOTS, 3):
        for index in indexes:
            index.write(start, slots_of(start, 3))
            index.flush()
            assert len(handles) <= limit
    for index in indexes:
        assert index.read(0, 6 * SLOTS) == slots_of(0, 6 * SLOTS)
        assert len(handles) <= limit
    for index in indexes:
        sync(index)
        index.close()
    assert len(handles) == 0
