"""`penstock serve` with queues in PostgreSQL: its options, its errors, and a database of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pika
import pytest

from penstock.pg.binaries import PostgresMissing, find
from tests.cli.process import ServeProcess, environment

POSTGRES = {"x-backing": "postgres"}


def serve(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**variables),
    )


def test_help_names_the_options_and_the_variable() -> None:
    text = " ".join(serve("--help").stdout.split())
    for name in ("--postgres URL|embedded", "--postgres-schema NAME", "--postgres-queues PATTERN"):
        assert name in text
    assert "PENSTOCK_POSTGRES_URL" in text


@pytest.mark.parametrize("as_variable", [False, True], ids=["option", "variable"])
def test_a_database_that_cannot_be_reached_ends_the_start_with_advice(as_variable: bool) -> None:
    url = "postgresql://127.0.0.1:1/none"
    if as_variable:
        ended = serve("--in-memory", PENSTOCK_POSTGRES_URL=url)
    else:
        ended = serve("--in-memory", "--postgres", url)
    assert ended.returncode == 1
    assert "penstock: cannot use PostgreSQL" in ended.stderr
    assert "Check --postgres" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_patterns_need_a_database() -> None:
    ended = serve("--in-memory", "--postgres-queues", "*")
    assert ended.returncode == 1
    assert "give --postgres URL" in ended.stderr


def test_an_embedded_database_needs_a_folder() -> None:
    ended = serve("--in-memory", "--postgres", "embedded")
    assert ended.returncode == 1
    assert "give --data-dir" in ended.stderr


def test_without_psycopg_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('no psycopg here')\n")
    ended = serve("--in-memory", "--postgres", "postgresql://h/d", PYTHONPATH=os.pathsep.join([str(tmp_path)]))
    assert ended.returncode == 1
    assert "pip install 'penstock[postgres]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_schema_of_another_name_is_made(penstock_url: str, tmp_path: Path) -> None:
    process = ServeProcess(
        tmp_path, "--port", "0", "--postgres", penstock_url, "--postgres-schema", "other", "--postgres-queues", "a*"
    )
    try:
        connection = pika.BlockingConnection(pika.URLParameters(f"amqp://127.0.0.1:{process.ready().port}/"))
        channel = connection.channel()
        channel.queue_declare("apples", durable=True)
        channel.basic_publish("", "apples", b"one")
        assert channel.queue_declare("apples", passive=True).method.message_count == 1
        connection.close()
    finally:
        process.stop()
    import psycopg

    with psycopg.connect(penstock_url) as sql:
        assert sql.execute("SELECT other.count_ready('apples')").fetchone() == (1,)
        assert sql.execute("SELECT count(*) FROM other.participants").fetchone() == (0,)


@pytest.mark.slow
def test_an_embedded_database_keeps_messages_over_a_restart(tmp_path: Path) -> None:
    try:
        find()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    # A server's user cannot enter pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="penstock-embedded-") as folder:
        Path(folder).chmod(0o755)
        for run in range(2):
            process = ServeProcess(
                tmp_path, "--port", "0", "--postgres", "embedded", PENSTOCK_DATA_DIR=str(Path(folder) / "data")
            )
            try:
                connection = pika.BlockingConnection(pika.URLParameters(f"amqp://127.0.0.1:{process.ready().port}/"))
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("q", durable=True, arguments=POSTGRES)
                assert channel.queue_declare("q", passive=True).method.message_count == run
                channel.basic_publish("", "q", b"a")
                connection.close()
            finally:
                process.stop()
