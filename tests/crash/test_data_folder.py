"""Data folders that cannot be used: the broker says why and what to do, ends with 1, and leaves them as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.crash.as_nobody import NOBODY
from tests.crash.broker_process import BrokerProcess
from tests.crash.disks import needs_root, small_disk
from tests.crash.ledger import Ledger, everything_in

pytestmark = pytest.mark.slow


def used_folder(tmp_path: Path, folder: Path) -> list[str]:
    """A folder that a broker has used; the ids of what is in it."""
    with BrokerProcess(folder, tmp_path / "before.log").wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish(50)
        assert broker.stop() == 0
    return publisher.confirmed


def refusal(tmp_path: Path, folder: Path, module: str = "penstock") -> str:
    """What a broker says that does not start."""
    with BrokerProcess(folder, tmp_path / "refused.log", module=module) as broker:
        assert broker.wait_for_exit() == 1, broker.text
        assert "Traceback" not in broker.text
        assert str(folder) in broker.text
        return broker.text


def content(folder: Path) -> dict[str, bytes]:
    """All but the lock, which says who tried last."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path): path.read_bytes() for path in paths}


def check_that_it_still_works(tmp_path: Path, folder: Path, ids: list[str]) -> None:
    with BrokerProcess(folder, tmp_path / "after.log").wait_until_ready() as broker:
        assert everything_in(broker) == ids


def test_a_folder_on_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        ids = used_folder(tmp_path, disk / "data")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        text = refusal(tmp_path, disk / "data")
        assert "read-only" in text
        assert "--data-dir" in text
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        check_that_it_still_works(tmp_path, disk / "data", ids)


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    needs_root()
    folder = tmp_path / "data"
    ids = used_folder(tmp_path, folder)
    before = content(folder)
    text = refusal(tmp_path, folder, module="tests.crash.as_nobody")
    assert f"belongs to user {os.getuid()}, this is user {NOBODY}" in text
    assert content(folder) == before
    check_that_it_still_works(tmp_path, folder, ids)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    needs_root()
    text = refusal(tmp_path, tmp_path / "new" / "data", module="tests.crash.as_nobody")
    assert "Give this user the right to write there" in text
    assert not (tmp_path / "new").exists()


def test_a_folder_of_an_unknown_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ids = used_folder(tmp_path, folder)
    known = (folder / "format").read_bytes()
    (folder / "format").write_bytes(b"penstock 999\n")
    before = content(folder)
    text = refusal(tmp_path, folder)
    assert "'penstock 999'" in text
    assert "use the version of penstock that made the folder" in text
    assert content(folder) == before
    (folder / "format").write_bytes(known)
    check_that_it_still_works(tmp_path, folder, ids)


def test_a_folder_is_used_by_one_broker_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder, tmp_path / "first.log").wait_until_ready() as first:
        publisher = Ledger(first)
        publisher.publish(50)
        assert "in use by another process" in refusal(tmp_path, folder)
        publisher.publish(50)
        first.kill()
    # The lock goes with the process, however that ends.
    check_that_it_still_works(tmp_path, folder, publisher.confirmed)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    assert "not a folder" in refusal(tmp_path, tmp_path / "data")
    assert (tmp_path / "data").read_text() == "mine"


def test_a_copy_of_a_folder_is_as_good_as_the_folder(tmp_path: Path) -> None:
    ids = used_folder(tmp_path, tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    check_that_it_still_works(tmp_path, tmp_path / "copy", ids)


def test_a_broker_that_is_killed_while_it_makes_its_folder_starts_the_next_time(tmp_path: Path) -> None:
    for number in range(12):
        with BrokerProcess(tmp_path / f"data-{number}", tmp_path / "killed.log") as broker:
            broker.runs_for(0.1 + 0.02 * number)
        with BrokerProcess(tmp_path / f"data-{number}", tmp_path / "after.log").wait_until_ready() as broker:
            publisher = Ledger(broker)
            publisher.publish(1)
            assert publisher.confirmed == ["p-1"]
