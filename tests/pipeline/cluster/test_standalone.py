"""The same jobs on a real cluster: a master and two workers that cannot see the broker's folder, only its URL."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

import duckdb
import pika

from penstock.history.opening import open_log
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from tests.cli.commands import Commands, commands
from tests.interop.deadline import wait_until
from tests.pipeline.cluster.hidden_broker import HiddenBroker, hidden_broker
from tests.pipeline.cluster.standalone import SETTINGS, environment, spark_tool, standalone
from tests.pipeline.sink.queues import bodies, channel_to

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc: a folder is hidden by it"),
]

ROOT = Path(__file__).resolve().parents[3]
JOBS = ROOT / "src" / "penstock" / "pipeline" / "jobs"
MESSAGES = 60
ACKED = 20
COMMAND_S = 400


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone(tmp_path_factory.mktemp("spark") / "cluster") as url:
        yield url


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HiddenBroker]:
    with hidden_broker(tmp_path) as running:
        publish(running)
        yield running


def publish(broker: HiddenBroker) -> None:
    with channel_to(broker.amqp) as channel:
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("again", durable=True)
        for number in range(MESSAGES):
            properties = pika.BasicProperties(delivery_mode=2, message_id=str(number))
            # Some of them are in the shared store, whose files the workers do not see either.
            channel.basic_publish("", "orders", body_of(number), properties)
        for _ in range(ACKED):
            method = channel.basic_get("orders")[0]
            channel.basic_ack(method.delivery_tag)  # type: ignore[union-attr]
    with closing(open_log(broker.http)) as log:
        wait_until(lambda: log.state().end_lsn >= MESSAGES + 2 * ACKED, "everything is durable")


def body_of(number: int) -> bytes:
    return b"%d" % number * (3000 if number % 10 == 9 else 1)


def events_of(source: str) -> Counter[tuple[int, str, int]]:
    """(lsn, kind, seq) of the log, read without Spark."""
    request = Request(view="events", columns=("lsn", "kind", "seq"), bodies=False)
    with closing(open_log(source)) as log:
        parts = plan(log, 0, log.state().end_lsn, 2**40, request)
        rows = [row for part in parts for batch in read_range(log, part, request) for row in batch.to_pylist()]
    return Counter((row["lsn"], row["kind"], row["seq"]) for row in rows)


def archived(lake: Path) -> Counter[tuple[int, str, int]]:
    """The same of the lake, read as an outsider would."""
    rows = duckdb.sql(f"SELECT lsn, kind, seq FROM '{lake}/bronze/**/*.parquet'").fetchall()
    return Counter((lsn, kind, seq) for lsn, kind, seq in rows)


def settings() -> list[str]:
    return [text for name, value in SETTINGS.items() for text in ("--conf", f"{name}={value}")]


def run(command: list[str], variables: dict[str, str], folder: Path) -> dict[str, Any]:
    """The JSON object that the command prints as its last line."""
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_workers_that_see_nothing_but_the_url_archive_refine_and_replay(
    master: str, broker: HiddenBroker, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    away = tmp_path / "away"
    away.mkdir()
    # Where PySpark looks for settings; the command has no option for them.
    variables = {**environment(), "PYSPARK_SUBMIT_ARGS": shlex.join([*settings(), "pyspark-shell"])}

    with commands(away, tmp_path / "commands.log", variables) as running:
        there_and_back(running, master, broker, lake)
    assert not any(path.exists() for path in broker.known_paths)


def there_and_back(running: Commands, master: str, broker: HiddenBroker, lake: Path) -> None:
    def penstock(job: str, *arguments: str) -> Any:
        return running.run("pipeline", job, *arguments, "--master", master, "--json", "--driver-memory", "1g")

    told = penstock("archive", "--once", "--source", broker.http, "--lake", str(lake))
    assert (told["lag_events"], told["source"]) == (0, broker.http)
    assert archived(lake) == events_of(broker.http)
    kinds = Counter(kind for _, kind, _ in archived(lake))
    assert kinds == {"published": MESSAGES, "delivered": ACKED, "acked": ACKED}
    stored = duckdb.sql(f"SELECT body FROM '{lake}/bronze/**/*.parquet' WHERE kind = 'published' AND seq >= {ACKED}")
    assert sorted(body for (body,) in stored.fetchall()) == sorted(map(body_of, range(ACKED, MESSAGES)))

    refined = penstock("refine", "--lake", str(lake))
    assert (refined["lives"], refined["open"]) == (ACKED, MESSAGES - ACKED)

    given = ("--queue", "orders", "--to-queue", "again", "--broker", broker.amqp, "--lake", str(lake))
    replayed = penstock("replay", *given, "--where", f"seq >= {ACKED}")
    assert replayed["published"] == MESSAGES - ACKED
    assert sorted(bodies(broker.amqp, "again")) == sorted(map(body_of, range(ACKED, MESSAGES)))


def test_a_job_is_submitted_as_a_file(master: str, broker: HiddenBroker, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    here = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    job = [str(JOBS / "archive.py"), "--once", "--source", broker.http, "--lake", str(lake), "--json"]
    # The Python of this environment, which has penstock installed.
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables["PATH"]])
    told = run([spark_tool("spark-submit"), "--master", master, *settings(), *here, *job], variables, tmp_path)
    assert told["lag_events"] == 0
    assert archived(lake) == events_of(broker.http)
