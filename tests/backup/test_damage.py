"""Bits that flip in a backup are found before anything is made of it; hostile backups write nothing anywhere."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock.backup.archive.tar_archive import TarArchive
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import Manifest, decode_manifest
from penstock.backup.progress import Progress
from penstock.backup.restoring.chain import open_chain
from penstock.backup.restoring.verifying import verify
from penstock.disk.os_files import OsFiles
from penstock.store.recovery.recovery import FORMAT_VERSION
from tests.backup.house import House, chain_of, restored
from tests.disk.sim_files import SimFiles
from tests.effort import some


def small_backup() -> tuple[Manifest, SimFiles]:
    house = House(4)
    for _ in range(50):
        house.act()
    target = SimFiles()
    return house.back_up(target), target


def test_every_flipped_bit_is_found_by_verify_and_by_restore() -> None:
    manifest, source = small_backup()
    places = [(path, at) for path, data in source.contents().items() for at in range(0, len(data), 97)]
    assert {path.rpartition(".")[2] for path, _ in places} >= {"json", "ckpt", "pnj", "pms", "qi"}
    for path, at in some(places):
        damaged = source.copy()
        damaged.flip(path, at, at % 8)
        if path == "manifest.json":
            with pytest.raises(BackupError):
                decode_manifest(damaged.contents()[path], "damaged")
            continue
        chain = chain_of((manifest, damaged))
        assert len(verify(chain, Progress())) == 1
        target = SimFiles()
        with pytest.raises(BackupError, match="is damaged: it is not what the manifest says"):
            restored(chain, None, target)
        assert target.exists("restoring"), "a broker would start with it"


def test_a_file_that_is_missing_cut_or_too_long_is_found_before_anything_is_written() -> None:
    manifest, source = small_backup()
    path = "files/" + next(file.path for file in manifest.files if file.path.endswith(".pnj"))
    size = len(source.contents()[path])
    changes: list[Callable[[SimFiles], None]] = [
        lambda files: files.delete(path),
        lambda files: files.truncate_durable(path, size - 1),
        lambda files: files.open(path).truncate(size + 1),
    ]
    for change in changes:
        damaged = source.copy()
        change(damaged)
        chain = chain_of((manifest, damaged))
        assert len(verify(chain, Progress())) == 1
        target = SimFiles()
        with pytest.raises(BackupError, match="is missing, or has another size"):
            restored(chain, None, target)
        assert target.contents() == {}


def test_a_file_that_the_manifest_does_not_name_is_reported() -> None:
    manifest, source = small_backup()
    source.create("files/journal/00009999.pnj").close()
    assert verify(chain_of((manifest, source)), Progress()) == [
        f"'journal/00009999.pnj' in {manifest.id} is not in the manifest"
    ]


def with_changes(**changes: Any) -> bytes:
    """A manifest with a right checksum, as somebody could have made it."""
    body = json.loads(small_backup()[0].encode())["manifest"] | changes
    digest = sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({"manifest": body, "sha256": digest}).encode()


def file_entry(**changes: Any) -> list[dict[str, Any]]:
    return [{"path": "journal/00000001.pnj", "size": 1, "sha256": "0" * 64, "backup_id": "0" * 32} | changes]


@pytest.mark.parametrize(
    "path",
    [
        *("../etc/passwd", "/etc/passwd", "journal/../../x.pnj", "journal/00000001.pnj/../../../x", "lock", "format"),
        *("readers/log-id", "restoring", "journal/1.pnj", "journal/00000001.pnj\n", "vhosts/../../a/x.pms", "", ".."),
        *("vhosts/aa/queues/bb/idx/../../../../x.qi", "control.sock", "checkpoint/00000001.ckpt.tmp", 7, None),
        "vhosts\\aa\\x.pms",
    ],
)
def test_a_path_that_is_none_of_a_data_folder_is_refused(path: object) -> None:
    with pytest.raises(BackupError, match="no file of a data folder"):
        decode_manifest(with_changes(files=file_entry(path=path)), "bad")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": 2}, "this penstock reads up to 1"),
        ({"format": 0}, "damaged"),
        ({"format": "1"}, "damaged"),
        ({"files": file_entry() + file_entry()}, "malformed"),
        ({"files": file_entry(size=-1)}, "malformed"),
        ({"files": file_entry(size=True)}, "malformed"),
        ({"files": file_entry(sha256="x" * 64)}, "malformed"),
        ({"files": file_entry(backup_id="../..")}, "malformed"),
        ({"files": 7}, "malformed"),
        ({"first_lsn": 2**63}, "malformed"),
        ({"first_lsn": None}, "malformed"),
        ({"base": {"id": 1}}, "malformed"),
        ({"log_id": "x" * 5000}, "malformed"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BackupError, match=complaint):
        decode_manifest(with_changes(**changes), "bad")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"manifest": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_what_is_not_a_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(BackupError):
        decode_manifest(data, "bad")


def test_a_backup_of_a_later_data_format_is_refused_before_anything_is_written() -> None:
    manifest, source = small_backup()
    manifest.data_format = f"penstock {FORMAT_VERSION + 1}"
    target = SimFiles()
    with pytest.raises(BackupError, match="and this penstock reads"):
        restored(chain_of((manifest, source)), None, target)
    assert target.contents() == {}


def test_a_backup_of_an_older_data_format_is_restored_as_such() -> None:
    manifest, source = small_backup()
    manifest.data_format = "penstock 1"
    _, files = restored(chain_of((manifest, source)))
    assert files.contents()["format"] == b"penstock 1\n"


def tar_with(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b""


@pytest.mark.parametrize(
    "members",
    [
        [member("files/journal/00000001.pnj", tarfile.SYMTYPE, "/etc/passwd")],
        [member("files/journal/00000001.pnj", tarfile.LNKTYPE, "/etc/passwd")],
        [member("manifest.json", tarfile.FIFOTYPE)],
        [member("manifest.json"), member("manifest.json")],
    ],
)
def test_a_tar_with_links_pipes_or_a_name_twice_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(BackupError, match="twice, or as a link"):
        TarArchive(tar_with(tmp_path / "bad.tar", *members))


def test_other_files_are_no_backups(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").mkdir()
    for name, complaint in (("text", "not a backup"), ("empty", "no manifest"), ("missing", "there is no backup")):
        with pytest.raises(BackupError, match=complaint):
            open_chain(str(tmp_path / name))
    tar_with(tmp_path / "without.tar", member("files/journal/00000001.pnj"))
    with pytest.raises(BackupError, match="no manifest"):
        open_chain(str(tmp_path / "without.tar"))
    OsFiles(tmp_path / "half").make_dir("files")
    with pytest.raises(BackupError, match="never completed"):
        open_chain(str(tmp_path / "half"))
