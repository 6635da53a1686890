"""Counters in PostgreSQL beside the rows that they count: what is wrong is found and set right, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import main
from penstock.errors import StartupError
from penstock.pipeline.reconcile.postgres import COUNTERS, recount, repair
from tests.postgres.plain_sql import PlainSql

pytest.importorskip("pyarrow", reason="needs Arrow: pip install 'penstock[pipeline]'")


@pytest.fixture
def sql(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connected:
        yield connected


def fill(sql: PlainSql) -> None:
    """One message in each state, and one more that is ready, in a queue; another queue is empty."""
    sql.one("SELECT penstock.use_queue('empty')")
    ids = sql.put("work", "to be finalized", "to be buried", "reserved", "ready", "ready, too")
    assert sql.reserve("work", 3) == ids[:3]
    sql.column("SELECT penstock.finalize_many('work', %s)", ids[:1])
    sql.column("SELECT penstock.bury('work', %s)", ids[1:2])
    sql.one("SELECT penstock.put('work', 'later', now() + interval '1 h')")


def reconcile(*arguments: str, code: int) -> Result:
    variables = {"PENSTOCK_SOURCE": None, "PENSTOCK_LAKE": None, "PENSTOCK_USER": None, "PENSTOCK_PASSWORD": None}
    result = CliRunner(env=variables).invoke(main, ["pipeline", "reconcile", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_counters_that_are_right_are_not_called_wrong(penstock_url: str, sql: PlainSql) -> None:
    fill(sql)
    # Some of them folded, some not.
    sql.one("SELECT penstock.fold_stats()")
    sql.put("work", "one more")
    found = recount(penstock_url)
    assert (found.queues, found.counters, found.differences) == (2, 2 * len(COUNTERS), ())


@pytest.mark.parametrize("counter", COUNTERS)
def test_each_counter_that_is_wrong_is_named(penstock_url: str, sql: PlainSql, counter: str) -> None:
    fill(sql)
    sql.one("SELECT penstock.fold_stats()")
    right = sql.stats("work")[counter]
    sql.connection.execute(
        "UPDATE penstock.stats_totals SET value = value + 7 WHERE name = %s", [counter.removesuffix("_count")]
    )
    [wrong] = recount(penstock_url).differences
    shown = {"where": "postgres", "vhost": None, "queue": "work", "counter": counter}
    assert asdict(wrong) == {**shown, "reported": right + 7, "counted": right}
    repair(penstock_url)
    assert recount(penstock_url).differences == ()
    assert sql.stats("work")[counter] == right


def test_who_puts_and_takes_meanwhile_raises_no_alarm(penstock_url: str, sql: PlainSql) -> None:
    stop = threading.Event()
    done = 0

    def work() -> None:
        nonlocal done
        with PlainSql(penstock_url) as own:
            while not stop.is_set():
                own.put("work", "a", "b")
                own.column("SELECT penstock.finalize_many('work', %s)", own.reserve("work", 1))
                done += 1

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        looks = 0
        while looks < 20 or done < 20:
            assert recount(penstock_url).differences == ()
            if looks == 10:
                sql.one("SELECT penstock.fold_stats()")
            looks += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_the_command_finds_what_is_wrong_and_repairs_it_when_asked(
    penstock_url: str, sql: PlainSql, tmp_path: Path
) -> None:
    fill(sql)
    asked = ("--postgres", penstock_url, "--lake", str(tmp_path / "lake"))
    assert reconcile(*asked, code=0).stdout == "10 counters of 2 queues compared, 0 differ\n"
    sql.connection.execute("INSERT INTO penstock.stats_deltas (queue_id, ready) SELECT penstock.use_queue('work'), 5")
    lines = reconcile(*asked, code=1).stdout.splitlines()
    assert lines[0] == "DIFFERS   postgres: work: ready_count is reported as 7, and counted 2"
    assert lines[1] == "10 counters of 2 queues compared, 1 differ"
    alarm = status_of(tmp_path / "lake")["alarms"]
    assert alarm == ["1 counters differ from what was counted; run `penstock pipeline reconcile`"]
    found = json.loads(reconcile(*asked, "--repair", "--json", code=1).stdout)
    assert (len(found["differences"]), found["repaired"], found["lsn"]) == (1, True, None)
    assert status_of(tmp_path / "lake")["alarms"] == []
    assert json.loads(reconcile(*asked, "--json", code=0).stdout)["differences"] == []


def status_of(lake: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(
        CliRunner().invoke(main, ["pipeline", "status", "--lake", str(lake), "--json"]).stdout
    )
    return found


def test_what_is_repaired_is_said(penstock_url: str, sql: PlainSql) -> None:
    fill(sql)
    sql.connection.execute("INSERT INTO penstock.stats_deltas (queue_id, ready) SELECT penstock.use_queue('work'), 5")
    text = reconcile("--postgres", penstock_url, "--repair", code=1).stdout
    assert text.endswith("10 counters of 2 queues compared, 1 differ\nthe counters of PostgreSQL were set right\n")


def test_a_database_that_is_not_there_or_not_penstocks_is_told_in_one_line(postgres_url: str) -> None:
    with pytest.raises(StartupError, match=r"relation .* does not exist; check --postgres and --schema"):
        recount(postgres_url)
    with pytest.raises(StartupError, match="PostgreSQL cannot be asked"):
        repair(postgres_url)
    said = reconcile("--postgres", "postgresql://127.0.0.1:1/nowhere", code=1).stderr
    assert said.startswith("penstock: PostgreSQL cannot be asked")
    assert len(said.splitlines()) == 1


def test_a_schema_of_another_name_is_no_sql(penstock_url: str) -> None:
    with pytest.raises(StartupError, match="does not exist"):
        recount(penstock_url, 'penstock"; DROP SCHEMA penstock CASCADE; --')
    assert recount(penstock_url).differences == ()


def test_nothing_to_compare_is_told() -> None:
    assert "give --source URL, or --postgres URL" in reconcile(code=1).stderr
