"""Cursors of readers on disk: they grow, survive, are told apart from other files, and there are not too many."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from random import Random

import pytest
from node_house import new_disk, open_node, power_cut
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival

from penstock.disk.files import write_file
from penstock.disk.os_files import OsFiles
from penstock.store.inspect.fsck import fsck
from penstock.store.retention.reader_cursors import (
    LSN_MAX,
    READERS_MAX,
    ReaderRefused,
    cursor_path,
    forget_cursor,
    log_id,
    make_log_id,
    read_cursor,
    read_cursors,
    write_cursor,
)

NAMES = [
    "lake",
    "a/b/../../etc/passwd",
    "..",
    'it\'s "quoted" `x` $HOME',
    "con:trol\\path",
    "Überlauf 水 🐟",
    "x" * 128,
    "🐟" * 128,
    " ",
]


def lsns(files: SimFiles | OsFiles) -> dict[str, int]:
    cursors, strange = read_cursors(files)
    assert strange == []
    return {cursor.name: cursor.lsn for cursor in cursors}


def put_file(files: SimFiles, path: str, data: bytes) -> None:
    files.make_dir("readers")
    write_file(files, path, data)


def test_without_a_folder_there_are_no_readers() -> None:
    files = new_disk()
    assert read_cursors(files) == ([], [])
    assert not forget_cursor(files, "lake")
    assert files.list_dir("") == [], "asking changes nothing"


@pytest.mark.parametrize("name", NAMES)
def test_any_printable_name_is_kept_as_it_is_and_never_becomes_a_path(name: str, tmp_path: Path) -> None:
    files = OsFiles(str(tmp_path / "data"))
    files.make_dir("")
    assert write_cursor(files, name, 42, 1_000_000)
    assert lsns(files) == {name: 42}
    found = [path.relative_to(tmp_path / "data").as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert found == [cursor_path(name)]
    assert forget_cursor(files, name)
    assert lsns(files) == {}


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "a\x00b", "\x1b[31m", "a\u2028b", "a\ud800b", "\u202e"])
def test_a_name_that_cannot_be_shown_or_is_too_long_is_refused(name: str) -> None:
    files = new_disk()
    with pytest.raises(ReaderRefused, match="choose another"):
        write_cursor(files, name, 1, 1)
    with pytest.raises(ReaderRefused, match="choose another"):
        forget_cursor(files, name)
    assert files.list_dir("") == []


@pytest.mark.parametrize("lsn", [-1, LSN_MAX + 1])
def test_a_position_that_no_log_has_is_refused(lsn: int) -> None:
    with pytest.raises(ReaderRefused, match="position"):
        write_cursor(new_disk(), "lake", lsn, 1)


def test_a_cursor_only_grows() -> None:
    files = new_disk()
    assert write_cursor(files, "lake", 10, 100)
    assert not write_cursor(files, "lake", 10, 200)
    assert not write_cursor(files, "lake", 9, 300)
    cursor = read_cursor(files, "lake")
    assert cursor is not None
    assert (cursor.lsn, cursor.updated_us) == (10, 100)
    assert write_cursor(files, "lake", 11, 400)
    assert lsns(files) == {"lake": 11}


def test_readers_come_in_the_order_of_their_names() -> None:
    files = new_disk()
    for name in ("c", "a", "b"):
        write_cursor(files, name, 1, 1)
    assert list(lsns(files)) == ["a", "b", "c"]


def test_one_reader_too_many_is_refused_and_says_what_to_do() -> None:
    files = new_disk()
    for number in range(READERS_MAX):
        write_cursor(files, f"reader {number}", number, 1)
    with pytest.raises(ReaderRefused, match="penstock history forget"):
        write_cursor(files, "one more", 1, 1)
    assert write_cursor(files, "reader 7", 1000, 1), "those that are there get on"
    assert forget_cursor(files, "reader 3")
    assert write_cursor(files, "one more", 1, 1)
    assert len(lsns(files)) == READERS_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"name": "lake", "lsn": true, "updated_us": 1}',
        b'{"name": "lake", "lsn": -1, "updated_us": 1}',
        b'{"name": "lake", "lsn": 1.5, "updated_us": 1}',
        b'{"name": "lake", "lsn": 9223372036854775808, "updated_us": 1}',
        b'{"name": "lake", "lsn": 1}',
        b'{"name": "other", "lsn": 1, "updated_us": 1}',
        b'{"name": 5, "lsn": 1, "updated_us": 1}',
        b'{"name": "lake", "lsn": 1, "updated_us": 1}' + b" " * 5000,
        b"[" * 4096,
    ],
)
def test_a_damaged_file_is_named_and_the_other_readers_are_read(data: bytes) -> None:
    files = new_disk()
    write_cursor(files, "ok", 5, 1)
    put_file(files, cursor_path("lake"), data)
    cursors, strange = read_cursors(files)
    assert [cursor.name for cursor in cursors] == ["ok"]
    assert strange == [cursor_path("lake")]
    assert read_cursor(files, "lake") is None
    assert write_cursor(files, "lake", 3, 1), "its reader makes it anew"
    assert lsns(files) == {"lake": 3, "ok": 5}


def test_a_file_of_somebody_else_is_named() -> None:
    files = new_disk()
    put_file(files, "readers/notes.txt", b"mine")
    write_cursor(files, "lake", 1, 1)
    assert read_cursors(files)[1] == ["readers/notes.txt"]


def test_a_file_under_the_wrong_name_counts_for_nothing() -> None:
    files = new_disk()
    text = json.dumps({"name": "lake", "lsn": 1, "updated_us": 1}).encode()
    put_file(files, cursor_path("other"), text)
    assert read_cursors(files) == ([], [cursor_path("other")])


@pytest.mark.parametrize("ending", [": copy.json", "\\.json", ":.tmp", "-1:2.tmp"])
def test_files_whose_names_are_no_paths_of_ours_are_left_alone(tmp_path: Path, ending: str) -> None:
    files = OsFiles(tmp_path)
    write_cursor(files, "lake", 1, 1)
    stem = cursor_path("lake").removesuffix(".json")
    (tmp_path / f"{stem}{ending}").write_bytes(b"{}")
    cursors, strange = read_cursors(files)
    assert [cursor.lsn for cursor in cursors] == [1]
    assert strange == ([f"{stem}{ending}"] if ending.endswith(".json") else [])
    assert write_cursor(files, "lake", 2, 2)
    assert forget_cursor(files, "lake")
    assert (tmp_path / f"{stem}{ending}").exists()


def test_a_cursor_that_cannot_be_read_is_an_error_and_not_a_reader_less() -> None:
    files = new_disk()
    write_cursor(files, "lake", 1, 1)
    files.plan.fail(errno.EACCES, "open", "readers/")
    with pytest.raises(OSError, match="EACCES"):
        read_cursors(files)


def test_a_cursor_survives_a_power_cut_once_it_is_written() -> None:
    files = new_disk(Survival.NOTHING)
    write_cursor(files, "lake", 7, 1)
    assert lsns(power_cut(files)) == {"lake": 7}


@pytest.mark.parametrize("survival", list(Survival))
def test_a_crash_at_any_moment_of_a_write_leaves_the_old_or_the_new_cursor(survival: Survival) -> None:
    base = SimFiles(FaultPlan(survival))
    write_cursor(base, "lake", 7, 1)
    rehearsal = base.copy()
    write_cursor(rehearsal, "lake", 8, 2)
    seen = set()
    for point in rehearsal.crash_points():
        for seed in range(10):
            files = base.copy()
            files.plan.crash_at = point
            with pytest.raises(SimCrash):
                write_cursor(files, "lake", 8, 2)
            for after in (files.kill(), files.crash(Random(seed).randrange)):
                seen.add(lsns(after)["lake"])
                assert write_cursor(after, "lake", 9, 3), "the next write is not in the way of what was left"
                assert [name for name in after.list_dir("readers") if name.endswith(".tmp")] == []
    assert seen == {7, 8}


@pytest.mark.parametrize("call", ["create", "pwrite", "fdatasync", "rename", "sync_dir"])
def test_a_write_that_fails_leaves_a_whole_cursor_and_can_be_tried_again(call: str) -> None:
    files = new_disk()
    write_cursor(files, "lake", 7, 1)
    files.plan.fail(errno.ENOSPC, call, "readers")
    with pytest.raises(OSError, match="ENOSPC"):
        write_cursor(files, "lake", 8, 2)
    assert lsns(files)["lake"] in (7, 8)
    write_cursor(files, "lake", 9, 2)
    assert lsns(files) == {"lake": 9}


def test_two_writers_of_one_name_do_not_mix_their_drafts() -> None:
    files = new_disk()
    write_cursor(files, "lake", 7, 1)
    # Another process is between its write and its rename.
    draft = f"{cursor_path('lake').removesuffix('.json')}-9-9.tmp"
    put_file(files, "readers/half", b"")
    files.rename("readers/half", draft)
    assert write_cursor(files, "lake", 8, 2)
    assert lsns(files) == {"lake": 8}


def test_fsck_names_a_damaged_cursor_and_takes_the_others_as_they_are() -> None:
    files = new_disk()
    open_node(files).stop()
    write_cursor(files, "lake", 1, 1)
    assert fsck(files).findings == []
    assert fsck(files).counts["readers of history"] == 1
    files.flip(cursor_path("lake"), 0, 0)
    assert [(each.severity, each.path) for each in fsck(files).findings] == [("warning", cursor_path("lake"))]


def test_a_log_has_an_id_of_its_own_that_stays() -> None:
    files = new_disk()
    assert log_id(files) == ""
    node = open_node(files)
    first = log_id(files)
    assert len(first) == 32
    assert int(first, 16) > 0
    node.stop()
    open_node(files)
    assert log_id(files) == first
    assert log_id(power_cut(files)) == first


def test_another_folder_is_another_log() -> None:
    one, other = new_disk(), new_disk()
    assert make_log_id(one, Random(1).getrandbits) != make_log_id(other, Random(2).getrandbits)


@pytest.mark.parametrize("data", [b"", b"xyz", b"0" * 31, b"\xff" * 32, b"A" * 32])
def test_a_damaged_id_is_replaced_at_the_next_start(data: bytes) -> None:
    files = new_disk()
    put_file(files, "readers/log-id", data)
    assert log_id(files) == ""
    open_node(files)
    assert len(log_id(files)) == 32


def test_a_full_disk_does_not_keep_a_node_without_an_id_from_starting() -> None:
    files = new_disk()
    files.plan.fail(errno.ENOSPC, "create", "readers/")
    open_node(files).stop()
    assert log_id(files) == ""
    open_node(files).stop()
    assert log_id(files) != ""


@pytest.mark.parametrize("call", ["open", "create"])
def test_readers_without_permission_do_not_keep_a_node_from_starting(call: str) -> None:
    files = new_disk()
    files.plan.fail(errno.EACCES, call, "readers/")
    open_node(files).stop()
