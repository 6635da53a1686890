"""Who syncs for a server: a process of its own, or a thread where there cannot be one.

A sync blocks, and a thread that syncs needs the interpreter before and after the call: beside a loop that always has
work it gets it late or never. A process does not share the interpreter. So `penstock serve` has a `ProcessSyncer`; a
broker inside a test process, and one on Windows, has a `ThreadSyncer`, which makes the loop step aside for
moments while a sync is under way. See docs/decisions/0007.

Both answer requests in their order, on the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue

from penstock import limits
from penstock.call_all import call_all
from penstock.disk.files import File, is_temporary
from penstock.journal.syncer import SyncDone, Syncer
from penstock.server.sync import sync_process
from penstock.server.sync.sync_process import ADD, ANSWER_BYTES, DROP, END, SYNC, command

# Files that the process keeps open. The journal's is always the last used.
FILES_KEPT_MAX = 32
# A command is a few octets: a process that does not take them for so long is not there any more.
SEND_S = 10.0
EXIT_S = 10.0
# After a request that the system could not pass on for lack of memory.
AGAIN_S = 0.05
# While the thread works, the loop leaves it the interpreter for a moment this often and this long.
STEP_ASIDE_EVERY_S = 0.004
STEP_ASIDE_S = 0.0005


class ProcessSyncer(Syncer):
    def __init__(self, loop: asyncio.AbstractEventLoop, after_answer: Callable[[], None]) -> None:
        """`after_answer` is called after each answer: the next batch may be waiting for it."""
        self._loop = loop
        self._after_answer = after_answer
        # Numbers of the files that the process has, the least recently used first.
        self._numbers: dict[File, int] = {}
        self._next_number = 1
        self._waiting: deque[SyncDone] = deque()
        self._answer = b""
        self._lost: OSError | None = None
        self._closed = False
        self._socket, theirs = socket.socketpair()
        # Not for ever, and whether the loop has made the socket non-blocking or not.
        self._socket.settimeout(SEND_S)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter, our own file)
                [sys.executable, "-I", "-S", sync_process.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Not in the broker's group: what a terminal sends to that must not end it before the broker.
                start_new_session=True,
            )
        loop.add_reader(self._socket.fileno(), self._read_answers)

    @property
    def pid(self) -> int:
        return self._process.pid

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        if self._lost is not None:
            self._loop.call_soon(self._fail, done, self._lost)
            return
        try:
            self._drop_closed(keep=files)
            numbers = [self._number(file) for file in files]
            self._waiting.append(done)
            self._socket.sendall(b"".join([command(SYNC, number) for number in numbers]) + command(END))
        except (BrokenPipeError, ConnectionError, TimeoutError):
            if not self._waiting or self._waiting[-1] is not done:
                self._waiting.append(done)
            self._loop.call_soon(self._lose)
        except OSError as error:
            if is_temporary(error) or error.errno == errno.ETOOMANYREFS:
                # The system cannot pass on another descriptor just now.
                self._loop.call_later(AGAIN_S, self.submit, files, done)
            else:
                self._loop.call_soon(self._fail, done, error)

    def _number(self, file: File) -> int:
        number = self._numbers.pop(file, 0)
        if number == 0:
            descriptor = file.fileno()
            if descriptor < 0:
                raise OSError(errno.EBADF, f"{file.path} is not open")
            number = self._next_number
            socket.send_fds(self._socket, [command(ADD, number)], [descriptor])
            self._next_number += 1
        self._numbers[file] = number
        return number

    def _drop_closed(self, keep: Sequence[File]) -> None:
        """Have the process close what is closed here, and the least recently used beyond the limit."""
        dropped = [file for file in self._numbers if file.fileno() < 0]
        surplus = len(self._numbers) - len(dropped) - FILES_KEPT_MAX
        for file in list(self._numbers):
            if surplus <= 0:
                break
            if file not in keep and file.fileno() >= 0:
                dropped.append(file)
                surplus -= 1
        if dropped:
            self._socket.sendall(b"".join([command(DROP, self._numbers.pop(file)) for file in dropped]))

    def _read_answers(self) -> None:
        try:
            data = self._socket.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except TimeoutError:
            self._lose(OSError(errno.ETIMEDOUT, f"no sync was answered within {limits.STOP_SYNC_S:g} s"))
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._answer += data
        while len(self._answer) >= ANSWER_BYTES:
            number = int.from_bytes(self._answer[:ANSWER_BYTES], "little")
            self._answer = self._answer[ANSWER_BYTES:]
            done = self._waiting.popleft()
            try:
                done(None if number == 0 else OSError(number, os.strerror(number)))
            finally:
                self._after_answer()

    def _lose(self, error: OSError | None = None) -> None:
        """The process is gone, or does not answer: whatever waits will never be known to be synced."""
        if self._lost is not None or self._closed:
            return
        self._lost = error or OSError(errno.EIO, "the process that syncs is gone")
        self._loop.remove_reader(self._socket.fileno())
        waiting = list(self._waiting)
        self._waiting.clear()
        call_all([*[partial(done, self._lost) for done in waiting], self._after_answer])

    def _fail(self, done: SyncDone, error: OSError) -> None:
        done(error)
        self._after_answer()

    def close(self) -> None:
        if self._closed:
            return
        self._loop.remove_reader(self._socket.fileno())
        # A disk may take its time, but not for ever; without an answer there is no clean stop.
        until_s = time.monotonic() + limits.STOP_SYNC_S
        while self._waiting and self._lost is None:
            # Never 0, which would mean not to wait at all.
            self._socket.settimeout(max(until_s - time.monotonic(), 0.001))
            self._read_answers()
        self._closed = True
        self._socket.close()
        if self._lost is not None:
            self._process.kill()
        try:
            self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            # In a system call that does not return it cannot even be killed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_S)


class ThreadSyncer(Syncer):
    def __init__(self, loop: asyncio.AbstractEventLoop, after_answer: Callable[[], None]) -> None:
        self._loop = loop
        self._after_answer = after_answer
        self._requests: SimpleQueue[tuple[Sequence[File], SyncDone] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[SyncDone, OSError | None]] = SimpleQueue()
        # Set when an answer was put, so that the loop can wait for it.
        self._answered = threading.Event()
        self._waiting_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._work, name="penstock-sync", daemon=True)
        self._thread.start()

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self._waiting_count += 1
        self._requests.put((files, done))
        if self._timer is None:
            self._timer = self._loop.call_later(STEP_ASIDE_EVERY_S, self._step_aside)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            files, done = request
            failed: OSError | None = None
            try:
                for file in files:
                    file.fdatasync()
            except OSError as error:
                failed = error
            except ValueError as error:
                # What Python says of a descriptor that is closed.
                failed = OSError(errno.EBADF, str(error))
            self._answers.put((done, failed))
            self._answered.set()
            try:
                self._loop.call_soon_threadsafe(self._take_answers)
            except RuntimeError:
                # The loop is closed, and nothing waits any more.
                return

    def _take_answers(self) -> None:
        self._answered.clear()
        while True:
            try:
                done, error = self._answers.get_nowait()
            except Empty:
                break
            self._waiting_count -= 1
            try:
                done(error)
            finally:
                self._after_answer()

    def _step_aside(self) -> None:
        """The sync takes long, or its thread does not get the interpreter: let it have that."""
        self._timer = None
        if self._waiting_count:
            if self._answered.wait(STEP_ASIDE_S):
                self._take_answers()
            if self._waiting_count and self._timer is None:
                self._timer = self._loop.call_later(STEP_ASIDE_EVERY_S, self._step_aside)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._requests.put(None)
        # A thread that is still there afterwards ends with the process; what waits for it is not answered.
        self._thread.join(limits.STOP_SYNC_S)
        self._take_answers()


def process_syncer_possible() -> bool:
    """Return whether descriptors can be handed to another process here."""
    return sys.platform != "win32" and bool(sys.executable)
