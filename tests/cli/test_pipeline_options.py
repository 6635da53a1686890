"""`penstock pipeline` at the door: what help says, what is refused before Spark starts, and in which words."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import main
from penstock.errors import StartupError

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

from penstock.pipeline.spark_errors import LINE_MAX, check_master, in_words
from tests.history.small_broker import http_broker, http_port

COMMANDS = ("archive", "refine", "run", "report", "replay", "reconcile", "triage", "forecast", "maintain", "status")
WITH_SPARK = ("archive", "refine", "run", "replay", "reconcile", "triage")
VARIABLES = dict.fromkeys(
    ("PENSTOCK_SOURCE", "PENSTOCK_LAKE", "PENSTOCK_USER", "PENSTOCK_PASSWORD", "PENSTOCK_URL", "PENSTOCK_DATA_DIR")
)
BROKER = ("--broker", "amqp://127.0.0.1:1")


def invoke(*arguments: str, **variables: str) -> Result:
    return CliRunner(env={**VARIABLES, **variables}).invoke(main, ["pipeline", *arguments])


def refused(*arguments: str, code: int = 1, **variables: str) -> str:
    """What is said on the standard error: one line, unless the options are wrong. Never a traceback."""
    result = invoke(*arguments, **variables)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if code == 1:
        assert result.stderr.startswith("penstock: ")
        assert len(result.stderr.splitlines()) == 1
    return result.stderr


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may start Spark: what is wrong is told before that."""

    def never(*given: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("penstock.pipeline.session.spark_session", never)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_the_group_says_in_words_what_there_is() -> None:
    text = invoke("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in text
    assert "Exit codes: 0" in " ".join(text.split())
    assert "PENSTOCK_PASSWORD" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_its_options(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "--lake FOLDER" in result.stdout
    assert ("--master URL" in result.stdout) == (command in WITH_SPARK)
    assert ("--json" in result.stdout) == (command != "run")


@pytest.mark.parametrize("command", ["reconcile", "status"])
def test_commands_whose_exit_code_is_an_answer_say_so(command: str) -> None:
    assert "Exit codes: 0 all" in " ".join(invoke(command, "--help").stdout.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_is_not_known_is_refused(command: str) -> None:
    assert "No such option" in refused(command, "--nonsense", code=2)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in ("replay", "reconcile")])
def test_a_lake_has_to_be_named(command: str) -> None:
    assert "--lake" in refused(command, code=2)


@pytest.mark.parametrize("command", WITH_SPARK)
def test_a_master_and_a_memory_that_spark_does_not_know_are_refused(command: str, tmp_path: Path) -> None:
    given = (command, "--lake", str(tmp_path / "lake"))
    for master in ("nonsense", "127.0.0.1:7077", "local[", ""):
        assert "--master" in refused(*given, "--master", master, code=2)
    for memory in ("1", "g", "-1g", "1 g", "lots"):
        assert "not a size like" in refused(*given, "--driver-memory", memory, code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "--every", "0"),
        ("archive", "--max-records", "0"),
        ("archive", "--format", "iceberg"),
        ("refine", "--step-events", "0"),
        ("run", "--refine-every", "0"),
        ("report", "--hours", "0"),
        ("forecast", "--minutes", "0"),
        ("forecast", "--limit", "work"),
        ("forecast", "--limit", "work=many"),
        ("maintain", "--keep-days", "bronze"),
        ("maintain", "--keep-days", "bronze=long"),
        ("maintain", "--vacuum-hours", "-1"),
        ("maintain", "--target-mib", "0"),
        ("triage", "--redrive", "1234"),
        ("triage", "--groups", "0"),
        ("replay", *BROKER, "--rate-limit", "0"),
    ],
)
def test_values_out_of_their_limits_are_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert refused(*arguments, "--lake", str(tmp_path / "lake"), code=2)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("command", ["archive", "run"])
def test_a_source_has_to_be_named_or_stand_in_the_environment(command: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    assert "PENSTOCK_SOURCE" in refused(command, "--lake", lake, code=2)
    nowhere = str(tmp_path / "nowhere")
    said = refused(command, PENSTOCK_SOURCE=nowhere, PENSTOCK_LAKE=lake)
    assert said == f"penstock: there is no folder {nowhere}: give the data folder of a broker (--data-dir)\n"


def test_a_replay_has_to_come_from_somewhere() -> None:
    assert "--source is missing" in refused("replay", *BROKER, code=2)
    assert "--broker" in refused("replay", code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("refine",),
        ("report",),
        ("replay", *BROKER),
        ("triage",),
        ("forecast",),
        ("maintain",),
        ("status",),
    ],
)
def test_whoever_reads_a_lake_that_is_not_there_is_told_and_does_not_make_one(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    lake = tmp_path / "nowhere"
    assert str(lake) in refused(*arguments, "--lake", str(lake))
    assert not lake.exists()


@pytest.mark.parametrize("command", [("archive", "--lake", "lake"), ("replay", *BROKER), ("reconcile",)])
def test_a_broker_that_does_not_answer_is_told(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"http://127.0.0.1:{closed_port()}"
    said = refused(*command, "--source", url)
    assert f"the broker at {url} does not answer" in said
    assert "--http-port" in said
    assert not (tmp_path / "lake").exists()


def test_a_password_that_is_wrong_is_told(tmp_path: Path) -> None:
    with http_broker(tmp_path / "data") as broker:
        url = f"http://127.0.0.1:{http_port(broker)}"
        for command in (("archive", "--lake", str(tmp_path / "lake")), ("replay", *BROKER), ("reconcile",)):
            said = refused(*command, "--source", url, PENSTOCK_USER="guest", PENSTOCK_PASSWORD="wrong-secret")
            assert "PENSTOCK_PASSWORD" in said
            assert "wrong-secret" not in said
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("command", [("archive", "--once"), ("run",)])
def test_a_lake_that_cannot_be_made_is_told(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "a file").touch()
    given = ("--source", str(tmp_path), "--lake", str(tmp_path / "a file"))
    assert "a file" in refused(*command, *given)


def test_a_lake_keeps_its_format(tmp_path: Path) -> None:
    from penstock.pipeline.lake.opening import Lake

    (tmp_path / "journal").mkdir()
    Lake(tmp_path / "lake", "parquet")
    given = ("--source", str(tmp_path), "--lake", str(tmp_path / "lake"), "--format", "delta")
    assert "has the format parquet" in refused("archive", "--once", *given)


def test_a_folder_has_no_counters_to_compare(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    assert "give --source http://HOST:PORT" in refused("reconcile", "--source", str(tmp_path))


def test_a_master_that_does_not_listen_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    master = f"spark://127.0.0.1:{closed_port()}"
    given = ("--source", str(tmp_path), "--lake", str(tmp_path / "lake"), "--master", master)
    assert f"no Spark master answers at {master}" in refused("archive", "--once", *given)


def test_of_several_masters_one_that_listens_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        check_master(f"spark://127.0.0.1:{closed_port()},127.0.0.1:{port}")
        with pytest.raises(StartupError, match="HOST:PORT"):
            check_master("spark://127.0.0.1")
    for other in ("local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        check_master(other)


def test_an_error_of_a_worker_is_told_by_its_last_words() -> None:
    text = (
        "[STREAM_FAILED] Query failed\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in read\n'
        "penstock.history.log.SegmentGone: events 1 to 9 were removed: begin anew\n"
        "\n\tat org.apache.spark.Something.run(Something.scala:1)\n"
    )
    assert in_words(Exception(text)) == "events 1 to 9 were removed: begin anew"


def test_an_error_of_the_jvm_is_told_in_its_own_words() -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.spark.Something.run(Something.scala:1)\n"
        "Caused by: java.io.IOException: No space left on device\n"
        "\t... 1 more\n"
    )
    assert in_words(Exception(text)) == "No space left on device"
    not_found = "[DATA_SOURCE_NOT_FOUND] There is no penstock_lake.\njava.lang.ClassNotFoundException: DefaultSource"
    assert in_words(Exception(not_found)) == "[DATA_SOURCE_NOT_FOUND] There is no penstock_lake."
    assert in_words(Exception("")) == "Exception"
    assert len(in_words(Exception("x" * 10_000))) == LINE_MAX


def test_without_spark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As if it were not installed: its import fails.
    monkeypatch.setitem(sys.modules, "penstock.pipeline.spark_errors", None)
    assert "pip install 'penstock[pipeline]'" in refused("status", "--lake", str(tmp_path))


def test_status_of_a_lake_in_which_nothing_is_yet(tmp_path: Path) -> None:
    from penstock.pipeline.lake.opening import Lake

    Lake(tmp_path / "lake", "parquet")
    result = invoke("status", "--lake", str(tmp_path / "lake"), "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["format"], found["archived_lsn"], found["refined_lsn"], found["alarms"]) == ("parquet", None, 0, [])
    text = invoke("status", "--lake", str(tmp_path / "lake")).stdout
    assert "archive   never ran" in text
    assert "bronze    0 rows" in text
