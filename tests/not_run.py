"""A pytest plugin: the last lines of a run say what could not run on this machine, and why.

`make test` loads it. pytest's own summary has one line per place that skips; this has one per reason. Where
PENSTOCK_FAILED_FILE names a file, the tests that failed are listed there, one to a line.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest


def reasons(reports: list[pytest.TestReport]) -> Counter[str]:
    """How many tests (or whole files) each reason has kept from running."""
    return Counter(reason_of(report) for report in reports)


def reason_of(report: pytest.TestReport) -> str:
    # A skip is reported as (file, line, "Skipped: reason").
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


# The outermost wrapper, so that these lines come after pytest's own summary.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    yield
    if (file := os.environ.get("PENSTOCK_FAILED_FILE")) is not None:
        failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
        names = dict.fromkeys(report.nodeid for report in failed)
        Path(file).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    skipped = reasons(terminalreporter.stats.get("skipped", []))
    if not skipped:
        terminalreporter.write_line("Everything that was asked for could run on this machine.")
        return
    terminalreporter.section("could not run on this machine", yellow=True)
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count} x {reason}")
