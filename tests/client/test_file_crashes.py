"""A folder whose process was killed, was not closed, or is still there."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client.errors import ConnectionLost
from penstock.client.sync.session import Session
from penstock.testing import Broker
from tests.client import file_worker

ROUNDS = 3


@contextmanager
def worker(verb: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, file_worker.__file__, verb, folder.as_uri()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until_killed(folder: Path, lines_max: int) -> list[str]:
    """What a process was promised until it was killed, in the middle of whatever it did."""
    with worker("put_for_ever", folder) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(lines_max)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().split("\n")
    return [line for line in lines if line]


@pytest.mark.parametrize("lines_max", [1, 7, 40])
def test_what_was_promised_to_a_process_outlives_it(tmp_path: Path, lines_max: int) -> None:
    promised = until_killed(tmp_path, lines_max)
    assert len(promised) >= lines_max
    with Session(tmp_path.as_uri()) as session:
        consumer = session.consumer_for("work")
        found = [message.text for message in consumer.reserve_many(10_000)]
        assert len(found) == len(set(found)), "a message is there twice"
        finalized = [message.text for message in session.history("work", 10_000)]
        stats = session.stats("work")
        consumer.kick(10_000)
        buried = [message.text for message in consumer.reserve_many(10_000)]
        assert not {*found, *buried} & set(finalized), "a finalized message came back"
        assert not set(found) & set(buried)
        put = [line for line in promised if line.startswith("put ")]
        many = [f"{line} {index}" for line in promised if line.startswith("many ") for index in range(3)]
        settled = [line.partition(": ")[2] for line in promised if ": " in line]
        # Those that wait for later are only counted. One more may have been put there, and not told.
        later = len([line for line in promised if line.startswith("later: ")])
        assert stats.scheduled_count in (later, later + 1)
        missing = {*put, *many} - {*found, *buried, *finalized, *settled}
        assert len(missing) == stats.scheduled_count - later, f"these are lost, or all but one of them: {missing}"
        for line in promised:
            kind, _, text = line.partition(": ")
            if kind == "finalized":
                assert text in finalized
            elif kind == "buried":
                assert text in buried
            elif kind == "later":
                assert text not in found
        # A batch is there whole or not at all.
        everything = {*found, *buried, *finalized, *settled, *missing}
        batches = Counter([text.rpartition(" ")[0] for text in everything if text.startswith("many")])
        assert set(batches.values()) <= {3}


def test_a_folder_survives_one_crash_after_the_other(tmp_path: Path) -> None:
    for _ in range(ROUNDS):
        until_killed(tmp_path, 10)
    with Session(tmp_path.as_uri()) as session:
        stats = session.stats("work")
        assert stats.ready_count >= ROUNDS
        assert len(session.history("work", 10_000)) == stats.finalized_count


def test_a_process_that_ends_without_closing_leaves_the_folder_cleanly(tmp_path: Path) -> None:
    with worker("put_and_leave", tmp_path) as process:
        out, _ = process.communicate()
        assert out.strip() == "left"
        assert process.returncode == 0
    with Session(tmp_path.as_uri()) as session:
        first, second = session.consumer_for("work").reserve_many(5)
        assert (first.text, second.text) == ("a", "b")
        assert second.deliveries == 1, "after a clean stop it is known that nobody had it"


def test_a_folder_that_another_process_has_is_refused_with_its_number(tmp_path: Path) -> None:
    with worker("hold", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().strip() == "open"
        session = Session(tmp_path.as_uri())
        with pytest.raises(ConnectionLost, match=f"process {process.pid}.*penstock serve"):
            session.queues()
        process.stdin.close()
        process.wait()
        # Calling again connects again.
        assert session.queues() == ["work"]
        session.close()


def test_a_folder_that_a_server_has_is_refused(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path),
        Session(tmp_path.as_uri()) as session,
        pytest.raises(ConnectionLost, match="in use"),
    ):
        session.queues()


def test_a_forked_child_does_not_touch_its_parents_folder(tmp_path: Path) -> None:
    with worker("fork", tmp_path) as process:
        out, _ = process.communicate()
    assert out.strip() == "the child ended with 0"
    with Session(tmp_path.as_uri()) as session:
        messages = session.consumer_for("work").reserve_many(5)
        assert [message.text for message in messages] == ["by the parent", "by the parent again"]
