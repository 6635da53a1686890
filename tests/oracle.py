"""A real RabbitMQ for tests: Debian's rabbitmq-server with its own node name, ports, folders and epmd.

Nothing of the machine's own RabbitMQ is touched, and everything started here is stopped by its own pid.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

# The Debian package's own start script. /usr/sbin/rabbitmq-server is a wrapper around it that changes
# user with `su` and loses the environment.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CTL = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
USER = "rabbitmq"


def available() -> str | None:
    """Why a RabbitMQ cannot be started on this machine, or None when it can."""
    if os.name != "posix":
        return "RabbitMQ is started by tests on POSIX systems only"
    if not SERVER.exists():
        return "rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    for program in ("epmd", "erl", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} is not on the path (apt-get install rabbitmq-server util-linux)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"running as root and there is no user '{USER}' to start RabbitMQ as"
    return None


def version() -> str | None:
    """The version of the installed server, read from its folder's name."""
    for folder in sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"), reverse=True):
        return folder.name.removeprefix("rabbitmq_server-")
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RabbitMQ:
    """`with RabbitMQ() as rabbit:` a broker on `rabbit.host`, `rabbit.port`; `rabbit.url` for clients."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self.settings = settings or {}
        self._folder: Path | None = None
        self._env: dict[str, str] = {}
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def __enter__(self) -> RabbitMQ:
        reason = available()
        if reason is not None:
            raise RuntimeError(reason)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="penstock-oracle-"))
        self._folder = folder
        account = pwd.getpwnam(USER) if os.geteuid() == 0 else None
        self._write_configuration(folder)
        if account is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid)
        environment = self._env = self._environment(folder)
        # Without -daemon epmd stays our child, so its pid is known and it leaves no trace behind.
        self._epmd = self._spawn(["epmd"], environment, folder / "epmd.log", account)
        self._wait_for(self._epmd, int(environment["ERL_EPMD_PORT"]), folder)
        self._server = self._spawn([str(SERVER)], environment, folder / "server.log", account)
        self._wait_for(self._server, self.port, folder)

    def ctl(self, *words: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run rabbitmqctl on this broker; `given` is its standard input. Each call starts an Erlang, for a second."""
        assert self._folder is not None
        account = pwd.getpwnam(USER) if os.geteuid() == 0 else None
        done = subprocess.run(
            [*_as_user(account), str(CTL), *words],
            cwd=self._folder,
            env=self._env,
            input=given,
            capture_output=True,
            text=True,
            timeout=START_DEADLINE_S,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"rabbitmqctl {words[0]}: {done.stdout}{done.stderr}")
        return done

    def _write_configuration(self, folder: Path) -> None:
        for name in ("home", "mnesia", "log"):
            (folder / name).mkdir()
        settings = {
            "listeners.tcp.default": f"{self.host}:{self.port}",
            "log.file.level": "warning",
            "log.console": "false",
            **self.settings,
        }
        (folder / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        (folder / "enabled_plugins").write_text("[].\n")

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(folder / "home"),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"penstock{os.getpid()}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            # The start script then replaces itself by the Erlang machine, and SIGTERM stops it cleanly.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _spawn(
        self,
        command: list[str],
        environment: dict[str, str],
        log: Path,
        account: pwd.struct_passwd | None,
    ) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                [*_as_user(account), *command],
                cwd=log.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_for(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection((self.host, port), timeout=1.0):
                return
            time.sleep(0.02)
        logs = "".join(path.read_text(errors="replace")[-4000:] for path in sorted(folder.glob("*.log")))
        raise RuntimeError(f"nothing listens on port {port} (exit code {process.poll()}):\n{logs}")

    def stop(self) -> None:
        for process in (self._server, self._epmd):
            if process is not None:
                _stop(process)
        self._server = self._epmd = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _as_user(account: pwd.struct_passwd | None) -> list[str]:
    """What stands before a command: the kernel ends what we started even when we are killed and cannot."""
    prefix = ["setpriv", "--pdeathsig", "TERM"]
    if account is not None:
        prefix += ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
    return prefix


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the process group to end, and insist when it does not."""
    for sign, patience_s in ((signal.SIGTERM, STOP_DEADLINE_S), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                # epmd and the server lead their own groups; helpers of the Erlang machine are in them.
                os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
