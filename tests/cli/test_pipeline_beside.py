"""The child that a broker with --pipeline keeps running, with other programs in the place of Spark."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from penstock.cli import beside
from penstock.cli.beside import PipelineBeside

# Says that it is there, and does not end when it is asked to.
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child is up", flush=True)
time.sleep(600)
"""
WAIT_S = 60.0


def child(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> PipelineBeside:
    monkeypatch.setattr(beside, "AGAIN_S", 0.01)
    made = PipelineBeside(str(folder / "data"), str(folder / "lake"))
    made._command = [sys.executable, "-c", program]
    return made


async def wait_for(caplog: pytest.LogCaptureFixture, text: str, times: int = 1) -> None:
    async with asyncio.timeout(WAIT_S):
        while sum(text in message for message in caplog.messages) < times:
            await asyncio.sleep(0.01)


def test_the_command_is_that_of_the_lake_and_ends_with_the_broker(tmp_path: Path) -> None:
    made = PipelineBeside("data", str(tmp_path / "lake"))
    assert made._command[1:6] == ["-m", "penstock", "pipeline", "run", "--source"]
    assert "--with-parent" in made._command
    assert made.report == (tmp_path / "lake" / "report.html").as_uri()


def test_a_child_that_ends_is_told_and_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.pipeline")
    # A line that is longer than what is read of it does no harm.
    program = f"print('x' * {3 * beside.LINE_BYTES_MAX}); print('a word'); raise SystemExit(3)"

    async def live() -> None:
        made = child(monkeypatch, tmp_path, program)
        made.start()
        await wait_for(caplog, "a word", 2)
        await wait_for(caplog, "ended with exit code 3", 2)
        await made.stop()

    asyncio.run(live())
    assert max(len(message) for message in caplog.messages) <= beside.LINE_BYTES_MAX


def test_a_child_that_cannot_be_started_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def live() -> None:
        made = child(monkeypatch, tmp_path, "")
        made._command = [str(tmp_path / "nowhere")]
        made.start()
        await wait_for(caplog, "could not be started", 2)
        await made.stop()

    asyncio.run(live())
    assert str(tmp_path / "nowhere") in caplog.text


def test_a_child_that_does_not_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.pipeline")
    monkeypatch.setattr(beside, "STOP_S", 0.1)

    async def live() -> int | None:
        made = child(monkeypatch, tmp_path, STUBBORN)
        made.start()
        await wait_for(caplog, "child is up")
        await made.stop()
        assert made._process is not None
        return made._process.returncode

    assert asyncio.run(live()) == -9
    assert "is killed" in caplog.text


def test_what_was_not_started_can_be_stopped(tmp_path: Path) -> None:
    made = PipelineBeside("data", str(tmp_path / "lake"))
    asyncio.run(made.stop())
    assert made._process is None
