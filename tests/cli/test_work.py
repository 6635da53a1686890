"""`penstock work`, `penstock put` and `penstock queues` as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.client.sync.session import Session
from penstock.pg.embedded import EmbeddedPostgres
from penstock.testing import Broker
from tests.cli.process import environment
from tests.cli.work_process import ROOT, WorkProcess, is_alive, open_gate
from tests.interop.deadline import wait_until
from tests.worker.running import put, wait_for_lines

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork; jobs run inline there")

SHOP = "tests.worker.shop"
ALL = ("--app", SHOP, "--allow", f"{SHOP}:*")
Work = Callable[..., WorkProcess]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    """Starts a worker that runs the shop."""
    with ExitStack() as running:

        def start(url: str, *arguments: str) -> WorkProcess:
            started = WorkProcess(tmp_path, url, *ALL, *arguments)
            running.callback(started.stop)
            return started

        yield start


@pytest.fixture
def gate(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "gate")
    return str(tmp_path / "gate")


def notes(session: Session, queue: str = "default") -> list[str | None]:
    return [message.finalized_note for message in session.history(queue)]


# --- jobs ---------------------------------------------------------------------------------------------


def test_a_burst_runs_what_is_there_and_ends(work: Work, penstock_url: str) -> None:
    with Session(penstock_url) as session:
        put(session, "default", "add", 1, b=2)
        put(session, "default", "echo", "zwei")
        worker = work(penstock_url, "--burst")
        assert worker.wait_until_it_ends() == 0, worker.log
        assert [(report["outcome"], report["note"]) for report in worker.reports] == [("done", "3"), ("done", '"zwei"')]
        assert worker.reports[0].keys() == {
            *("queue", "id", "job", "outcome", "attempt", "seconds", "note", "retry_in_s"),
        }
        assert sorted(map(str, notes(session))) == ['"zwei"', "3"]


def test_blank_queues_are_dropped_and_without_any_it_is_the_default_one(work: Work, penstock_url: str) -> None:
    with Session(penstock_url) as session:
        put(session, "default", "echo", 1)
        worker = work(penstock_url, "", "  ", "--burst")
        assert worker.wait_until_it_ends() == 0
        assert [report["queue"] for report in worker.reports] == ["default"]


@pytest.mark.parametrize("isolation", [(), ("--isolation", "pool", "--concurrency", "3"), ("--isolation", "inline")])
def test_many_jobs_are_each_run_once(work: Work, penstock_url: str, isolation: tuple[str, ...]) -> None:
    with Session(penstock_url) as session:
        ids = [put(session, "default", "echo", number) for number in range(40)]
        worker = work(penstock_url, "--burst", *isolation)
        assert worker.wait_until_it_ends() == 0, worker.log
        assert sorted(report["id"] for report in worker.reports) == sorted(ids)
        assert {report["outcome"] for report in worker.reports} == {"done"}


def test_a_worker_that_waits_is_woken_by_a_message(work: Work, penstock_url: str) -> None:
    worker = work(penstock_url)
    with Session(penstock_url) as session:
        wait_until(lambda: session.stats("default").consumer_count == 1, "the worker waits")
        put(session, "default", "echo", "awake")
        assert worker.wait_for_reports(1)[0]["note"] == '"awake"'


def test_a_job_has_no_connection_of_its_worker(work: Work, penstock_url: str) -> None:
    with Session(penstock_url) as session:
        put(session, "default", "open_sockets")
        worker = work(penstock_url, "--burst")
        assert worker.wait_until_it_ends() == 0
        # The one to the worker.
        assert worker.reports[0]["note"] == "1"


def test_what_a_job_prints_is_not_among_the_json_lines(work: Work, penstock_url: str) -> None:
    with Session(penstock_url) as session:
        put(session, "default", "say", "a word of the job")
    for isolation in ("fork", "inline"):
        with Session(penstock_url) as session:
            put(session, "default", "say", "a word of the job")
        worker = work(penstock_url, "--burst", "--isolation", isolation)
        assert worker.wait_until_it_ends() == 0
        assert {report["note"] for report in worker.reports} == {"null"}
        assert "a word of the job" in worker.log


# --- kills and stops ----------------------------------------------------------------------------------


@pytest.fixture(params=["postgres", "amqp", "file"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("penstock_url")
    elif request.param == "file":
        yield f"file://{tmp_path / 'queues'}"
    else:
        with Broker() as broker:
            yield broker.url


def test_a_killed_worker_loses_its_job_to_another_and_its_child_dies(
    work: Work, any_url: str, tmp_path: Path, gate: str
) -> None:
    told = tmp_path / "told"
    with Session(any_url) as session:
        put(session, "default", "hold_once", str(told), gate)
    first = work(any_url)
    pid = int(wait_for_lines(told)[0])
    first.signal(signal.SIGKILL)
    first.wait_until_it_ends()
    wait_until(lambda: not is_alive(pid), "the child has died with its worker")
    second = work(any_url, "--max-jobs", "1")
    assert second.wait_until_it_ends() == 0, second.log
    assert [(report["note"], report["attempt"]) for report in second.reports] == [('"second time"', 2)]
    with Session(any_url) as session:
        assert session.stats("default").ready_count == 0
        if session.has_history:
            assert notes(session) == ['"second time"']


def test_a_killed_child_costs_an_attempt(work: Work, penstock_url: str, tmp_path: Path, gate: str) -> None:
    told = tmp_path / "told"
    with Session(penstock_url) as session:
        put(session, "default", "hold_once", str(told), gate)
        worker = work(penstock_url, "--backoff", "0", "--max-jobs", "2")
        os.kill(int(wait_for_lines(told)[0]), signal.SIGKILL)
        assert worker.wait_until_it_ends() == 0, worker.log
        assert [report["outcome"] for report in worker.reports] == ["retry", "done"]
        assert "SIGKILL" in worker.reports[0]["note"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_end(
    work: Work, penstock_url: str, tmp_path: Path, gate: str, number: signal.Signals
) -> None:
    told = tmp_path / "told"
    with Session(penstock_url) as session:
        for _ in range(2):
            put(session, "default", "hold", str(told), gate)
        worker = work(penstock_url)
        pid = int(wait_for_lines(told)[0])
        worker.signal(number)
        # A service manager sends it to every process of the service.
        os.kill(pid, signal.SIGTERM)
        open_gate(gate)
        assert worker.wait_until_it_ends() == 0, worker.log
        assert [report["note"] for report in worker.reports] == ['"released"']
        assert session.stats("default").ready_count == 1


def test_a_second_signal_gives_the_job_back_at_once(work: Work, penstock_url: str, tmp_path: Path, gate: str) -> None:
    told = tmp_path / "told"
    with Session(penstock_url) as session:
        put(session, "default", "hold", str(told), gate)
        worker = work(penstock_url, "--grace", "3600")
        pid = int(wait_for_lines(told)[0])
        assert worker.stop() == 0, worker.log
        assert [report["outcome"] for report in worker.reports] == ["requeued"]
        assert not is_alive(pid)
        assert session.stats("default").ready_count == 1


@pytest.mark.parametrize("kind", ["postgres", "file"])
def test_a_worker_that_waits_ends_at_a_signal(
    work: Work, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    url = f"file://{tmp_path / 'queues'}" if kind == "file" else request.getfixturevalue("penstock_url")
    worker = work(url, "--log-level", "debug")
    wait_until(lambda: "waits for jobs" in worker.log, "it waits")
    worker.signal(signal.SIGINT)
    assert worker.wait_until_it_ends() == 0, worker.log
    assert "Traceback" not in worker.log


def test_a_server_that_restarts_is_survived(
    work: Work, own_postgres: EmbeddedPostgres, tmp_path: Path, gate: str
) -> None:
    told = tmp_path / "told"
    url = own_postgres.url
    with Session(url, install=True) as session:
        put(session, "default", "hold_once", str(told), gate)
    worker = work(url)
    wait_for_lines(told)
    own_postgres.restart()
    open_gate(gate)
    # It ended in this worker, or was taken for lost and run again; in either case it is done, and the worker works.
    with Session(url) as session:
        wait_until(lambda: len(notes(session)) == 1, f"the job is done; the log: {worker.log}")
        put(session, "default", "echo", "after")
        wait_until(lambda: '"after"' in notes(session), f"the next is done; the log: {worker.log}")


# --- words --------------------------------------------------------------------------------------------


def run_command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(**variables),
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--app", SHOP), "set PENSTOCK_URL or give --url"),
        (("--url", "mysql://x", "--app", SHOP), "starts with postgresql://"),
        (("--url", "file:///nowhere"), "--app MODULE or --allow MODULE:NAME"),
        (("--url", "file:///nowhere", "--app", "no.such"), "there is no module 'no.such'"),
        (("--url", "file:///nowhere", "--allow", "system"), "write MODULE:NAME"),
        (("--url", "file:///nowhere", "--app", SHOP, "--timezone", "Mars/Base"), "Mars/Base"),
        (("--url", "file:///nowhere", "--cron", f"60 * * * * {SHOP}:echo"), "minute '60'"),
        (("--url", "file:///nowhere", "--cron", "nonsense"), "write five fields"),
        (("--url", "file:///nowhere", "--app", SHOP, "--timeout", "nan"), "'nan' is no number of seconds"),
        (("--url", "file:///nowhere", "--app", SHOP, "--backoff", "inf"), "is not in the range"),
        (("--url", "file:///nowhere", "--app", SHOP, "x" * 2000), "a queue's name has 1 to 1024 bytes"),
        (("--url", "file:///nowhere", "--cron", f"@daily {SHOP}:echo"), "cron calls jobs without arguments"),
        (("--url", "file:///nowhere", "--app", SHOP, "--isolation", "inline", "--timeout", "1"), "use fork or pool"),
    ],
)
def test_wrong_options_say_what_to_do(arguments: tuple[str, ...], words: str) -> None:
    done = run_command("work", *arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_a_database_without_the_schema_is_refused_with_the_way_out(postgres_url: str) -> None:
    done = run_command("work", "--app", SHOP, "--url", postgres_url)
    assert done.returncode == 1
    assert "penstock pg install" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_named() -> None:
    done = run_command("work", "--app", SHOP, "--url", "postgresql://127.0.0.1:1/nothing")
    assert done.returncode == 1
    assert "cannot connect" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_option_is_explained() -> None:
    done = CliRunner().invoke(main, ["work", "--help"])
    assert done.exit_code == 0
    for word in ("--allow", "--cron", "--isolation", "--grace", "--json", "Exit codes", "PENSTOCK_URL", "retry_in_s"):
        assert word in done.output


def test_put_and_queues_show_what_is_there(penstock_url: str) -> None:
    first = run_command("put", "mail", "hello", PENSTOCK_URL=penstock_url)
    assert first.returncode == 0, first.stderr
    later = run_command("put", "mail", "later", "--delay", "3600", "--json", PENSTOCK_URL=penstock_url)
    assert json.loads(later.stdout)["queue"] == "mail"
    assert json.loads(later.stdout)["id"] != first.stdout.strip()
    listed = run_command("queues", "--json", PENSTOCK_URL=penstock_url)
    stats: dict[str, Any] = json.loads(listed.stdout)
    assert (stats["queue"], stats["ready_count"], stats["scheduled_count"]) == ("mail", 1, 1)
    assert "ready_count=1" in run_command("queues", PENSTOCK_URL=penstock_url).stdout
    with Session(penstock_url) as session:
        message = session.consumer_for("mail").reserve(wait=5)
        assert message is not None
        assert (message.id, message.payload) == (first.stdout.strip(), b"hello")


def test_put_without_a_place_says_what_to_do() -> None:
    done = run_command("put", "mail", "x")
    assert done.returncode == 2
    assert "PENSTOCK_URL" in done.stderr


def test_on_a_terminal_there_is_a_progress_line(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'queues'}"
    with Session(url) as session:
        put(session, "default", "echo", 1)
        put(session, "default", "leave", 3)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "work", "--burst", *ALL],
        stderr=theirs,
        cwd=ROOT,
        env=environment(PENSTOCK_URL=url),
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            # How Linux says that the other end of a terminal is closed.
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert process.wait(60) == 0
    text = seen.decode()
    assert "default  running 0  done 1  failed 1" in text
    assert "SystemExit: 3" in text
