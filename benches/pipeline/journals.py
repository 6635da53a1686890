"""A journal to measure with, by the real writer: published, delivered, acked, in batches as a busy broker has them."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from penstock.clock import ManualClock
from penstock.disk.files import File
from penstock.disk.os_files import OsFiles
from penstock.journal.format import rows
from penstock.journal.journal import Journal
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import SyncDone, Syncer
from penstock.message import Envelope, Incoming
from penstock.store.retention.reader_cursors import make_log_id

QUEUES: Final = 10
# Bodies that do not compress: Parquet would be flattered.
BODY_BYTES_MIN: Final = 80
BODY_BYTES_MAX: Final = 120
EVENTS_PER_MESSAGE: Final = 3
BATCH_S: Final = 0.001
# Flags for content-type and delivery-mode, then the two: as a client sends them.
PROPERTIES: Final = b"\x90\x00\x18application/octet-stream\x02"


class NoSyncer(Syncer):
    """Nothing here has to survive."""

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        done(None)

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class Made:
    folder: Path
    messages: int
    bytes: int


def make_journal(
    folder: Path, messages: int, per_batch: int = 200, keep_open: float = 0.0, lives: bool = True, seed: int = 1
) -> Made:
    """Every message is published, delivered in the next batch, acked in the one after; a share stays in its queue.

    Without `lives` messages are published, and that is all.
    """
    chance = random.Random(seed)
    files = OsFiles(str(folder))
    files.make_dir("journal")
    make_log_id(files, chance.getrandbits)
    clock = ManualClock()
    options = JournalOptions()
    journal = Journal(files, "journal", NoSyncer(), clock, options, partial(chance.getrandbits, 64))
    journal.start(1, 0)
    for number in range(1, QUEUES + 1):
        label = b'%032x/%032x {"vhost": "/", "queue": "orders-%d"}' % (1, number, number)
        journal.names.name_queue(number, label)
    actors = [
        journal.names.name_actor(b'{"consumer": "c%d", "connection": "bench"}' % number) for number in range(QUEUES)
    ]
    envelopes = [Envelope("shop", f"order.{number}", PROPERTIES, True) for number in range(QUEUES)]
    noise = os.urandom(4 << 20)
    done = [1] * QUEUES
    # (queue, first seq, count, bytes) in flight, oldest first.
    published: list[tuple[int, int, int, int]] = []
    delivered: list[tuple[int, int, int, int]] = []
    left = messages
    while left or published or delivered:
        for queue, seq, count, size in delivered:
            count -= int(count * keep_open)
            journal.settle(rows.ACKED, queue + 1, seq, count, size)
        delivered = published
        for queue, seq, count, size in published:
            journal.settle(rows.DELIVERED, queue + 1, seq, count, size, actors[queue])
        published = []
        if left:
            count = min(per_batch, left)
            left -= count
            queue = chance.randrange(QUEUES)
            bodies = []
            for _ in range(count):
                at = chance.randrange(len(noise) - BODY_BYTES_MAX)
                bodies.append(noise[at : at + chance.randint(BODY_BYTES_MIN, BODY_BYTES_MAX)] + b"\xce")
            journal.publish(queue + 1, done[queue], Incoming(envelopes[queue], bodies), -1)
            if lives:
                published.append((queue, done[queue], count, sum(map(len, bodies)) - count))
            done[queue] += count
        clock.advance(BATCH_S)
        journal.commit(True)
    # The mark that proves the last batch durable: a busy journal has none in between.
    clock.advance(options.idle_s)
    journal.commit(True)
    journal.close()
    size = sum(path.stat().st_size for path in (folder / "journal").iterdir())
    return Made(folder, messages, size)
