"""The child process beside a broker, with a stand-in for the pipeline: how it is ended, and what its words may do."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import beside
from penstock.cli.beside import PipelineBeside
from penstock.cli.serve import run
from penstock.config import Config
from tests.interop.deadline import wait_until

Runner = Callable[[Coroutine[Any, Any, None]], None]

# Ends when it is told to, and leaves a child that has its output: as Python does whose JVM hangs.
LEAVES_A_CHILD = """#!/bin/sh
trap 'exit 0' TERM
sleep 600 &
echo $! > {note}
echo it runs
while :; do wait; done
"""
SPEAKS = r"""#!/bin/sh
printf 'one\033[2Jtwo\rthree\tfour\n'
echo the end
sleep 600
"""


def runners() -> list[Any]:
    import uvloop

    return [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> PipelineBeside:
    """The pipeline, with a script instead of Python."""
    script = tmp_path / "stand-in"
    script.write_text(text)
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    return PipelineBeside(str(tmp_path / "data"), str(tmp_path / "lake"))


class Said(logging.Handler):
    """Waits for a line in the log."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._said = asyncio.Event()
        logging.getLogger("penstock.pipeline").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._said.set()

    async def wait(self) -> None:
        async with asyncio.timeout(60):
            await self._said.wait()
        logging.getLogger("penstock.pipeline").removeHandler(self)


def is_running(pid: int) -> bool:
    """A zombie has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.mark.parametrize("loop_run", runners())
def test_what_outlives_the_child_is_killed_with_it(
    loop_run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = tmp_path / "pid"
    pipeline = stand_in(tmp_path, monkeypatch, LEAVES_A_CHILD.format(note=note))
    monkeypatch.setattr(beside, "STOP_S", 1.0)

    async def start_and_stop() -> None:
        said = Said("it runs")
        pipeline.start()
        await said.wait()
        await pipeline.stop()

    with caplog.at_level(logging.INFO, "penstock.pipeline"):
        loop_run(start_and_stop())
    wait_until(lambda: not is_running(int(note.read_text())), "the child's child is gone")


def test_the_childs_words_cannot_steer_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = stand_in(tmp_path, monkeypatch, SPEAKS)
    monkeypatch.setattr(beside, "STOP_S", 1.0)

    async def listen() -> None:
        said = Said("the end")
        pipeline.start()
        await said.wait()
        await pipeline.stop()

    with caplog.at_level(logging.INFO, "penstock.pipeline"):
        asyncio.run(listen())
    assert r"one\x1b[2Jtwo\rthree" + "\tfour" in [record.getMessage() for record in caplog.records]


class SlowToStop(PipelineBeside):
    """Asks the broker to stop, and stops itself when the broker has closed its port."""

    def __init__(self, port: int) -> None:
        super().__init__("nowhere", "nowhere")
        self.port = port
        self.saw_the_broker_stop = False

    def start(self) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    async def stop(self) -> None:
        async with asyncio.timeout(60):
            while not self.saw_the_broker_stop:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                except OSError:
                    self.saw_the_broker_stop = True


def test_the_broker_does_not_wait_for_the_pipeline_before_it_stops(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    pipeline = SlowToStop(port)
    threshold = gc.get_threshold()
    try:
        run(Config(port=port, data_dir=str(tmp_path / "data")), False, pipeline)
    finally:
        # A broker of its own process sets these for good.
        gc.unfreeze()
        gc.set_threshold(*threshold)
    assert pipeline.saw_the_broker_stop
