"""Runs the killers of a mutant in a copy of the source that has the bug.

The copy is in a temporary folder, with the source and the tests. PYTHONPATH puts it before the installed penstock, in
the tests and in every process that they start. A worker has one copy, with one mutant in it at a time.

A mutant is killed when one of its killers fails, and the same test passes without the mutant. A killer that does not
end in time, or cannot even be collected, proves nothing, and counts against the mutant as a survivor does.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import CannotApply, Mutant
from tests.tidy_rules import ROOT

KILLED, SURVIVED, TIMED_OUT, BROKEN = "killed", "survived", "timed out", "broken"
# What the tests read.
COPIED = ("src", "tests", "docs", "examples", "spec", "tools", "benches")
COPIED_FILES = ("pyproject.toml", "Makefile", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
# Exit codes of pytest.
PASSED, FAILED = 0, 1
OUTPUT_CHARS = 2000
# Groups of the processes that run tests now.
RUNNING: set[int] = set()


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant."""

    name: str
    verdict: str
    # The test that failed; empty when none did.
    killer: str
    seconds: float
    # The end of what pytest said, where the verdict is not `killed`.
    output: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """How pytest ended."""

    # None when it was stopped because its time was up.
    code: int | None
    output: str

    def first_failure(self) -> str:
        found = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", self.output, re.MULTILINE)
        return found.group(1) if found else ""


@contextmanager
def copied_source() -> Iterator[Path]:
    """A folder with a compiled copy of everything that tests need."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as name:
        folder = Path(name)
        for each in COPIED:
            ignored = shutil.ignore_patterns("__pycache__", "results", ".hypothesis")
            shutil.copytree(ROOT / each, folder / each, ignore=ignored, symlinks=True)
        for each in COPIED_FILES:
            shutil.copy2(ROOT / each, folder / each)
        for each in ("src", "tests"):
            compileall.compile_dir(folder / each, quiet=2)
        yield folder


@contextmanager
def planted(mutant: Mutant, folder: Path) -> Iterator[None]:
    """The copy has the bug meanwhile. Raises CannotApply."""
    path = folder / mutant.file
    text = path.read_text(encoding="utf-8")
    time_ns = path.stat().st_mtime_ns
    path.write_text(mutant.applied_to(text), encoding="utf-8")
    # Python compares times in seconds: the compiled module must not be taken for this one.
    os.utime(path, ns=(time_ns + 10**10, time_ns + 10**10))
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(time_ns, time_ns))


def run_tests(folder: Path, tests: Sequence[str], limit_s: float) -> Ran:
    """Run tests of a copy, up to the first that fails."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:xdist", *tests]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        RUNNING.add(process.pid)
        code: int | None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            RUNNING.discard(process.pid)
            end_group(process.pid)
            process.wait()
        output.seek(0)
        return Ran(code, output.read().decode(errors="replace"))


def end_group(group: int) -> None:
    """Nothing that the tests have started is left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def end_all(number: int = 0, frame: object = None) -> None:
    """A handler of signals: end the tests that run, and this process."""
    for group in list(RUNNING):
        end_group(group)
    raise SystemExit(128 + number)


class Judge:
    """Tries mutants, and remembers which tests pass without one."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._passes: dict[str, bool] = {}

    def verdict(self, mutant: Mutant, folder: Path) -> Result:
        """Run the killers of a mutant against it."""
        begun_s = time.monotonic()
        try:
            with planted(mutant, folder):
                ran = run_tests(folder, mutant.killers, self._limit_s)
        except CannotApply as error:
            return Result(mutant.name, BROKEN, "", 0.0, str(error))
        killer = ran.first_failure()
        output = ran.output[-OUTPUT_CHARS:]
        if ran.code == PASSED:
            verdict = SURVIVED
        elif ran.code is None:
            verdict = TIMED_OUT
        elif ran.code != FAILED or not killer:
            verdict = BROKEN
        elif self._passes_without(killer, folder):
            verdict, output = KILLED, ""
        else:
            verdict, output = BROKEN, f"{killer} fails without the mutant, too"
        return Result(mutant.name, verdict, killer, round(time.monotonic() - begun_s, 1), output)

    def _passes_without(self, killer: str, folder: Path) -> bool:
        if killer not in self._passes:
            self._passes[killer] = run_tests(folder, [killer], self._limit_s).code == PASSED
        return self._passes[killer]
