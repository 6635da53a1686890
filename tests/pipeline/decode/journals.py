"""Journals in a folder, written by the journal itself, and what readers make of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.disk.os_files import OsFiles
from penstock.history.folder_log import FolderLog
from penstock.history.log import Log
from penstock.history.walked_segments import WalkedSegments
from penstock.journal.journal import Journal
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer
from penstock.message import FRAME_END, Envelope, Incoming, MessageProps, unlike
from penstock.pipeline.columns import EXPIRES_MS_MAX
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import LogRange, plan
from penstock.pipeline.decode.request import Request
from penstock.wire.properties import Properties, encode_properties
from tests.unit.journal.journal_house import Salts

Row = dict[str, Any]
QUEUES = range(1, 6)
MARK_BYTES = 600


class JournalFolder:
    """A started journal with queues 1 to 5 of vhosts v0 and v1."""

    def __init__(self, folder: Path, segment_bytes: int = 64 * 1024, segment: int = 1, lsn: int = 0) -> None:
        self.folder = str(folder)
        (folder / "journal").mkdir(exist_ok=True)
        self.clock = ManualClock()
        options = JournalOptions(segment_bytes=segment_bytes, batch_bytes_max=1024)
        self.journal = Journal(OsFiles(folder), "journal", InlineSyncer(), self.clock, options, Salts())
        self.journal.start(segment, lsn)
        for number in QUEUES:
            self.name(number)

    def name(self, number: int) -> None:
        name = {"vhost": f"v{number % 2}", "queue": f"queue {number}"}
        self.journal.names.name_queue(number, b"vh/q%d %b" % (number, json.dumps(name).encode()))

    def commit(self, seconds: float = 0.25) -> None:
        self.clock.advance(seconds)
        self.journal.commit(urgent=True)

    def finish(self) -> None:
        """Let everything be durable: what has a later segment behind it is."""
        self.commit()
        self.journal.roll()
        self.journal.define(b"the end")
        self.commit()
        self.journal.close()

    def log(self, mark_bytes: int = MARK_BYTES) -> FolderLog:
        # Whoever changes bytes in a test is faster than the clock of the file system.
        return FolderLog(self.folder, mark_bytes, WalkedSegments())


def envelope(
    properties: bytes = b"\x10\x00\x02", key: str = "key", priority: int = 0, persistent: bool = True
) -> Envelope:
    return Envelope("ex", key, properties, persistent, priority)


def bodies(*texts: bytes) -> list[bytes]:
    return [text + FRAME_END for text in texts]


def read_all(log: Log, request: Request, ranges: Iterable[LogRange] | None = None) -> list[Row]:
    """The rows of all ranges, in order, with times as numbers and problems as a mere fact."""
    if ranges is None:
        state = log.state()
        ranges = plan(log, state.first_lsn, state.end_lsn, request=request)
    rows: list[Row] = []
    for part in ranges:
        for batch in read_range(log, part, request):
            batch.validate(full=True)
            assert batch.schema == request.schema
            rows += shown(batch)
    return rows


def shown(batch: pa.RecordBatch) -> list[Row]:
    for at, name in enumerate(batch.schema.names):
        if pa.types.is_timestamp(batch.schema.field(name).type):
            batch = batch.set_column(at, name, batch.column(name).cast(pa.int64()))
    rows: list[Row] = batch.to_pylist()
    for row in rows:
        if row.get("problem") is not None:
            row["problem"] = True
    return rows


def without_time_of_damage(rows: Sequence[Row]) -> list[Row]:
    """Rows as the plain reader has them: it does not say when what is lost was written."""
    return [row | {"time": None} if row["kind_no"] == 101 else row for row in rows]


def runs_request(request: Request) -> Request:
    return replace(request, view="runs", columns=())


# --- journals from a list of steps ----------------------------------------------------------------------

PROPERTIES = (
    b"\x10\x00\x02",
    encode_properties(Properties("text/plain", message_id="m1", correlation_id="c\u00e9", delivery_mode=2)),
    encode_properties(
        Properties(
            headers={
                "text": ("S", b"plain"),
                "octets": ("x", b"\xff\x00"),
                "not utf-8": ("S", b"\xff"),
                "number": ("l", -5),
                "yes": ("t", True),
                "half": ("d", 0.5),
                "decimal": ("D", (2, 12345)),
                "when": ("T", 1_700_000_000),
                "nothing": ("V", None),
                "list": ("A", [("S", b"a"), ("F", {"deep": ("f", 0.5)})]),
            },
            message_id="with headers",
        )
    ),
    encode_properties(Properties(headers={}, type="t")),
    encode_properties(Properties(headers={"long": ("S", b"x" * 5000)}, content_type="application/json")),
    # A header that is not a number, which no encoder here would write.
    b"\x20\x00\x00\x00\x00\x0d\x03nand\x7f\xf8\x00\x00\x00\x00\x00\x00",
    # Flags that promise more than there is; a text that is not UTF-8; a table that is cut short; nothing at all.
    b"\xff\xfc\x01",
    b"\x00\x80\x02\xff\xfe",
    b"\x20\x00\x00\x00\x00\x09\x01a",
    b"",
)
KEYS = ("key", "", "\u043a\u043b\u044e\u0447", "not utf-8 \udcff")
SIZES = (0, 1, 40, 900, 5000)
CONSUMERS = ("c1", "c2")

Step = tuple[Any, ...]


def write_steps(house: JournalFolder, steps: Iterable[Step], first_seq: int = 0) -> None:
    """Do what the steps say; `finish` is left to the caller."""
    journal = house.journal
    seqs = dict.fromkeys(QUEUES, first_seq)
    actors = [0, -1]
    for name in CONSUMERS:
        text = {"consumer": name, "connection": f"127.0.0.1:{len(name)}", "channel": 1}
        actors.append(journal.names.name_actor(json.dumps(text).encode()))
    for name, *values in steps:
        if name == "publish":
            queues, properties, key, sizes, priority, expiry_ms, persistent = values
            run = bodies(*[bytes([65 + at % 26]) * size for at, size in enumerate(sizes)])
            shared = envelope(PROPERTIES[properties], KEYS[key], priority, persistent)
            for queue in queues:
                journal.publish(queue, seqs[queue], Incoming(shared, run), expiry_ms)
                seqs[queue] += len(run)
        elif name == "entries":
            queues, messages = values
            run_entries = [
                (envelope(PROPERTIES[properties], KEYS[key]), b"e" * size + FRAME_END, MessageProps(expiry_ms))
                for properties, key, size, expiry_ms in messages
            ]
            for queue in queues:
                journal.publish(queue, seqs[queue], unlike(run_entries), -1)
                seqs[queue] += len(run_entries)
        elif name == "references":
            queue, properties, sizes = values
            addresses = [8 * (at + 1) for at in range(len(sizes))]
            journal.publish_references(queue, seqs[queue], envelope(PROPERTIES[properties]), addresses, sizes, -1)
            seqs[queue] += len(sizes)
        elif name == "settle":
            kind, queue, seq, count, size, actor, arg = values
            journal.settle(kind, queue, seq, count, size, actors[actor], arg)
        elif name == "define":
            journal.define(b"{}")
        elif name == "forget":
            journal.forget_queue(values[0])
            house.name(values[0])
        elif name == "commit":
            house.commit()
        elif name == "roll":
            house.commit()
            journal.roll()


queues_of = st.lists(st.sampled_from(list(QUEUES)), min_size=1, max_size=3, unique=True)
property_numbers = st.integers(0, len(PROPERTIES) - 1)
# A message can be held until the end of 63 bits.
expiries = st.sampled_from([-1, 0, 1_700_000_000_000, EXPIRES_MS_MAX, EXPIRES_MS_MAX + 1, 2**63 - 1])
sizes_of = st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)
keys = st.integers(0, len(KEYS) - 1)
steps_of = st.one_of(
    st.tuples(
        st.just("publish"), queues_of, property_numbers, keys, sizes_of, st.integers(0, 255), expiries, st.booleans()
    ),
    st.tuples(
        st.just("entries"),
        queues_of,
        st.lists(st.tuples(property_numbers, keys, st.sampled_from(SIZES), expiries), min_size=1, max_size=4),
    ),
    st.tuples(
        st.just("references"),
        st.sampled_from(list(QUEUES)),
        property_numbers,
        st.lists(st.integers(4096, 9000), min_size=1, max_size=3),
    ),
    st.tuples(
        st.just("settle"),
        st.sampled_from([*range(2, 15), 20, 200]),
        st.sampled_from(list(QUEUES)),
        st.integers(0, 2**40),
        st.integers(1, 9),
        st.integers(0, 10_000),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.tuples(st.just("define")),
    st.tuples(st.just("forget"), st.sampled_from(list(QUEUES))),
    st.tuples(st.just("commit")),
    st.tuples(st.just("roll")),
)
journals = st.lists(steps_of, min_size=1, max_size=25)

EVERY_KIND: list[Step] = [
    ("publish", [1, 2], 0, 0, [40, 0, 900], 3, 1_700_000_000_000, True),
    ("entries", [3], [(1, 0, 40, -1), (2, 0, 1, -1), (2, 1, 900, 5)]),
    ("commit",),
    *[("settle", kind, 1 + kind % 3, kind * 10, 3, 77, kind % 4, kind % 6) for kind in [*range(2, 15), 20, 200]],
    ("references", 2, 4, [4096, 5000]),
    ("define",),
    ("commit",),
    *[("publish", [4], number, number % len(KEYS), [40], 0, -1, False) for number in range(len(PROPERTIES))],
    ("forget", 4),
    ("roll",),
    ("publish", [4, 5], 3, 2, [5000, 5000], 255, -1, True),
    ("settle", 7, 5, 0, 2, 0, 0, 4),
]
