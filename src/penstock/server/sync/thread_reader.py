"""Reads large bodies on a thread of its own.

The system call and the checksum leave the interpreter to the loop; the thread needs it for moments only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from penstock import limits
from penstock.disk.checksum import crc32
from penstock.disk.files import File
from penstock.store.shared.body_reader import BodyRead, BodyReader

# A file, how many bytes, from where, the CRC to go on from, whom to tell.
Request = tuple[File, int, int, int, BodyRead]


class ThreadReader(BodyReader):
    def __init__(self, loop: asyncio.AbstractEventLoop, after_answer: Callable[[], None]) -> None:
        """`after_answer` is called after each answer: consumers may be waiting for it."""
        self._loop = loop
        self._after_answer = after_answer
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        # Most brokers never have so large a body.
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, file: File, size: int, offset: int, crc: int, done: BodyRead) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-read", daemon=True)
            self._thread.start()
        self._requests.put((file, size, offset, crc, done))

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            file, size, offset, crc, done = request
            body: bytes | None = None
            try:
                if not self._is_closed:
                    body = file.pread(size, offset)
                    crc = crc32(body, crc)
            except (OSError, MemoryError):
                # The caller reads it once more, and finds out for itself what is wrong.
                body = None
            finally:
                file.close()
            try:
                self._loop.call_soon_threadsafe(self._answer, done, body, crc)
            except RuntimeError:
                # The loop is closed, and nothing waits any more.
                return
            # It may be large, and the next request may come in an hour.
            del request, body, done

    def _answer(self, done: BodyRead, body: bytes | None, crc: int) -> None:
        if self._is_closed:
            return
        try:
            done(body, crc)
        finally:
            self._after_answer()

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None:
            self._requests.put(None)
            # A thread that is still there afterwards ends with the process.
            self._thread.join(limits.STOP_SYNC_S)
