"""A pytest plugin: the last lines of a run say what could not run on this machine, and why.

`make test` loads it. pytest's own summary has one line per place that skips; this has one per reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

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
    skipped = reasons(terminalreporter.stats.get("skipped", []))
    if not skipped:
        terminalreporter.write_line("Everything that was asked for could run on this machine.")
        return
    terminalreporter.section("could not run on this machine", yellow=True)
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count} x {reason}")
