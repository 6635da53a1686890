"""Runs jobs in child processes, which the fork server starts: one for each job, or a pool.

A child is idle, has one job, or is leaving. A job has ended when its answer is here, or when the fork server says that
the child has ended without one: it was killed, crashed, or ran out of memory. Then the job has failed, and a new child
takes its place.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from dataclasses import dataclass, field

from penstock.worker.jobs.allow_list import AllowList
from penstock.worker.jobs.formats import Call
from penstock.worker.runners import frames
from penstock.worker.runners.fork_server import start_fork_server
from penstock.worker.runners.frames import BadFrame, FrameReader
from penstock.worker.runners.notes import shortened
from penstock.worker.runners.runner import Ended, Runner, RunnerLost

# A child that does not take its call for so long is stopped or stuck.
_SEND_S = 10.0


@dataclass(slots=True, eq=False)
class _Child:
    number: int
    connection: socket.socket
    jobs_left: int
    reader: FrameReader = field(default_factory=FrameReader)
    pid: int | None = None
    # The job it works on.
    key: int | None = None
    # It takes no more jobs; its end is not a failure.
    is_leaving: bool = False
    is_open: bool = True


class ChildRunner(Runner):
    """Children of the fork server, up to `concurrency` at work. `jobs_per_child` 0 = no limit."""

    def __init__(self, allow_list: AllowList, concurrency: int = 1, jobs_per_child: int = 1) -> None:
        assert concurrency >= 1 and jobs_per_child >= 0
        self.concurrency = concurrency
        self.has_children = True
        self._jobs_per_child = jobs_per_child
        self._control, self._fork_server_pid = start_fork_server(allow_list)
        self._control_reader = FrameReader()
        self._children: dict[int, _Child] = {}
        self._next_number = 0
        self._ended: list[Ended] = []
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._is_closed = False
        if jobs_per_child != 1:
            for _ in range(concurrency):
                self._start_child()

    def pids(self) -> list[int]:
        """Of children that are at work or wait for it."""
        return [child.pid for child in self._children.values() if child.pid is not None and not child.is_leaving]

    def start(self, key: int, name: str, call: Call) -> None:
        # A child that has died while it was idle must not cost a job an attempt.
        self._look(0.0)
        waiting = [child for child in self._children.values() if child.key is None and not child.is_leaving]
        idle = [child for child in waiting if child.is_open]
        child = idle[0] if idle else self._start_child()
        child.key = key
        child.jobs_left -= 1
        call_frame = {"name": name, "args": call.args, "kwargs": call.kwargs}
        child.connection.settimeout(_SEND_S)
        try:
            child.connection.sendall(frames.encode(call_frame))
        except TimeoutError:
            self._tell_kill(child)
        except OSError:
            # It has ended: the fork server will say how.
            pass
        child.connection.setblocking(False)

    def kill(self, key: int) -> None:
        for child in self._children.values():
            if child.key == key:
                self._tell_kill(child)

    def wait(self, timeout_s: float) -> list[Ended]:
        if not self._ended:
            self._look(max(0.0, timeout_s))
        ended, self._ended = self._ended, []
        return ended

    def wake(self) -> None:
        # A full buffer wakes as well.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"w")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # The fork server kills the children when it sees this.
        self._control.close()
        for child in self._children.values():
            child.connection.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._fork_server_pid, 0)
        self._wake_in.close()
        self._wake_out.close()

    def _start_child(self) -> _Child:
        self._next_number += 1
        ours, theirs = socket.socketpair()
        request = {"start": self._next_number, "jobs": self._jobs_per_child}
        try:
            with theirs:
                socket.send_fds(self._control, [frames.encode(request)], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise self._lost() from error
        ours.setblocking(False)
        child = _Child(self._next_number, ours, self._jobs_per_child)
        self._children[child.number] = child
        return child

    def _look(self, timeout_s: float) -> None:
        children = {child.connection: child for child in self._children.values() if child.is_open}
        ready, _, _ = select.select([self._control, self._wake_in, *children], [], [], timeout_s)
        for connection in ready:
            if connection is self._wake_in:
                with contextlib.suppress(BlockingIOError):
                    self._wake_in.recv(4096)
            elif connection is self._control:
                self._hear()
            elif children[connection].is_open:
                # The fork server may have told its end just before.
                self._read(children[connection])

    def _hear(self) -> None:
        if frames.receive_ready(self._control, self._control_reader) is None:
            raise self._lost()
        while (frame := self._control_reader.next()) is not None:
            if "started" in frame:
                self._children[frame["started"]].pid = frame["pid"]
            else:
                self._has_ended(self._children.pop(frame["ended"]), frame["how"])

    def _read(self, child: _Child) -> bool:
        """Take the child's answer, if it is here; whether something has come."""
        received = frames.receive_ready(child.connection, child.reader)
        if received is None:
            # How it ended comes from the fork server.
            child.is_open = False
        self._take_answer(child)
        return bool(received)

    def _take_answer(self, child: _Child) -> None:
        try:
            answer = child.reader.next()
            if answer is None:
                return
            is_done, note = answer["done"], answer["note"]
            if child.key is None or not isinstance(is_done, bool) or not isinstance(note, str):
                raise BadFrame("an answer that nobody asked for")
        except (BadFrame, KeyError) as error:
            self._end(child, False, f"the job has written to the worker's socket: {error}")
            self._retire(child)
            self._tell_kill(child)
            return
        self._end(child, is_done, note)
        if child.jobs_left == 0 and self._jobs_per_child:
            self._retire(child)

    def _has_ended(self, child: _Child, how: str) -> None:
        # Its last words may still be in the socket. There may be no end of it: a program that the job has forked may
        # hold the other side.
        while child.is_open and self._read(child):
            pass
        if child.key is not None:
            self._end(child, False, how)
        child.connection.close()
        child.is_open = False
        if self._jobs_per_child != 1 and not self._is_closed:
            working = sum(not other.is_leaving for other in self._children.values())
            if working < self.concurrency:
                self._start_child()

    def _end(self, child: _Child, is_done: bool, note: str) -> None:
        if child.key is not None:
            self._ended.append(Ended(child.key, is_done, shortened(note)))
            child.key = None

    def _retire(self, child: _Child) -> None:
        child.is_leaving = True

    def _tell_kill(self, child: _Child) -> None:
        try:
            self._control.sendall(frames.encode({"kill": child.number}))
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> RunnerLost:
        """The fork server is gone. On Linux its children went with it; elsewhere they are killed by their numbers."""
        for child in self._children.values():
            if child.pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
        return RunnerLost("the process that starts the jobs has gone")
