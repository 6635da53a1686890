"""What a message says about itself cannot forge lines of a worker's log."""

from __future__ import annotations

import logging

import pytest

from penstock.cli.work_report import LogReporter
from penstock.worker.report import JobReport


@pytest.mark.parametrize("name", ["a\n2026 [INFO] forged", "\x1b[2Ja", "a\rb", "half \ud800"])
def test_names_and_notes_of_a_message_stay_on_their_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    reporter = LogReporter()
    with caplog.at_level(logging.DEBUG):
        reporter.started("q", "1", name, 1)
        reporter.finished(JobReport("q", "1", name, "refused", 1, 0.0, name))
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert record.getMessage().isascii()
