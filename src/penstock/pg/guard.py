"""A small process between penstock and an embedded PostgreSQL: the server ends when penstock ends, however it ends.

It is run as a program (`python guard.py`) and reads its own input, a pipe whose other end only penstock has. The first
line is a JSON object of options, by which it starts the server: not an argument, since other users can read those. Each
line behind it names a way to stop; the end of the input means that penstock is gone, also after kill -9. It must not
import anything of penstock: it runs without a path.
Should the guard itself be killed, the kernel tells the server (Linux).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from typing import NoReturn

# What PostgreSQL makes of the signals: fast ends the sessions, immediate is a crash with recovery at the next start.
MODES = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PARENT_IS_GONE = "fast"
# A fast stop writes a checkpoint. Nothing waits for it when penstock is gone.
SECONDS_FOR_LAST_STOP = 30.0
PR_SET_PDEATHSIG = 1


def die_with_the_guard() -> None:
    """In the server's process, after it has become its user (that would undo it), before it is PostgreSQL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGQUIT))


def obey(server: subprocess.Popen[bytes]) -> None:
    """Pass on what the pipe says until it ends."""
    for line in sys.stdin:
        mode = line.strip()
        if mode in MODES:
            server.send_signal(MODES[mode])
    server.send_signal(MODES[PARENT_IS_GONE])
    try:
        server.wait(SECONDS_FOR_LAST_STOP)
    except subprocess.TimeoutExpired:
        server.send_signal(MODES["immediate"])


def main() -> NoReturn:
    options = json.loads(sys.stdin.readline())
    # The terminal's Ctrl+C is for penstock, which says when to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A handler, since a signal that is ignored would stay so in the server.
        signal.signal(number, lambda *_: None)
    server = subprocess.Popen(  # noqa: S603
        options["command"],
        stdin=subprocess.DEVNULL,
        cwd="/",
        env=options["environment"],
        user=options["uid"],
        group=options["gid"],
        extra_groups=None if options["uid"] is None else [],
        umask=0o077,
        preexec_fn=die_with_the_guard,
    )
    threading.Thread(target=obey, args=(server,), daemon=True).start()
    code = server.wait()
    # Not sys.exit: the thread may hold the lock of standard input.
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
