"""Commands of `penstock`, one after the other in one process: Spark's JVM, which takes long to start, stays with it.

The process is `python -m tests.cli.commands`. It reads the arguments of one command from each line, as a JSON list,
and answers with a line that has the exit code and what the command has printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.cli.main import main

END_S = 60.0


class Commands:
    """The process, as a test sees it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def run(self, *arguments: str, code: int = 0) -> Any:
        """What the command answers, as one JSON object; neither Spark nor its JVM warns the user of anything."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        said = self._log.read_text()
        assert line, f"{arguments} has ended the process: {said}"
        answer = json.loads(line)
        assert answer["code"] == code, (arguments, answer, said)
        assert "Traceback" not in said
        assert "WARN" not in said.upper()
        return json.loads(answer["printed"])


@contextlib.contextmanager
def commands(folder: Path, log: Path, variables: dict[str, str]) -> Iterator[Commands]:
    """A process in this folder and with these variables; what it says on its standard error goes to `log`."""
    root = str(Path(__file__).resolve().parents[2])
    with log.open("wb") as target:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.commands"],
            cwd=folder,
            env={**variables, "PYTHONPATH": root},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=target,
            text=True,
        )
    try:
        with process:
            yield Commands(process, log)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(END_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run_each() -> None:
    """Run what the lines of the standard input ask for, until it ends."""
    for line in sys.stdin:
        printed = io.StringIO()
        code: Any = 0
        with contextlib.redirect_stdout(printed):
            try:
                main(json.loads(line), prog_name="penstock")
            except SystemExit as end:
                code = end.code
        sys.stdout.write(json.dumps({"code": code, "printed": printed.getvalue()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run_each()
