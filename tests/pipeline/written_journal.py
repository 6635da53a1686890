"""A data folder whose journal has exactly the events a test asks for, at the times it says, written by the real writer.

journal = WrittenJournal(folder)
journal.publish("orders", b"one", b"two")
journal.settle("acked", "orders", 0, count=2)
journal.close()
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from penstock.clock import ManualClock
from penstock.disk.os_files import OsFiles
from penstock.journal.format import rows
from penstock.journal.journal import Journal
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer
from penstock.message import FRAME_END, Envelope, Incoming

PROPERTIES = b"\x10\x00\x02"
SEGMENT_BYTES = 64 * 1024
KIND_NUMBERS = {
    "delivered": rows.DELIVERED,
    "acked": rows.ACKED,
    "rejected": rows.REJECTED,
    "requeued": rows.REQUEUED,
    "expired": rows.EXPIRED,
    "dropped": rows.DROPPED,
    "purged": rows.PURGED,
    "fetched": rows.FETCHED,
    "lost": rows.LOST,
}

# ("published", queue, body, …), (another kind, queue, seq, count), ("commit",), ("roll",), ("wait", seconds)
Step = tuple[object, ...]


class WrittenJournal:
    """Gathers rows until `commit`; each commit is a batch, and `close` proves the last one durable."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES, segment: int = 1, lsn: int = 0) -> None:
        self.folder = folder
        self.clock = ManualClock()
        options = JournalOptions(segment_bytes=segment_bytes, batch_bytes_max=4096)
        files = OsFiles(folder)
        files.make_dir("journal")
        self.journal = Journal(files, "journal", InlineSyncer(), self.clock, options, lambda: 0x1234567890ABCDEF)
        self.journal.start(segment, lsn)
        self._numbers: dict[tuple[str, str], int] = {}
        self._next_seq: dict[int, int] = {}

    @property
    def next_lsn(self) -> int:
        return self.journal.next_lsn

    def queue(self, name: str, vhost: str = "/") -> int:
        """The queue's number; its name is known from now on."""
        number = self._numbers.get((vhost, name))
        if number is None:
            number = self._numbers[vhost, name] = len(self._numbers) + 1
            text = json.dumps({"vhost": vhost, "queue": name}, ensure_ascii=False)
            self.journal.names.name_queue(number, f"v{vhost.encode().hex()}/q{number} {text}".encode())
        return number

    def publish(
        self, queue: str, *bodies: bytes, key: str = "key", properties: bytes = PROPERTIES, vhost: str = "/"
    ) -> int:
        """A run of messages; the seq of the first."""
        number = self.queue(queue, vhost)
        seq = self._next_seq.get(number, 0)
        self._next_seq[number] = seq + len(bodies)
        envelope = Envelope("exchange", key, properties, True, 0)
        self.journal.publish(number, seq, Incoming(envelope, [body + FRAME_END for body in bodies]), -1)
        return seq

    def settle(self, kind: str, queue: str, seq: int, count: int = 1, vhost: str = "/") -> None:
        self.journal.settle(KIND_NUMBERS[kind], self.queue(queue, vhost), seq, count, 0)

    def commit(self) -> None:
        if not self.journal.is_empty:
            self.journal.commit(urgent=True)

    def roll(self) -> None:
        """The next batch begins a new segment."""
        self.commit()
        self.journal.roll()

    def wait(self, seconds: float) -> None:
        """Later batches have a later time."""
        self.commit()
        self.clock.advance(seconds)

    def mark(self) -> None:
        """Everything up to here is known to be durable: a commit mark follows, as when a broker goes idle."""
        self.commit()
        self.clock.advance(1)
        self.journal.commit()

    def close(self) -> None:
        self.mark()
        self.journal.close()

    def remove_segment(self, number: int) -> None:
        """As retention does it, without asking anybody."""
        self.journal.remove_segment(number)


def write_steps(journal: WrittenJournal, steps: Iterable[Step]) -> None:
    for kind, *rest in steps:
        if kind == "published":
            queue, *bodies = rest
            journal.publish(str(queue), *[body for body in bodies if isinstance(body, bytes)])
        elif kind == "commit":
            journal.commit()
        elif kind == "roll":
            journal.roll()
        elif kind == "wait":
            journal.wait(float(str(rest[0])))
        else:
            queue, seq, count = rest
            journal.settle(str(kind), str(queue), int(str(seq)), int(str(count)))
