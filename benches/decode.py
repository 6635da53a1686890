"""`python -m benches.decode`: how fast journal bytes become Arrow batches, in one process and without Spark.

A journal is written by the journal itself, then read with each projection, in turn with the same rows from Parquet
(zstd, bodies that do not compress), several times. The table has the medians and their ratio, by CPU time: both use one
thread, and other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from penstock.clock import ManualClock
from penstock.disk.os_files import OsFiles
from penstock.history.folder_log import FolderLog
from penstock.journal.format.rows import ACKED, DELIVERED
from penstock.journal.journal import Journal
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer
from penstock.message import FRAME_END, Envelope, Incoming, unlike
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import LogRange, plan
from penstock.pipeline.decode.request import Request
from penstock.wire.properties import Properties, encode_properties

LIFE_CYCLE: Final = ("lsn", "time", "queue_no", "seq", "kind_no")
QUEUES: Final = 10
BODY_BYTES: Final = (80, 120)
ENTRIES_POOL: Final = 5_000


class Projection(NamedTuple):
    """A request, and the columns of the Parquet file that hold the same."""

    name: str
    request: Request
    parquet_columns: tuple[str, ...] | None


PROJECTIONS: Final = (
    Projection("all columns", Request(), None),
    Projection("without bodies", Request(bodies=False), tuple(n for n in Request().names if n != "body")),
    Projection("life cycle", Request(columns=LIFE_CYCLE), LIFE_CYCLE),
    Projection("runs", Request(view="runs"), LIFE_CYCLE),
)


def write_journal(folder: Path, events: int, batch: int, lives: bool, own_properties: bool) -> None:
    """Publish runs of `batch` messages, and let them be delivered and acknowledged if `lives`."""
    (folder / "journal").mkdir()
    options = JournalOptions(confirm_sync="none")
    journal = Journal(
        OsFiles(folder), "journal", InlineSyncer(), ManualClock(), options, lambda: random.getrandbits(64)
    )
    journal.start(1, 0)
    for number in range(QUEUES):
        name = json.dumps({"vhost": "/", "queue": f"orders.{number}"})
        journal.names.name_queue(number, b"vh/q%d %b" % (number, name.encode()))
    consumer = journal.names.name_actor(json.dumps({"consumer": "ctag1.1", "connection": "127.0.0.1:5000"}).encode())
    bodies = [random.randbytes(random.randint(*BODY_BYTES)) + FRAME_END for _ in range(ENTRIES_POOL)]
    shared = encode_properties(Properties(content_type="application/json", delivery_mode=2, message_id="m-0000001"))
    seqs = [0] * QUEUES
    step = 3 * batch if lives else batch
    for number in range(events // step):
        queue = number % QUEUES
        seq = seqs[queue]
        seqs[queue] += batch
        at = random.randrange(ENTRIES_POOL - batch)
        run = bodies[at : at + batch]
        key = f"orders.europe.{queue:06}"
        if own_properties:
            journal.publish(queue, seq, unlike([(_own(key, seq + i), body, None) for i, body in enumerate(run)]), -1)
        else:
            journal.publish(queue, seq, Incoming(Envelope("orders", key, shared, True), run), -1)
        if lives:
            size = sum(map(len, run)) - batch
            journal.settle(DELIVERED, queue, seq, batch, size, consumer)
            journal.settle(ACKED, queue, seq, batch, size)
        journal.commit(urgent=True)
    journal.roll()
    journal.define(b"the end")
    journal.commit(urgent=True)
    journal.close()


def _own(key: str, seq: int) -> Envelope:
    properties = Properties(content_type="application/json", delivery_mode=2, message_id=f"m-{seq:07}")
    return Envelope("orders", key, encode_properties(properties), True)


def read_journal(log: FolderLog, ranges: Sequence[LogRange], request: Request) -> int:
    """Events of everything that is there."""
    events = 0
    for part in ranges:
        for batch in read_range(log, part, request):
            events += pa.compute.sum(batch["count"]).as_py() if request.view == "runs" else batch.num_rows
    return events


def write_parquet(folder: Path, path: Path) -> None:
    log = FolderLog(str(folder))
    state = log.state()
    with pq.ParquetWriter(path, Request().schema, compression="zstd") as writer:
        for part in plan(log, state.first_lsn, state.end_lsn):
            for batch in read_range(log, part, Request()):
                writer.write_batch(batch)
    log.close()


def read_parquet(path: Path, columns: Sequence[str] | None) -> int:
    """One thread, as the decoder has."""
    file = pq.ParquetFile(path)
    chosen = None if columns is None else list(columns)
    return sum(batch.num_rows for batch in file.iter_batches(65_536, columns=chosen, use_threads=False))


def timed(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def measure(folder: Path, repeats: int) -> list[dict[str, float | str]]:
    """Million events a second by projection, journal and Parquet in turn."""
    path = folder / "rows.parquet"
    write_parquet(folder, path)
    results: list[dict[str, float | str]] = []
    log = FolderLog(str(folder))
    ranges = plan(log, log.state().first_lsn, log.state().end_lsn)
    for name, request, columns in PROJECTIONS:
        events = read_journal(log, ranges, request)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(repeats):
            ours.append(timed(lambda request=request: read_journal(log, ranges, request)))  # type: ignore[misc]
            theirs.append(timed(lambda columns=columns: read_parquet(path, columns)))  # type: ignore[misc]
        journal_s, parquet_s = statistics.median(ours), statistics.median(theirs)
        results.append(
            {
                "projection": name,
                "journal_m_s": round(events / journal_s / 1e6, 2),
                "parquet_m_s": round(events / parquet_s / 1e6, 2),
                "ratio": round(parquet_s / journal_s, 2),
            }
        )
    return results


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.decode", description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200, help="messages of a batch (200)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--published", action="store_true", help="published events only, no lives")
    parser.add_argument("--own-properties", action="store_true", help="each message has properties of its own")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_journal(folder, options.events, options.batch, not options.published, options.own_properties)
        results = measure(folder, options.repeats)
    if options.json:
        print(json.dumps(results))
        return 0
    print(f"{options.events:,} events, {options.batch} messages in a batch, million events in a second of CPU time")
    print(f"{'':16}{'journal':>9}{'Parquet':>9}{'ratio':>7}")
    for row in results:
        print(f"{row['projection']:16}{row['journal_m_s']:>9}{row['parquet_m_s']:>9}{row['ratio']:>7}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
