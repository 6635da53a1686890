"""A journal on a disk in memory, a syncer that answers when it is told to, and what a replay finds."""

from __future__ import annotations

from collections.abc import Sequence

from tests.disk.sim_files import SimFiles

from penstock.clock import ManualClock
from penstock.disk.files import File
from penstock.journal.format.layout import segment_path
from penstock.journal.journal import Journal
from penstock.journal.options import JournalOptions
from penstock.journal.reading.replay import BatchView, ReplayEnd, replay
from penstock.journal.syncer import InlineSyncer, SyncDone, Syncer
from penstock.message import FRAME_END, Envelope, Incoming

FOLDER = "journal"
PROPERTIES = b"\x10\x00\x02"


class HeldSyncer(Syncer):
    """Syncs when `answer` is called."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[File], SyncDone]] = []

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        assert not self.requests, "one request at a time"
        self.requests.append((list(files), done))

    def answer(self) -> list[str]:
        """Sync what is asked for, and say so; the paths in their order."""
        files, done = self.requests.pop()
        InlineSyncer().submit(files, done)
        return [file.path for file in files]

    def close(self) -> None:
        self.requests.clear()


class Salts:
    """Numbers that look random and are always the same."""

    def __init__(self) -> None:
        self.last = 0x1234567890ABCDEF

    def __call__(self) -> int:
        self.last = (self.last * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.last


class House:
    """A started journal with queues 1 to 9."""

    def __init__(
        self,
        files: SimFiles | None = None,
        options: JournalOptions | None = None,
        syncer: Syncer | None = None,
        segment: int = 1,
        lsn: int = 0,
    ) -> None:
        self.files = files if files is not None else SimFiles()
        self.clock = ManualClock()
        self.answers: list[bool] = []
        self.ones = 0
        self.held = HeldSyncer()
        self.journal = Journal(
            self.files,
            FOLDER,
            syncer if syncer is not None else InlineSyncer(),
            self.clock,
            options if options is not None else JournalOptions(),
            Salts(),
        )
        self.journal.start(segment, lsn)
        for number in range(1, 10):
            self.journal.names.name_queue(number, b"queue %d" % number)

    def commit(self) -> tuple[int, int]:
        """Write what is gathered; where it stands."""
        place = self.journal.place
        self.journal.commit(urgent=True)
        assert place.segment >= 0
        return place.segment, place.pos

    def publish(self, seq_id: int, texts: Sequence[bytes], queue_no: int = 1) -> int:
        return self.journal.publish(queue_no, seq_id, Incoming(envelope(), bodies(*texts)), -1)

    def commit_one(self, text: bytes) -> tuple[int, int]:
        """A batch with one message, whose seq_id is the number of such batches before it."""
        self.publish(self.ones, [text])
        self.ones += 1
        return self.commit()

    def wait(self) -> None:
        self.journal.when_durable(self.answers.append)

    def path(self, segment: int = 1) -> str:
        return segment_path(FOLDER, segment)

    def bytes(self, segment: int = 1) -> bytes:
        return self.files.contents()[self.path(segment)]


def held_house(options: JournalOptions | None = None, files: SimFiles | None = None) -> House:
    """A journal whose syncs are answered by hand."""
    held = HeldSyncer()
    house = House(files, options, held)
    house.held = held
    return house


def envelope(key: str = "key", properties: bytes = PROPERTIES, priority: int = 0, persistent: bool = True) -> Envelope:
    return Envelope("exchange", key, properties, persistent, priority)


def bodies(*texts: bytes) -> list[bytes]:
    return [text + FRAME_END for text in texts]


def fields(found: Envelope) -> tuple[object, ...]:
    return (
        found.exchange,
        found.routing_key,
        found.address,
        found.properties,
        found.persistent,
        found.priority,
        found.expiration_ms,
    )


class Found:
    """What a replay has seen."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self.rows: list[tuple[int, ...]] = []
        self.places: list[tuple[int, int]] = []
        # Bodies of PUBLISHED rows that could be read, by (queue, seq).
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.end = ReplayEnd(-1, 0)

    def visit(self, view: BatchView) -> None:
        self.lsns.append(view.first_lsn)
        self.places.append((view.segment, view.pos))
        for row in view.rows:
            self.rows.append(row)
            if row[6] == 1:
                for offset in range(row[3]):
                    self.bodies[row[1], row[0] + offset] = view.body(row[5] + offset)

    def kinds(self) -> list[int]:
        return [row[6] for row in self.rows]

    def damage(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """(segment, pos, bytes, lsn) of what is torn; (segment, pos, bytes, first, next) of what is rotten."""
        torn = [(tail.segment, tail.pos, tail.bytes, tail.lsn) for tail in self.end.torn]
        rotten = [(bad.segment, bad.pos, bad.bytes, bad.first_lsn, bad.next_lsn) for bad in self.end.rotten]
        return torn, rotten


def replayed(files: SimFiles, segment: int = 0, pos: int = 0) -> Found:
    found = Found()
    found.end = replay(files, FOLDER, segment, pos, found.visit)
    return found
