"""A server with a data folder and a syncer that answers when the test says so."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pamqp import commands
from wire_bench import Bench

from penstock.config import Config
from penstock.disk.checksum import crc32
from penstock.disk.files import File
from penstock.journal.syncer import SyncDone, Syncer
from penstock.server.server import Server
from penstock.store.shared.body_reader import BodyRead, BodyReader


class HeldSyncer(Syncer):
    """Keeps requests until it is told to answer them."""

    def __init__(self, after_answer: Callable[[], None]) -> None:
        self._after_answer = after_answer
        self.held: deque[tuple[list[File], SyncDone]] = deque()
        # While True everything is answered at once.
        self.is_open = False
        self.request_count = 0

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self.request_count += 1
        self.held.append((list(files), done))
        if self.is_open:
            self.answer()

    def answer(self, error: OSError | None = None) -> None:
        files, done = self.held.popleft()
        if error is None:
            for file in files:
                file.fdatasync()
        done(error)
        self._after_answer()

    def close(self) -> None:
        while self.held:
            self.answer()


class HeldReader(BodyReader):
    """Keeps requests until it is told to answer them."""

    def __init__(self) -> None:
        self.held: deque[tuple[File, int, int, int, BodyRead]] = deque()

    def submit(self, file: File, size: int, offset: int, crc: int, done: BodyRead) -> None:
        self.held.append((file, size, offset, crc, done))

    def answer(self, spoilt: bool = False) -> None:
        """Read what was asked for first; or say that it could not be read."""
        file, size, offset, crc, done = self.held.popleft()
        body = file.pread(size, offset)
        file.close()
        done(*((None, 0) if spoilt else (body, crc32(body, crc))))

    def close(self) -> None:
        while self.held:
            self.held.popleft()[0].close()


class DurableBench(Bench):
    """Starts with the disk idle, and every sync and every read of a large body held from then on."""

    syncer: HeldSyncer

    def __init__(self, folder: Path, **settings: Any) -> None:
        config = Config(data_dir=str(folder), disk_bytes_min=1, **settings)
        self.reader = HeldReader()
        super().__init__(Server(config, self._make_syncer, lambda loop, after_answer: self.reader))
        assert self.server.broker.node is not None
        # On a busy machine a test may take longer than the journal waits with its mark: that would be synced first.
        self.server.broker.node.options.journal.idle_s = 3600.0
        self.syncer.is_open = True
        while self.syncer.held:
            self.syncer.answer()
        self.loop.run()
        self.syncer.is_open = False

    def _make_syncer(self, loop: asyncio.AbstractEventLoop, after_answer: Callable[[], None]) -> Syncer:
        self.syncer = HeldSyncer(after_answer)
        return self.syncer

    def sync(self, error: OSError | None = None) -> None:
        """Let the disk finish what it has been given."""
        self.loop.run()
        assert self.syncer.held, "nobody waits for the disk"
        self.syncer.answer(error)

    def fail(self) -> None:
        self.sync(OSError(errno.EIO, "the disk is broken"))

    def declare(self, client: Any, name: str = "q", **arguments: Any) -> None:
        """A durable queue, synced."""
        client.send(commands.Queue.Declare(0, name, durable=True, **arguments))
        self.sync()
        assert isinstance(client.read()[0], commands.Queue.DeclareOk)

    def stop(self) -> None:
        """As `Server.stop` does, without the sockets."""
        self.server._close_store()
