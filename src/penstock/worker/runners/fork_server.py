"""The fork server: a small process that forks the children, because the worker itself must not fork.

It is forked before the worker opens a session, so neither it nor any child has a database connection, and it has one
thread, so a fork is safe. It starts and kills children as the worker says, and reports how they ended. When the worker
is gone, it kills the children: other workers have their jobs by then. When the fork server is gone, the kernel kills
them (Linux), or the worker does.

Frames to the fork server: {"start": number, "jobs": n} with a socket, {"kill": number}.
Frames from it: {"started": number, "pid": pid}, {"ended": number, "how": words}.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections import deque
from types import FrameType

from penstock.worker.jobs.allow_list import AllowList
from penstock.worker.runners import frames
from penstock.worker.runners.child import child_main
from penstock.worker.runners.frames import Frame, FrameReader
from penstock.worker.runners.process_name import set_process_name

_RECEIVE_BYTES = 65_536
_SOCKETS_MAX = 64
EXIT_DONE = 0
EXIT_BROKEN = 70


def start_fork_server(allow_list: AllowList) -> tuple[socket.socket, int]:
    """Start a fork server; the worker's end of the control socket, and the process id."""
    ours, theirs = socket.socketpair()
    # What is in the buffers would be written twice.
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = EXIT_BROKEN
        try:
            ours.close()
            _ForkServer(theirs, allow_list).run()
            code = EXIT_DONE
        except BaseException:
            # The caller does not show it.
            traceback.print_exc()
        finally:
            os._exit(code)
    theirs.close()
    return ours, pid


class _ForkServer:
    def __init__(self, control: socket.socket, allow_list: AllowList) -> None:
        self._control = control
        self._allow_list = allow_list
        self._reader = FrameReader()
        self._sockets: deque[socket.socket] = deque()
        self._pids: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._wake_in, self._wake_out = socket.socketpair()

    def run(self) -> None:
        """Until the worker has gone."""
        # Not in the terminal's group: Ctrl-C is for the worker, which waits for its jobs.
        os.setpgid(0, 0)
        set_process_name("penstock nurse")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note_signal)
        # What is here stays here: pages that the collector does not touch are shared with every child. It is not run
        # before: it would touch them all, which takes seconds in a large application, and it would finalize here what
        # belongs to the worker.
        gc.freeze()
        try:
            while self._turn():
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            for pid in self._numbers:
                _kill_group(pid)
            signal.set_wakeup_fd(-1)
            for end in (self._control, self._wake_in, self._wake_out):
                end.close()

    def _turn(self) -> bool:
        ready, _, _ = select.select([self._control, self._wake_in], [], [])
        if self._wake_in in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_in.recv(_RECEIVE_BYTES)
        self._reap()
        if self._control not in ready:
            return True
        data, descriptors, _, _ = socket.recv_fds(self._control, _RECEIVE_BYTES, _SOCKETS_MAX)
        self._sockets.extend(socket.socket(fileno=descriptor) for descriptor in descriptors)
        if not data:
            return False
        self._reader.feed(data)
        while (frame := self._reader.next()) is not None:
            if "start" in frame:
                self._start(frame["start"], frame["jobs"])
            elif frame["kill"] in self._pids:
                # It has not been waited for, so the number is still its own.
                _kill_group(self._pids[frame["kill"]])
        return True

    def _start(self, number: int, jobs_max: int) -> None:
        connection = self._sockets.popleft()
        fork_server_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            # No memory, or too many processes.
            connection.close()
            self._tell({"ended": number, "how": f"no process could be started for the job: {error}"})
            return
        if pid == 0:
            # Only the child's own socket stays: what others hold open would look alive to the worker.
            signal.set_wakeup_fd(-1)
            for other in (self._control, self._wake_in, self._wake_out, *self._sockets):
                other.close()
            child_main(connection, self._allow_list, jobs_max, fork_server_pid)
        connection.close()
        # The child does so too, at about the same time. A kill may come before the child has run at all.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
        self._pids[number] = pid
        self._numbers[pid] = number
        self._tell({"started": number, "pid": pid})

    def _reap(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:
                del self._pids[number]
                self._tell({"ended": number, "how": how_it_ended(status)})

    def _tell(self, frame: Frame) -> None:
        self._control.sendall(frames.encode(frame))


def _note_signal(number: int, frame: FrameType | None) -> None:
    # The wake-up socket has it already.
    return


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def how_it_ended(status: int) -> str:
    """For a note, from what waitpid said."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the job's process ended with exit code {code} before the job did"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"the job's process was killed by {name} ({-code})"
