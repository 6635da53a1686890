"""`penstock backup` and `penstock restore`: what they print, their exit codes, and the commands of the guide."""

from __future__ import annotations

import json
import os
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result
from pika.adapters.blocking_connection import BlockingChannel

from penstock.cli.main import main
from penstock.testing import Broker

GUIDE = (Path(__file__).resolve().parents[2] / "docs/backup.md").read_text(encoding="utf-8")
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def penstock(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def done(*words: object) -> dict[str, Any]:
    result = penstock(*words, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def failed(*words: object) -> str:
    """What it says when it fails: one line."""
    result = penstock(*words)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    return line


@pytest.fixture(autouse=True)
def no_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own process keeps its priority."""
    monkeypatch.setattr(os, "nice", lambda increment: 0)


def publish(channel: BlockingChannel, *bodies: str, queue: str = "orders") -> None:
    for body in bodies:
        channel.basic_publish("", queue, body.encode(), PERSISTENT)


def bodies_in(folder: Path, queue: str = "orders") -> list[str] | None:
    """What a broker with this folder has in the queue; None when there is no such queue."""
    with Broker(data_dir=folder) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        try:
            channel.queue_declare(queue, durable=True, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return None
        found: list[str] = []
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(body.decode())


def lsn_of(broker: Broker) -> int:
    return broker.call(lambda server: server.broker.node.journal.durable_lsn)  # type: ignore[union-attr]


def test_each_act_can_be_the_last_one_that_is_restored(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path / "data")
    points: dict[str, tuple[int, list[str] | None]] = {}
    with Broker(data_dir=tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            done("backup", tmp_path / "full", *data)
            channel.queue_declare("orders", durable=True)
            points["declare"] = (lsn_of(broker), [])
            publish(channel, "a", "b", "c")
            points["publish"] = (lsn_of(broker), ["a", "b", "c"])
            method, _, _ = channel.basic_get("orders")
            assert method is not None
            channel.basic_ack(method.delivery_tag)
            # A durable declaration is answered when everything before it is durable.
            channel.queue_declare("other", durable=True)
            points["ack"] = (lsn_of(broker), ["b", "c"])
            channel.queue_delete("orders")
            points["delete"] = (lsn_of(broker), None)
        made = done("backup", tmp_path / "later.tar", *data, "--incremental-from", tmp_path / "full")
        assert made["notes"] == []
    for name, (lsn, expected) in points.items():
        answer = done("restore", tmp_path / "later.tar", "--data-dir", tmp_path / name, "--to-lsn", lsn)
        assert answer["lsn"] == lsn
        assert penstock("fsck", tmp_path / name).exit_code == 0
        assert bodies_in(tmp_path / name) == expected, name


def test_a_moment_in_time_is_rounded_down_to_a_batch(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path / "data")
    with Broker(data_dir=tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            done("backup", tmp_path / "full", *data)
            publish(channel, "early")
            # The journal's clock shows milliseconds, and is read when a batch is written.
            connection.sleep(0.05)
            moment = datetime.now(UTC)
            connection.sleep(0.05)
            publish(channel, "late")
        done("backup", tmp_path / "later", *data, "--incremental-from", tmp_path / "full")
    done("restore", tmp_path / "later", "--data-dir", tmp_path / "then", "--to-time", moment.isoformat())
    assert bodies_in(tmp_path / "then") == ["early"]
    early = failed("restore", tmp_path / "later", "--data-dir", tmp_path / "no", "--to-time", "2001-01-01")
    assert "it can be restored to times from" in early


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path) -> None:
    assert "there is no data folder" in failed("backup", tmp_path / "b", "--data-dir", tmp_path / "none")
    assert "there is no backup" in failed("restore", tmp_path / "none", "--data-dir", tmp_path / "new")
    assert "there is no backup" in failed("backup", "verify", tmp_path / "none")
    data = ("--data-dir", tmp_path / "data")
    with Broker(data_dir=tmp_path / "data"):
        done("backup", tmp_path / "b", *data)
        assert "is not empty" in failed("backup", tmp_path / "b", *data)
        done("backup", tmp_path / "b.tar", *data)
        assert "exists already" in failed("backup", tmp_path / "b.tar", *data)
        assert "the data folder is in use" not in failed("restore", tmp_path / "b", *data)
    both = penstock("restore", tmp_path / "b", "--data-dir", "x", "--to-lsn", "1", "--to-time", "2026-11-18")
    assert both.exit_code == 2
    assert penstock("restore", tmp_path / "b", "--data-dir", "x", "--to-time", "noon").exit_code == 2
    path = next((tmp_path / "b/files/journal").iterdir())
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    verified = penstock("backup", "verify", tmp_path / "b")
    assert verified.exit_code == 1
    assert "1 damaged" in verified.stdout


def test_others_cannot_read_a_backup(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Broker(data_dir=tmp_path / "data"):
            done("backup", tmp_path / "folder", "--data-dir", tmp_path / "data")
            done("backup", tmp_path / "one.tar", "--data-dir", tmp_path / "data")
        done("restore", tmp_path / "folder", "--data-dir", tmp_path / "new")
    finally:
        os.umask(before)
    written = [
        path for name in ("folder", "one.tar", "new") for path in (tmp_path / name, *(tmp_path / name).rglob("*"))
    ]
    assert len(written) > 10
    assert not [path for path in written if path.stat().st_mode & 0o077]


def test_the_commands_of_the_guide_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    commands = [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]
    assert [command[0] for command in commands] == [
        *("backup", "backup", "backup", "restore", "fsck", "restore", "restore")
    ]
    with (
        Broker(data_dir=tmp_path / "data") as broker,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        publish(channel, "monday")
        assert penstock(*commands[0]).exit_code == 0
        publish(channel, "noon")
        lsn = lsn_of(broker)
        connection.sleep(0.05)
        noon = datetime.now(UTC).isoformat()
        connection.sleep(0.05)
        publish(channel, "evening")
        assert penstock(*commands[1]).exit_code == 0
    placed = {"60880": str(lsn), "2026-11-16T12:00:00Z": noon}
    for command in commands[2:]:
        result = penstock(*[placed.get(word, word) for word in command])
        assert result.exit_code == 0, result.output
    assert bodies_in(tmp_path / "restored") == ["monday", "noon", "evening"]
    assert bodies_in(tmp_path / "before") == bodies_in(tmp_path / "noon") == ["monday", "noon"]
