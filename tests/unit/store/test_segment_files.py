"""Numbered files: heads that are checked, syncs that miss nothing, handles that are not closed under a sync."""

from __future__ import annotations

import random
from collections.abc import Callable
from errno import EMFILE
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.disk.files import File
from penstock.disk.os_files import OsFiles
from penstock.store.queue.places import UnknownVersion
from penstock.store.queue.segment_files import FILE_HEAD_BYTES, BadFile, Post, SegmentFiles, run_at_once
from penstock.store.shared.handles import HandleCache

FOLDER = "vhosts/v/queues/q/idx"
ALL = 1000


class House:
    """A disk, a cache and the files of one queue."""

    def __init__(self, limit: int = 512, post: Post = run_at_once, disk: SimFiles | None = None) -> None:
        self.disk = disk or SimFiles(FaultPlan(Survival.NOTHING))
        self.handles = HandleCache(self.disk, limit)
        self.files = self.segment_files(4, post)

    def segment_files(self, slots: int = 4, post: Post = run_at_once) -> SegmentFiles:
        return SegmentFiles(self.disk, FOLDER, self.handles, b"TEST", ".x", slots, post)

    def write(self, number: int, data: bytes) -> None:
        self.files.writer(number).pwrite([data], FILE_HEAD_BYTES)

    def to_sync(self) -> list[File]:
        """The files that are handed out to be synced, without folders."""
        self.files.begin_sync()
        return [file for file in self.files.files_to_sync(ALL) if file.path.startswith(f"{FOLDER}/")]

    def sync_names(self) -> None:
        self.files.begin_sync()
        for file in self.files.files_to_sync(ALL):
            file.fdatasync()
        self.files.synced()


def text_at(files: SegmentFiles, number: int) -> bytes:
    file = files.reader(number)
    return b"" if file is None else file.pread(100, FILE_HEAD_BYTES)


def is_open(file: File) -> bool:
    try:
        file.size()
    except OSError:
        return False
    return True


# --- heads ----------------------------------------------------------------------------------------


def test_a_new_file_gets_a_head_that_the_next_reader_accepts() -> None:
    house = House()
    house.write(3, b"data")
    assert text_at(house.segment_files(), 3) == b"data"
    assert house.files.numbers() == [3]
    assert house.files.reader(2) is None


def test_a_damaged_head_is_refused_at_every_byte_and_the_next_writer_begins_anew() -> None:
    house = House()
    house.write(3, b"data")
    for byte in range(FILE_HEAD_BYTES):
        disk = house.disk.copy()
        disk.flip(house.files.path(3), byte, 5)
        damaged = House(disk=disk)
        with pytest.raises(BadFile, match=r"the head of .*/00000003\.x is damaged"):
            damaged.files.reader(3)
        assert damaged.files.before_writing(3) is None
        damaged.write(3, b"new")
        assert text_at(damaged.segment_files(), 3) == b"new"


def test_a_file_of_a_later_format_says_what_to_do() -> None:
    house = House()
    house.write(0, b"data")
    head = pack("<4sIIq40x", b"TEST", 2, 4, 0)
    house.disk.open(house.files.path(0)).pwrite([head, pack("<I", crc32(head))], 0)
    with pytest.raises(UnknownVersion, match="format version 2, and this penstock reads version 1: start the version"):
        house.segment_files().reader(0)


def test_a_file_for_another_number_of_slots_is_refused() -> None:
    house = House()
    house.write(1, b"data")
    with pytest.raises(BadFile, match="made for 4 messages per file, and is opened for 8"):
        house.segment_files(8).reader(1)


def test_a_file_of_another_queue_is_refused() -> None:
    house = House()
    house.write(1, b"data")
    house.disk.make_dir("other")
    house.disk.rename(house.files.path(1), "other/00000001.x")
    other = SegmentFiles(house.disk, "other", HandleCache(house.disk), b"TEST", ".x", 4, run_at_once)
    with pytest.raises(BadFile, match=r"other/00000001\.x is a file of another queue"):
        other.reader(1)


def test_a_file_under_another_files_name_is_refused() -> None:
    house = House()
    house.write(1, b"one")
    house.write(2, b"two")
    house.disk.swap(house.files.path(1), house.files.path(2))
    with pytest.raises(BadFile, match="the file of the messages from 8 on"):
        house.segment_files().reader(1)


def test_a_file_of_another_place_does_not_stop_a_writer_who_begins_it_anew() -> None:
    house = House()
    house.write(1, b"one")
    house.write(2, b"two")
    house.disk.swap(house.files.path(1), house.files.path(2))
    house.files = house.segment_files()
    assert house.files.before_writing(1) is None
    house.write(1, b"new")
    assert text_at(house.segment_files(), 1) == b"new"
    with pytest.raises(BadFile, match="the file of the messages from 4 on"):
        house.segment_files().reader(2)


def test_a_file_of_a_later_format_is_not_begun_anew() -> None:
    house = House()
    house.write(1, b"data")
    head = house.disk.contents()[house.files.path(1)][:FILE_HEAD_BYTES]
    later = head[:4] + pack("<I", 2) + head[8:-4]
    house.disk.open(house.files.path(1)).pwrite([later + pack("<I", crc32(later))], 0)
    with pytest.raises(UnknownVersion):
        house.segment_files().writer(1)
    assert house.disk.contents()[house.files.path(1)].endswith(b"data")


@pytest.mark.parametrize("size", [0, 1, FILE_HEAD_BYTES - 1])
def test_a_file_that_a_crash_left_without_a_whole_head_is_made_anew(size: int) -> None:
    house = House()
    house.write(0, b"data")
    house.disk.open(house.files.path(0)).truncate(size)
    house.files = house.segment_files()
    assert house.files.reader(0) is None
    house.write(0, b"new")
    assert text_at(house.segment_files(), 0) == b"new"


def test_other_names_in_the_folder_are_not_files_of_ours() -> None:
    house = House()
    house.write(7, b"data")
    for name in ("7.tmp", "x.x", "00000009"):
        house.disk.create(f"{FOLDER}/{name}").close()
    assert house.files.numbers() == [7]


# --- syncing --------------------------------------------------------------------------------------


def test_synced_files_with_synced_names_survive_a_crash() -> None:
    house = House()
    house.write(0, b"zero")
    house.write(1, b"one")
    house.sync_names()
    house.write(1, b"not synced")
    after = House(disk=house.disk.crash(random.Random(1).randrange))
    assert (text_at(after.files, 0), text_at(after.files, 1)) == (b"zero", b"one")


def test_names_are_synced_once_for_new_files_and_never_without_being_asked() -> None:
    house = House()
    house.write(0, b"data")
    assert "sync_dir" not in [name for name, _ in house.disk.calls]
    house.sync_names()
    first = [path for name, path in house.disk.calls if name == "sync_dir"]
    assert first == ["", "vhosts", "vhosts/v", "vhosts/v/queues", "vhosts/v/queues/q", FOLDER]
    house.write(0, b"more")
    house.sync_names()
    assert [path for name, path in house.disk.calls if name == "sync_dir"] == first
    house.write(1, b"data")
    house.sync_names()
    assert [path for name, path in house.disk.calls if name == "sync_dir"] == [*first, FOLDER]


def test_a_file_that_is_written_while_it_is_synced_is_synced_again() -> None:
    house = House()
    house.write(0, b"a")
    house.write(1, b"b")
    assert [file.path for file in house.to_sync()] == [house.files.path(0), house.files.path(1)]
    house.write(1, b"c")
    house.files.synced()
    assert [file.path for file in house.to_sync()] == [house.files.path(1)]
    house.files.synced()
    assert house.to_sync() == []


def test_what_was_given_up_is_handed_out_again_with_its_names() -> None:
    house = House()
    house.write(0, b"a")
    house.files.begin_sync()
    first = house.files.files_to_sync(ALL)
    house.files.sync_given_up()
    again = house.files.files_to_sync(ALL)
    assert sorted([file.path for file in again]) == sorted([file.path for file in first])
    house.files.synced()
    assert house.files.files_to_sync(ALL) == []


def test_no_more_files_are_handed_out_than_are_asked_for_and_none_that_is_younger_than_the_beginning() -> None:
    house = House(limit=2)
    for number in range(10):
        house.write(number, b"a")
    house.files.begin_sync()
    house.write(10, b"too late")
    seen: list[str] = []
    while files := house.files.files_to_sync(3):
        assert len(files) <= 3
        assert len(house.handles) <= 2 + 3
        seen.extend([file.path for file in files if file.path.startswith(f"{FOLDER}/")])
        for file in files:
            file.fdatasync()
        house.files.synced()
    assert seen == [house.files.path(number) for number in range(10)]


@pytest.mark.parametrize("call", ["open", "open_folder"])
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_an_error_while_files_are_handed_out_leaves_none_of_them_open(call: str, nth: int) -> None:
    house = House(limit=1)
    for number in range(6):
        house.write(number, b"a")
    house.files.begin_sync()
    house.disk.plan.fail(EMFILE, call, nth=nth)
    with pytest.raises(OSError, match="EMFILE"):
        house.files.files_to_sync(ALL)
    assert len(house.handles) <= 1
    house.disk.plan.heal()
    files = house.files.files_to_sync(ALL)
    assert len(files) == 6 + 6
    for file in files:
        file.fdatasync()
    house.files.synced()
    after = House(disk=house.disk.crash(random.Random(1).randrange))
    assert [text_at(after.files, number) for number in range(6)] == [b"a"] * 6


def test_a_file_that_was_removed_is_not_synced() -> None:
    house = House()
    house.write(0, b"a")
    house.write(1, b"b")
    house.files.remove(0)
    assert [file.path for file in house.to_sync()] == [house.files.path(1)]
    house.files.remove_all()
    assert house.to_sync() == []


def test_reading_makes_no_work_for_a_sync() -> None:
    house = House()
    house.write(0, b"a")
    house.to_sync()
    house.files.synced()
    house.files.reader(0)
    assert house.to_sync() == []


def test_a_file_that_lost_its_handle_is_synced_all_the_same() -> None:
    house = House(limit=1)
    house.write(0, b"a")
    house.write(1, b"b")
    files = house.to_sync()
    assert [file.path for file in files] == [house.files.path(0), house.files.path(1)]
    assert all(map(is_open, files))


# --- handles --------------------------------------------------------------------------------------


def test_a_handle_that_is_asked_back_during_a_sync_is_closed_after_it() -> None:
    house = House(limit=1)
    house.write(0, b"a")
    file = house.to_sync()[0]
    house.write(1, b"b")
    house.write(2, b"c")
    assert is_open(file)
    assert len(house.handles) == 2
    house.files.synced()
    assert not is_open(file)
    assert len(house.handles) == 1


def test_a_file_that_is_removed_during_a_sync_is_closed_after_it_and_may_come_again() -> None:
    house = House()
    house.write(0, b"old")
    file = house.to_sync()[0]
    house.files.remove(0)
    assert not house.disk.exists(house.files.path(0))
    house.write(0, b"new")
    assert is_open(file)
    file.fdatasync()
    house.files.synced()
    assert not is_open(file)
    assert text_at(house.files, 0) == b"new"
    assert [file.path for file in house.to_sync()] == [house.files.path(0)]


@pytest.mark.parametrize("end", [SegmentFiles.close, SegmentFiles.remove_all])
def test_the_end_of_a_queue_does_not_close_what_is_being_synced(end: Callable[[SegmentFiles], None]) -> None:
    house = House()
    house.write(0, b"a")
    file = house.to_sync()[0]
    house.write(1, b"b")
    end(house.files)
    assert is_open(file)
    house.files.synced()
    assert not is_open(file)
    assert len(house.handles) == 0


def test_closing_does_not_forget_what_is_not_synced() -> None:
    house = House()
    house.write(0, b"a")
    house.to_sync()
    house.write(1, b"b")
    house.files.close()
    house.files.sync_given_up()
    assert [file.path for file in house.to_sync()] == [house.files.path(0), house.files.path(1)]


def test_handles_are_closed_where_the_owner_works() -> None:
    posted: list[Callable[[], None]] = []
    house = House(limit=1, post=posted.append)
    house.write(0, b"a")
    first = house.files.reader(0)
    house.write(1, b"b")
    house.write(2, b"c")
    assert first is not None
    assert is_open(first)
    assert len(posted) == 1, "one post is enough for all that are wanted back"
    posted.pop()()
    assert not is_open(first)
    assert len(house.handles) == 1
    house.write(3, b"d")
    assert len(posted) == 1


def test_a_post_that_comes_after_the_end_does_nothing() -> None:
    posted: list[Callable[[], None]] = []
    house = House(limit=1, post=posted.append)
    house.write(0, b"a")
    house.write(1, b"b")
    house.files.close()
    posted.pop()()
    assert len(house.handles) == 0
    assert text_at(house.files, 0) == b"a"


def test_a_real_folder_does_as_well(tmp_path: Path) -> None:
    disk = OsFiles(tmp_path)
    handles = HandleCache(disk, 1)
    files = SegmentFiles(disk, FOLDER, handles, b"TEST", ".x", 4, run_at_once)
    for number in range(3):
        files.writer(number).pwrite([b"data %d" % number], FILE_HEAD_BYTES)
    files.begin_sync()
    for file in files.files_to_sync(ALL):
        file.fdatasync()
    files.synced()
    files.remove(1)
    assert [text_at(files, number) for number in range(3)] == [b"data 0", b"", b"data 2"]
    assert files.numbers() == [0, 2]
    files.remove_all()
    assert not disk.exists(FOLDER)
    assert len(handles) == 0
