"""systemd's protocol: sockets that it has opened (sd_listen_fds), and what it is told (sd_notify).

Without systemd nothing happens: the variables are not there. They are taken out of the environment, so that no child
mistakes them for its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

from penstock.errors import StartupError

# File descriptors that systemd hands over begin here.
FIRST_FD: Final = 3
SOCKETS_MAX: Final = 16
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"


def inherited_sockets(env: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the listening sockets that systemd has opened for this process. Raises StartupError about another kind."""
    pid, count = env.pop("LISTEN_PID", ""), env.pop("LISTEN_FDS", "")
    env.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    found = []
    for fd in range(FIRST_FD, FIRST_FD + min(int(count), SOCKETS_MAX)):
        try:
            os.set_inheritable(fd, False)
            listening = socket.socket(fileno=fd)
            is_listening = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise StartupError(f"LISTEN_FDS names the file descriptor {fd}, which is no socket: {error}") from error
        if not is_listening or listening.type != socket.SOCK_STREAM:
            raise StartupError(f"the socket unit must have ListenStream: file descriptor {fd} is no listening socket")
        found.append(listening)
    return found


class Notifier:
    """Tells systemd how the service does."""

    def __init__(self, env: MutableMapping[str, str]) -> None:
        self._address = env.pop("NOTIFY_SOCKET", "")
        usec, pid = env.pop("WATCHDOG_USEC", ""), env.pop("WATCHDOG_PID", "")
        watches_us = usec.isdecimal() and pid in ("", str(os.getpid()))
        # Twice as often as it must.
        self.watchdog_s = int(usec) / 2_000_000 if watches_us and self._address else 0.0
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, *lines: str) -> None:
        """Send lines such as READY=1; nothing happens when nobody listens."""
        if not self._address:
            return
        # A name that begins with @ is in the abstract namespace.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), address)

    def ready(self) -> None:
        self.tell(READY, "STATUS=serving clients")

    def reloading(self) -> None:
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, drain_s: float) -> None:
        self.tell(STOPPING, "STATUS=waiting for clients", f"EXTEND_TIMEOUT_USEC={int((drain_s + 60) * 1_000_000)}")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say from the event loop, again and again, that it turns; systemd restarts a service that does not."""
        if self.watchdog_s > 0:
            self.tell(WATCHDOG)
            self._timer = loop.call_later(self.watchdog_s, self.watch, loop)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
