"""The brokers under test: how each is started on a free loopback port, and stopped without a trace."""

from __future__ import annotations

import abc
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from benches.procstat import set_session_nice

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 20.0
POLL_S: Final = 0.002
SOURCE: Final = Path(__file__).resolve().parent.parent / "src"
# Debian's /usr/sbin/rabbitmq-server writes to the system's log folder; the script behind it does not.
RABBITMQ_SCRIPTS: Final = ("/usr/lib/rabbitmq/bin/rabbitmq-server",)


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
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name.lower()}-"))
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

    def start(self) -> None:
        """Returns when the broker answers; `start_s` is then the time that took."""
        self.port = free_port()
        with self._log.open("wb") as log:
            started = time.monotonic()
            self._process = self._spawn(log.fileno())
        if self.nice is not None:
            set_session_nice(self._process.pid, self.nice)
        while not answers(self.port):
            if self._process.poll() is not None:
                raise BrokerError(f"{self.name} ended with {self._process.returncode}:\n{self._log_tail()}")
            if time.monotonic() - started > START_DEADLINE_S:
                raise BrokerError(f"{self.name} does not answer after {START_DEADLINE_S} s:\n{self._log_tail()}")
            time.sleep(POLL_S)
        self.start_s = time.monotonic() - started

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            # The whole session is this broker's: _spawn gave it one of its own.
            os.killpg(process.pid, signal.SIGKILL)
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


def penstock_environment() -> dict[str, str]:
    """What is measured is the source beside this folder, installed or not, without settings from the shell."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "RABBITMQ_"))}
    return {**kept, "PYTHONPATH": str(SOURCE)}


class Penstock(Broker):
    name = "penstock"
    # What runs the module; the profiler puts itself in front.
    interpreter: tuple[str, ...] = (sys.executable,)

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        command = [*self.interpreter, "-m", "penstock", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        if self.memory_limit_bytes is not None:
            command += ["--memory-limit", str(self.memory_limit_bytes // (1024 * 1024))]
        return subprocess.Popen(
            command,
            env=penstock_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    @classmethod
    def version(cls) -> str:
        command = [sys.executable, "-c", "import penstock; print(penstock.__version__)"]
        found = subprocess.run(command, env=penstock_environment(), capture_output=True, text=True, check=False)
        return found.stdout.strip() or "unknown"


class RabbitMQ(Broker):
    name = "RabbitMQ"

    def __init__(self, memory_limit_bytes: int | None = None, nice: int | None = None) -> None:
        super().__init__(memory_limit_bytes, nice)
        self._epmd: subprocess.Popen[bytes] | None = None
        # RabbitMQ's files must belong to whom it runs as, and it refuses to run as root.
        self._user: pwd.struct_passwd | None = None

    @classmethod
    def script(cls) -> str | None:
        """Where rabbitmq-server is installed, or None."""
        for path in RABBITMQ_SCRIPTS:
            if os.access(path, os.X_OK):
                return path
        return shutil.which("rabbitmq-server")

    @classmethod
    def version(cls) -> str:
        # .../rabbitmq_server-3.10.8/sbin/rabbitmq-server
        return Path(cls.script() or "").resolve().parent.parent.name.removeprefix("rabbitmq_server-") or "unknown"

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        script = self.script()
        assert script is not None, "RabbitMQ is started only where script() found it"
        if os.geteuid() == 0:
            try:
                self._user = pwd.getpwnam("rabbitmq")
            except KeyError:
                raise BrokerError("RabbitMQ does not run as root, and there is no user rabbitmq") from None
        environment = self._environment()
        self._write_configuration()
        self._start_epmd(environment)
        return self._popen([script], environment, log)

    def _popen(self, command: list[str], environment: dict[str, str], log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench-{os.getpid()}-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        }

    def _write_configuration(self) -> None:
        lines = [f"listeners.tcp.default = 127.0.0.1:{self.port}", "log.file.level = warning"]
        if self.memory_limit_bytes is not None:
            lines.append(f"vm_memory_high_watermark.absolute = {self.memory_limit_bytes}")
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "rabbitmq-env.conf").touch()
        (self.folder / "enabled_plugins").write_text("[].\n")
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _start_epmd(self, environment: dict[str, str]) -> None:
        """Erlang's name server, which the node would otherwise start as a daemon and leave behind."""
        epmd = shutil.which("epmd")
        if epmd is None:
            raise BrokerError("epmd, a part of Erlang, is not installed")
        self._epmd = self._popen([epmd], environment, subprocess.DEVNULL)

    def stop(self) -> None:
        super().stop()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
