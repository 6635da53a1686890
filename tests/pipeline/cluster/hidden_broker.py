"""A broker whose data folder nobody can find: what is known of it are its ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.process import environment

STOP_S = 60.0


@dataclass(frozen=True)
class HiddenBroker:
    amqp: str
    http: str
    # What was its folder, and the path that it was given: both lead nowhere.
    known_paths: tuple[Path, ...]


@contextmanager
def hidden_broker(folder: Path) -> Iterator[HiddenBroker]:
    """Started in a folder that is renamed afterwards, to a name that is told to nobody.

    Its data folder is relative to its working folder, by a path that means another folder in every other process. So
    the broker goes on as if nothing had happened, and nobody else finds the files, not even by the path it was given.
    """
    visible = folder / "broker"
    visible.mkdir()
    ports = ("--port", "0", "--http-port", "0")
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--json", *ports, "--data-dir", "/proc/self/cwd/data"],
            cwd=visible,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "broker.log").read_text()
        ready = json.loads(line)
        assert (visible / "data" / "journal").is_dir()
        os.rename(visible, folder / uuid.uuid4().hex)
        amqp = f"amqp://guest:guest@127.0.0.1:{ready['port']}/%2F"
        yield HiddenBroker(amqp, f"http://127.0.0.1:{ready['http_port']}", (visible, Path(ready["data_dir"])))
        assert not visible.exists()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
        assert process.stdout is not None
        process.stdout.close()
