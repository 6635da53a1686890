"""All commands of `penstock pipeline`, one after the other, with the arguments that a user types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Commands, commands
from tests.cli.conftest import Serve
from tests.cli.process import ServeProcess, environment

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

import pika

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PUBLISHED, TAKEN, REJECTED = 60, 40, 4


def live(port: int) -> None:
    """60 messages: 36 acked, 4 dead-lettered into another queue, 20 left."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("dead", durable=True)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("orders", durable=True, arguments=dead)
        for number in range(PUBLISHED):
            channel.basic_publish("", "orders", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        for number in range(TAKEN):
            tag = channel.basic_get("orders")[0].delivery_tag  # type: ignore[union-attr]
            if number % 10 == 9:
                channel.basic_reject(tag, requeue=False)
            else:
                channel.basic_ack(tag)


def test_the_whole_way_from_the_journal_to_the_lake_and_back(serve: Serve, tmp_path: Path) -> None:
    broker = serve("--port", "0", "--http-port", "0").ready()
    live(broker.port)
    with commands(tmp_path, tmp_path / "commands.log", environment()) as running:
        check_walk(running, broker, tmp_path)


def check_walk(running: Commands, broker: ServeProcess, tmp_path: Path) -> None:
    def penstock(*arguments: str, code: int = 0) -> Any:
        return running.run("pipeline", *arguments, "--json", code=code)

    url = f"http://127.0.0.1:{broker.ready_line['http_port']}"
    amqp = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    lake = ("--lake", "lake")

    # Reconcile waits until all of it is durable; so what follows has all of it.
    found = penstock("reconcile", "--source", url)
    assert (found["queues"], found["differences"]) == (2, [])

    archived = penstock("archive", "--once", "--source", url, *lake)
    assert (archived["lag_events"], archived["running"]) == (0, False)
    refined = penstock("refine", *lake)
    assert (refined["lives"], refined["open"]) == (TAKEN, PUBLISHED - TAKEN + REJECTED)

    written = [tmp_path / "lake", *(tmp_path / "lake").rglob("*")]
    readable = [path for path in written if path.stat().st_mode & 0o077]
    assert not readable, "others may see what messages there are"

    report = penstock("report", "--out", "page.html", *lake)
    assert {queue["queue"] for queue in report["queues"]} == {"orders", "dead"}
    assert "orders" in (tmp_path / "page.html").read_text()
    forecast = penstock("forecast", *lake)
    assert {queue["queue"]: queue["depth"] for queue in forecast["queues"]} == {
        "orders": PUBLISHED - TAKEN,
        "dead": REJECTED,
    }

    triage = penstock("triage", *lake)
    [group] = triage["groups"]
    assert (group["queue"], group["reason"], group["count"]) == ("orders", "rejected", REJECTED)
    chosen = ("--queue", "orders", "--outcome", "dead-lettered", "--dry-run")
    replayed = penstock("replay", *lake, "--broker", amqp, *chosen)
    assert (replayed["published"], sum(replayed["by_queue"].values())) == (0, REJECTED)

    maintained = penstock("maintain", "--keep-days", "bronze=90", *lake)
    assert [table["expired_files"] for table in maintained["tables"]] == [0, 0, 0, 0]
    status = penstock("status", *lake)
    assert (status["archive_lag_events"], status["refine_lag_events"], status["alarms"]) == (0, 0, [])

    # With the broker gone, status says what it knows, and that it does not know more.
    broker.stop()
    status = penstock("status", *lake, code=1)
    assert status["end_lsn"] is None
    assert "does not answer" in status["alarms"][0]
    assert {table["table"]: table["rows"] for table in status["tables"]}["silver"] == TAKEN
