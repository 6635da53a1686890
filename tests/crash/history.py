"""Histories: what each client did and saw, one JSON list per line, in a file of its own.

Every line begins with the kind of event, the incarnation of the broker (how often it was started before) and the time.

    invoke publish   session, tag, id, queues, seal, priority, mode, transaction ("" for none), id it was made from
    ok confirm       session, tag, multiple              fail confirm    the same, for a nack
    invoke commit    session, transaction                ok commit       session, transaction
    ok delivery      session, tag, queue, redelivered, id, seal, priority, mode
    invoke settle    session, tag, multiple, how (ack, reject, requeue), transaction
    ok barrier       session                             everything sent before on that session has been handled
    info dropped     session                             the client left without saying so, or was too slow and cut
    info lost        session, reason                     the broker left
    ok closed        session                             both said goodbye, nothing was left unanswered
    invoke define    what, name                          ok define       what, name; `what` as in `definer`
    ok audit         what, name                          fail audit      what, name, reason
    info start       seconds until ready, recovery report, bytes of journal
    info end         how: kill, term, or term+kill
    info drained     queue
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = list[Any]


class History:
    """Writes one client's file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / f"{name}.jsonl").open("w", buffering=1 << 16)
        self._encode = json.JSONEncoder(separators=(",", ":")).encode

    def add(self, kind: str, incarnation: int, *details: Any) -> None:
        self._file.write(self._encode([kind, incarnation, time.monotonic(), *details]) + "\n")

    def close(self) -> None:
        self._file.close()


def read_histories(folder: Path) -> Iterator[tuple[str, Iterator[Event]]]:
    """(client, its events in order) for each file."""
    for path in sorted(folder.glob("*.jsonl")):
        yield path.stem, read_history(path)


def read_history(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)
