"""`penstock backup` of a real broker under load, killed in the middle, and `penstock restore` of what it made."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from tests.cli.process import environment
from tests.crash.broker_process import ROOT, BrokerProcess
from tests.crash.ledger import Ledger, Reader, everything_in
from tests.crash.messages import PERSISTENT, body_of, publish_frames

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="the control socket and kill -9 are POSIX"),
]
TINY_LIMITS = "tests.crash.small_store"
COMMAND_S = 120.0


def penstock(
    *arguments: object, module: str = "penstock", words: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words, *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def done(*arguments: object) -> dict[str, Any]:
    run = penstock(*arguments, "--json")
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log", module=TINY_LIMITS) as running:
        yield running.wait_until_ready()


def started(folder: Path) -> BrokerProcess:
    return BrokerProcess(folder, folder.with_suffix(".log"), module=TINY_LIMITS).wait_until_ready()


class Load:
    """A publisher with confirms, a consumer, and queues that come and go, until it is told to stop."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._is_over = threading.Event()
        self.publisher = Ledger(broker)
        self.reader = Reader(broker)
        self._passing = broker.connect()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work,))
            for work in (self._publish, self._consume, self._come_and_go)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        assert not self._errors, self._errors

    def _run(self, work: Any) -> None:
        number = 0
        try:
            while not self._is_over.is_set():
                number += 1
                work(number)
        except BaseException as error:
            self._errors.append(error)

    def _publish(self, number: int) -> None:
        # Some of them go to the shared store.
        self.publisher.publish(20, 6000 if number % 4 == 0 else 400)

    def _consume(self, number: int) -> None:
        self.reader.take()

    def _come_and_go(self, number: int) -> None:
        """A queue with more than it keeps in memory, and its end: files that are made and removed."""
        name = f"passing-{number}"
        link = self._passing
        link.call(commands.Queue.Declare(0, name, durable=True), commands.Queue.DeclareOk)
        for size in (300, 5000):
            ids = [f"{name}-{size}-{each}" for each in range(300)]
            link.send(b"".join(publish_frames("", name, each, 0, PERSISTENT, body_of(each, size)) for each in ids))
        link.call(commands.Queue.Delete(0, name), commands.Queue.DeleteOk)


@pytest.mark.slow
def test_under_load_a_backup_has_all_that_was_confirmed_and_nothing_else(broker: BrokerProcess, tmp_path: Path) -> None:
    ready = Ledger(broker, "p0")
    ready.publish(3000, 300)
    first = Reader(broker)
    first.take_at_least(500)
    first.link.close()
    taken = set(first.ids)
    base: list[str] = []
    backups: list[tuple[Path, set[str], set[str], set[str]]] = []
    with Load(broker) as load:
        for number in range(3):
            target = tmp_path / (f"backup-{number}" if number % 2 else f"backup-{number}.tar")
            confirmed = {*ready.confirmed, *load.publisher.confirmed}
            done("backup", target, "--data-dir", tmp_path / "data", *base)
            backups.append((target, confirmed, taken | set(load.reader.ids), {*ready.confirmed}))
            base = ["--incremental-from", str(target)]
    assert broker.process.poll() is None
    sent_max = len(load.publisher.confirmed) + len(load.publisher.refused)
    for target, confirmed, gone, _ in backups:
        folder = tmp_path / f"restored-{target.stem}"
        answer = done("restore", target, "--data-dir", folder)
        assert penstock("fsck", folder).returncode == 0
        with started(folder) as again:
            found = everything_in(again)
            again.stop()
        assert len(found) == len(set(found))
        assert confirmed - gone <= set(found), "confirmed before, and acknowledged by nobody"
        known = {*ready.confirmed, *(f"p-{tag}" for tag in range(1, sent_max + 1))}
        assert set(found) <= known, "invented"
        assert answer["messages"] >= len(found)
    # What was acknowledged and answered before the first one began is not in any of them.
    assert not taken & set(found)


BACKUP_PHASES = ("checkpoint", "queues", "journal", "large messages", "audit log", "manifest")
RESTORE_PHASES = ("copying", "journal", "folder", "checking", "done")


@pytest.mark.slow
def test_a_backup_that_is_killed_is_none_and_the_broker_goes_on(broker: BrokerProcess, tmp_path: Path) -> None:
    ledger = Ledger(broker)
    arguments = ("--data-dir", tmp_path / "data")
    for number, phase in enumerate(BACKUP_PHASES):
        ledger.publish(100)
        target = tmp_path / (f"killed-{number}" if number % 2 else f"killed-{number}.tar")
        killed = penstock("backup", target, *arguments, module="tests.backup.dying", words=(phase,))
        assert killed.returncode == -signal.SIGKILL
        verified = penstock("backup", "verify", target)
        assert verified.returncode == 1
        assert len(verified.stderr.splitlines()) == 1
    ledger.publish(100)
    broker.stop()
    done("backup", tmp_path / "whole", *arguments)
    done("restore", tmp_path / "whole", "--data-dir", tmp_path / "new")
    with started(tmp_path / "new") as again:
        assert sorted(everything_in(again)) == sorted(ledger.confirmed)


@pytest.mark.slow
def test_a_restore_that_is_killed_leaves_a_folder_that_no_broker_takes(broker: BrokerProcess, tmp_path: Path) -> None:
    Ledger(broker).publish(300)
    done("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
    for number, phase in enumerate(RESTORE_PHASES):
        target = ("--data-dir", tmp_path / f"new-{number}")
        killed = penstock("restore", tmp_path / "backup", *target, module="tests.backup.dying", words=(phase,))
        assert killed.returncode == -signal.SIGKILL
        serving = penstock("serve", *target, "--port", "0")
        assert serving.returncode == 1
        assert "did not come to its end: remove the folder, and restore it again" in serving.stderr
    again = penstock("restore", tmp_path / "backup", *target)
    assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)
    assert "is not empty" in again.stderr


def test_a_folder_that_is_killed_and_not_started_again_can_be_backed_up(broker: BrokerProcess, tmp_path: Path) -> None:
    ledger = Ledger(broker)
    ledger.publish(500)
    broker.kill()
    made = done("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
    assert made["online"] is False
    done("restore", tmp_path / "backup", "--data-dir", tmp_path / "new")
    with started(tmp_path / "new") as again:
        assert sorted(everything_in(again)) == sorted(ledger.confirmed)


def test_while_a_stopped_folder_is_backed_up_no_broker_starts_in_it(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.stop()
    from penstock.backup.taking.stopped_folder import StoppedFolder
    from penstock.disk.os_files import OsFiles

    source = StoppedFolder(OsFiles(tmp_path / "data"))
    source.begin()
    try:
        refused = penstock("serve", "--data-dir", tmp_path / "data", "--port", "0")
        second = penstock("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
    finally:
        source.end()
    assert refused.returncode == 1
    assert "in use by another process" in refused.stderr
    assert second.returncode == 1
    assert "the data folder is in use" in second.stderr
