"""The queue's own store: records come back from disk and buffer, and what is damaged is named."""

from __future__ import annotations

import errno
import random

import pytest
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.message import Envelope
from penstock.store.queue.places import StoreError
from penstock.store.queue.queue_store import BUFFER_BYTES_MAX, READ_BYTES_MIN, READ_BYTES_PER_RECORD, QueueStore
from penstock.store.queue.segment_files import FILE_HEAD_BYTES
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.records import RECORD_HEAD_BYTES, BadRecord, Record

SLOTS = 4
FOLDER = "q/qs"
FIRST = f"{FOLDER}/00000000.qs"
SECOND = f"{FOLDER}/00000001.qs"
ENVELOPE = Envelope("amq.topic", "a.b", b"\x10\x00\x02", True)


def make_store(files: SimFiles, limit: int = 512) -> QueueStore:
    return QueueStore(files, FOLDER, HandleCache(files, limit), SLOTS)


def body_of(seq_id: int) -> bytes:
    return b"message %d\xce" % seq_id


def append_run(store: QueueStore, first: int, count: int) -> list[tuple[int, int]]:
    return [store.append(seq_id, ENVELOPE, body_of(seq_id), seq_id) for seq_id in range(first, first + count)]


def check_run(records: list[Record], first: int) -> None:
    for seq_id, record in enumerate(records, first):
        assert (record.seq_id, record.body, record.expiry_ms) == (seq_id, body_of(seq_id), seq_id)
        assert (record.envelope.exchange, record.envelope.routing_key) == ("amq.topic", "a.b")
        assert (record.envelope.properties, record.envelope.persistent) == (b"\x10\x00\x02", True)


def sync(store: QueueStore) -> None:
    store.flush()
    store.segments.begin_sync()
    for file in store.segments.files_to_sync(1000):
        file.fdatasync()
    store.segments.synced()


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.mark.parametrize("flushed", [0, 1, 2, 3, 4])
def test_records_come_back_from_disk_and_buffer_together(files: SimFiles, flushed: int) -> None:
    store = make_store(files)
    places = append_run(store, 0, flushed)
    store.flush()
    places += append_run(store, flushed, SLOTS - flushed)
    for first in range(SLOTS):
        for count in range(SLOTS - first + 1):
            records = store.read(0, places[first][0], count)
            assert len(records) == count
            check_run(records, first)
            assert [record.size_bytes for record in records] == [size for _, size in places[first : first + count]]


def test_a_record_is_in_the_file_of_its_seq_id(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, SLOTS - 1, 2)
    assert [offset for offset, _ in places] == [FILE_HEAD_BYTES, FILE_HEAD_BYTES]
    store.flush()
    assert list(files.contents()) == [FIRST, SECOND]
    assert store.segments.numbers() == [0, 1]
    check_run(store.read(0, FILE_HEAD_BYTES, 1), SLOTS - 1)
    check_run(store.read(1, FILE_HEAD_BYTES, 1), SLOTS)


def test_messages_that_were_published_alike_share_an_envelope_when_they_are_read(files: SimFiles) -> None:
    store = make_store(files)
    append_run(store, 0, 2)
    store.append(2, Envelope("", "other", b"\x00\x00"), b"\xce", -1)
    one, two, three = store.read(0, FILE_HEAD_BYTES, 3)
    assert one.envelope is two.envelope
    assert three.envelope.routing_key == "other"
    assert three.body == b"\xce"


@pytest.mark.parametrize("beyond", [-1, 0, 1, 300_000])
@pytest.mark.parametrize("flushed", [True, False])
def test_records_around_and_beyond_what_is_read_ahead_are_read_whole(
    files: SimFiles, beyond: int, flushed: bool
) -> None:
    store = make_store(files)
    overhead = RECORD_HEAD_BYTES + len(ENVELOPE.address) + len(ENVELOPE.properties)
    size = READ_BYTES_MIN + READ_BYTES_PER_RECORD * 3 - overhead + beyond
    bodies = [bytes([seq_id]) * (size - 1) + b"\xce" for seq_id in range(3)]
    for seq_id, body in enumerate(bodies):
        store.append(seq_id, ENVELOPE, body, -1)
    if flushed:
        store.flush()
    assert [record.body for record in store.read(0, FILE_HEAD_BYTES, 3)] == bodies


def test_the_buffer_is_written_when_it_is_full_and_with_one_call_per_file(files: SimFiles) -> None:
    store = make_store(files)
    body = bytes(BUFFER_BYTES_MAX // 3) + b"\xce"
    for seq_id in range(2):
        store.append(seq_id, ENVELOPE, body, -1)
    assert files.contents() == {}
    store.append(2, ENVELOPE, body, -1)
    assert files.calls.count(("pwrite", FIRST)) == 2  # the head of the file, and the two records
    assert [record.body for record in store.read(0, FILE_HEAD_BYTES, 3)] == [body] * 3


def test_appending_goes_on_behind_the_end_after_a_restart(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, 0, 2)
    sync(store)
    later = make_store(files.kill())
    place = append_run(later, 2, 1)[0]
    assert place[0] == sum(places[1])
    later.flush()
    check_run(later.read(0, FILE_HEAD_BYTES, 3), 0)


def test_a_record_that_a_crash_tore_is_skipped_and_named_when_it_is_read() -> None:
    size = RECORD_HEAD_BYTES + len(ENVELOPE.address) + len(ENVELOPE.properties) + len(body_of(1))
    for torn_at in range(size):
        files = SimFiles(FaultPlan(Survival.NOTHING, torn_at=torn_at))
        store = make_store(files)
        append_run(store, 0, 1)
        sync(store)
        torn = append_run(store, 1, 1)[0]
        store.flush()
        later = make_store(files.crash(random.Random(1).randrange))
        with pytest.raises(BadRecord) as refused:
            later.read(0, FILE_HEAD_BYTES, 2)
        check_run(refused.value.before, 0)
        assert len(refused.value.before) == 1
        assert (refused.value.offset, refused.value.path) == (torn[0], FIRST)
        place = append_run(later, 1, 1)[0]
        assert place[0] == torn[0] + torn_at
        later.flush()
        check_run(later.read(0, place[0], 1), 1)


# --- damage -------------------------------------------------------------------------------------------


def test_no_flipped_bit_makes_a_wrong_record_and_the_bad_one_is_named(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, SLOTS, 3)
    sync(store)
    for position in range(files.open(SECOND).size() * 8):
        machine = files.copy()
        machine.flip(SECOND, position // 8, position % 8)
        damaged = make_store(machine)
        with pytest.raises(StoreError, match=r"q/qs/00000001\.qs") as refused:
            damaged.read(1, places[0][0], 3)
        if position // 8 < FILE_HEAD_BYTES:
            continue
        hit = [start <= position // 8 < start + size for start, size in places].index(True)
        bad = refused.value
        assert isinstance(bad, BadRecord)
        assert bad.offset == places[hit][0]
        assert bad.seq_id in (-1, SLOTS + hit)
        assert len(bad.before) == hit
        check_run(bad.before, SLOTS)
        if bad.size_bytes >= 0 and hit < 2:
            check_run(damaged.read(1, bad.offset + bad.size_bytes, 2 - hit), SLOTS + hit + 1)


def test_a_missing_file_and_an_offset_behind_the_end_are_bad_records(files: SimFiles) -> None:
    store = make_store(files)
    with pytest.raises(BadRecord, match=r"at offset 64 in q/qs/00000000\.qs ends after 0 bytes"):
        store.read(0, FILE_HEAD_BYTES, 1)
    ((_, size),) = append_run(store, 0, 1)
    for _ in range(2):
        with pytest.raises(BadRecord):
            store.read(0, FILE_HEAD_BYTES + size, 1)
        with pytest.raises(BadRecord):
            store.read(0, 10_000, 1)
        store.flush()


def test_a_file_that_lost_its_end_does_not_take_the_buffer_for_it(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, 0, 2)
    sync(store)
    append_run(store, 2, 1)
    files.truncate_durable(FIRST, places[1][0])
    with pytest.raises(BadRecord) as refused:
        store.read(0, FILE_HEAD_BYTES, 3)
    assert refused.value.offset == places[1][0]
    check_run(store.read(0, sum(places[1]), 1), 2)


def test_a_record_in_the_file_of_other_messages_is_refused(files: SimFiles) -> None:
    store = make_store(files)
    append_run(store, 0, 1)
    append_run(store, SLOTS, 1)
    store.flush()
    ours, theirs = files.open(FIRST), files.open(SECOND)
    ours.pwrite([theirs.pread(1000, FILE_HEAD_BYTES)], FILE_HEAD_BYTES)
    with pytest.raises(BadRecord, match=r"of seq_id 4 .* is not the one that should be there"):
        store.read(0, FILE_HEAD_BYTES, 1)


def test_a_record_of_another_message_is_refused(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, 0, 3)
    check_run(store.read(0, places[1][0], 2, 1), 1)
    with pytest.raises(BadRecord, match="is not the one") as refused:
        store.read(0, places[1][0], 2, 0)
    assert (refused.value.offset, refused.value.seq_id, refused.value.before) == (places[1][0], 1, [])
    store.append(0, ENVELOPE, body_of(0), 0)
    with pytest.raises(BadRecord) as refused:
        store.read(0, places[2][0], 2, 2)
    check_run(refused.value.before, 2)


def test_anything_a_crash_leaves_of_unsynced_records_is_right_or_refused() -> None:
    for seed in range(200):
        files = SimFiles()
        store = make_store(files)
        places = append_run(store, 0, 2)
        sync(store)
        places += append_run(store, 2, 5)
        store.flush()
        later = make_store(files.crash(random.Random(seed).randrange))
        for seq_id, (offset, _) in enumerate(places):
            try:
                check_run(later.read(seq_id // SLOTS, offset, 1), seq_id)
            except StoreError:
                assert seq_id >= 2


# --- errors and the life of the files --------------------------------------------------------------------


def test_a_full_disk_loses_nothing_and_writing_goes_on_later_at_the_same_offsets(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, 0, 3)
    files.plan.short_write(100, nth=2, error=errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC"):
        store.flush()
    files.plan.heal()
    check_run(store.read(0, places[0][0], 3), 0)
    append_run(store, 3, 1)
    store.flush()
    check_run(make_store(files.kill()).read(0, places[0][0], 4), 0)


def test_a_message_for_which_there_is_no_room_in_the_buffer_is_not_kept(files: SimFiles) -> None:
    store = make_store(files)
    body = bytes(BUFFER_BYTES_MAX - 1000) + b"\xce"
    offset, size = store.append(0, ENVELOPE, body, -1)
    files.plan.fail(errno.EIO, "pwrite", forever=True)
    with pytest.raises(OSError, match="EIO"):
        store.append(1, ENVELOPE, body, -1)
    files.plan.heal()
    assert append_run(store, 1, 1)[0][0] == offset + size
    assert [record.seq_id for record in store.read(0, offset, 2)] == [0, 1]


def test_records_of_a_deleted_file_that_were_not_written_yet_never_are(files: SimFiles) -> None:
    store = make_store(files)
    append_run(store, 0, SLOTS)
    store.delete_segment(0)
    store.flush()
    assert files.contents() == {}


def test_a_deleted_file_is_gone_and_its_number_can_be_used_again(files: SimFiles) -> None:
    store = make_store(files)
    append_run(store, 0, SLOTS + 1)
    store.flush()
    store.delete_segment(0)
    store.delete_segment(0)
    assert list(files.contents()) == [SECOND]
    assert append_run(store, 2, 1)[0][0] == FILE_HEAD_BYTES
    check_run(store.read(0, FILE_HEAD_BYTES, 1), 2)
    store.flush()
    check_run(store.read(0, FILE_HEAD_BYTES, 1), 2)
    check_run(store.read(1, FILE_HEAD_BYTES, 1), SLOTS)


def test_deleting_everything_removes_the_folder_and_the_buffer(files: SimFiles) -> None:
    store = make_store(files)
    append_run(store, 0, SLOTS)
    store.flush()
    append_run(store, SLOTS, SLOTS)
    store.delete_all()
    store.flush()
    assert files.contents() == {}
    assert not files.exists(FOLDER)


def test_closing_writes_what_waits_and_the_store_can_be_used_again(files: SimFiles) -> None:
    store = make_store(files)
    places = append_run(store, 0, 2)
    store.close()
    check_run(make_store(files.copy()).read(0, places[0][0], 2), 0)
    append_run(store, 2, 1)
    check_run(store.read(0, places[0][0], 3), 0)
    store.flush()
    store.segments.begin_sync()
    assert FIRST in [file.path for file in store.segments.files_to_sync(1000)]


@pytest.mark.parametrize("limit", [1, 2])
def test_few_handles_are_enough_for_many_files(files: SimFiles, limit: int) -> None:
    handles = HandleCache(files, limit)
    stores = [QueueStore(files, f"{name}/qs", handles, SLOTS) for name in "ab"]
    places = [append_run(store, 0, 3 * SLOTS) for store in stores]
    for store in stores:
        store.flush()
    for seq_id in range(3 * SLOTS):
        for store, offsets in zip(stores, places, strict=True):
            check_run(store.read(seq_id // SLOTS, offsets[seq_id][0], 1), seq_id)
            assert len(handles) <= limit
    for store in stores:
        sync(store)
        store.close()
    assert len(handles) == 0
