"""A broker under test: how it is started on a free loopback port, stopped, killed, and removed without a trace."""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from benches.procstat import set_session_nice, tree_pids
from benches.scratch import disk_folder

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 20.0
POLL_S: Final = 0.002
ROOT: Final = Path(__file__).resolve().parent.parent


class BrokerError(Exception):
    """A broker did not start, or is gone."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a broker there takes a connection and speaks first words of AMQP (connection.start)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as sock:
            sock.sendall(b"AMQP\x00\x00\x09\x01")
            return sock.recv(1) == b"\x01"
    except OSError:
        return False


class Broker(abc.ABC):
    """A broker process in a folder of its own; `with` stops it and removes the folder."""

    name: ClassVar[str]

    def __init__(self, memory_limit_bytes: int | None = None, nice: int | None = None) -> None:
        self.memory_limit_bytes = memory_limit_bytes
        self.nice = nice
        self.port = 0
        self.start_s = 0.0
        # Every broker keeps its data here: on one and the same file system, and not one in memory.
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name.lower()}-", dir=disk_folder()))
        self._log = self.folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        """Starts the process, in a session of its own, with its output in `log`."""

    @classmethod
    @abc.abstractmethod
    def version(cls) -> str: ...

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready: Callable[[], bool] | None = None) -> None:
        """Returns when the broker answers and is `ready`; `start_s` is then the time that took.

        After a stop or a kill it finds the data that it left.
        """
        self.port = free_port()
        with self._log.open("wb") as log:
            started = time.monotonic()
            self._process = self._spawn(log.fileno())
        if self.nice is not None:
            set_session_nice(self._process.pid, self.nice)
        while not answers(self.port) or (ready is not None and not ready()):
            if self._process.poll() is not None:
                raise BrokerError(f"{self.name} ended with {self._process.returncode}:\n{self._log_tail()}")
            if time.monotonic() - started > START_DEADLINE_S:
                raise BrokerError(f"{self.name} does not answer after {START_DEADLINE_S} s:\n{self._log_tail()}")
            time.sleep(POLL_S)
        self.start_s = time.monotonic() - started

    def stop(self) -> bool:
        """Stops it as its manual says. False if it had to be killed, or was not running."""
        process, self._process = self._process, None
        if process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._kill(process)
            return False
        return True

    def kill(self) -> None:
        """Ends it as a crash would: SIGKILL, to all of its processes."""
        process, self._process = self._process, None
        assert process is not None, "only a broker that runs can be killed"
        self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        # All of them descend from the process that _spawn started.
        for pid in tree_pids(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def last_words(self) -> str:
        return self._log_tail().splitlines()[-1]

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-600:].strip() or "(no output)"


def penstock_environment(source: Path) -> dict[str, str]:
    """What is measured is this source, whatever is installed, without settings from the shell."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "RABBITMQ_"))}
    # An installed package is compiled once, not at each start.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}


class Penstock(Broker):
    name = "penstock"
    # The folder beside this one; another one for another revision.
    source: ClassVar[Path] = ROOT / "src"
    # The profiler puts itself around it.
    program: tuple[str, ...] = ("-m", "penstock")
    # None: history is not served.
    http_port: int | None = None

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.program, "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--data-dir", str(self.folder / "data")]
        if self.memory_limit_bytes is not None:
            command += ["--memory-limit", str(self.memory_limit_bytes // (1024 * 1024))]
        if self.http_port is not None:
            command += ["--http-port", str(self.http_port)]
        return subprocess.Popen(
            command,
            env=penstock_environment(self.source),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    @classmethod
    def version(cls) -> str:
        command = [sys.executable, "-m", "penstock", "--version"]
        found = subprocess.run(
            command, env=penstock_environment(cls.source), capture_output=True, text=True, check=False
        )
        return found.stdout.strip().rpartition("version ")[2] or "unknown"
