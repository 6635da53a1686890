"""What every client of a round has done and seen. Each message has a name of its own, so that loss and invention show.

A payload is `NAME|xxx…`; the name says how many x there are. Threads write here; consumers that are processes write
into files, which are read in at the end (`Ledger.read_log`).
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# "unknown": the put, the confirm or the COMMIT was not answered. It may come out, or not.
Outcome = Literal["unknown", "acknowledged", "rolled back"]


@dataclass(slots=True)
class Sent:
    """One message, as its publisher knows it."""

    queue: str
    publisher: str
    number: int
    outcome: Outcome = "unknown"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message came to a consumer. `is_sure` is false where its transaction's COMMIT was not answered."""

    consumer: str
    queue: str
    name: str
    is_sure: bool = True


@dataclass
class Ledger:
    """The history of one round."""

    round: str
    sent: dict[str, Sent] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    # What should not have happened at all, in words.
    complaints: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Counter[str] = field(default_factory=Counter)
    _acknowledged: Counter[str] = field(default_factory=Counter)

    def new(self, publisher: str, queue: str, size: int) -> bytes:
        """The payload of a message that is about to be put."""
        with self._lock:
            self._numbers[publisher] += 1
            number = self._numbers[publisher]
            name = f"{self.round}.{publisher}.{number}.{size}"
            self.sent[name] = Sent(queue, publisher, number)
        return f"{name}|".encode() + b"x" * size

    def settle(self, payloads: list[bytes], outcome: Outcome) -> None:
        with self._lock:
            for payload in payloads:
                sent = self.sent[payload.split(b"|")[0].decode()]
                sent.outcome = outcome
                if outcome == "acknowledged":
                    self._acknowledged[sent.publisher] += 1

    def got(self, consumer: str, queue: str, payload: bytes, is_sure: bool = True) -> None:
        name, _, rest = payload.partition(b"|")
        with self._lock:
            self.receipts.append(Receipt(consumer, queue, name.decode(errors="replace"), is_sure))
            if not name.endswith(b".%d" % len(rest)) or rest.strip(b"x"):
                self.complaints.append(
                    f"{consumer} got a payload that nobody put: {payload[:80]!r}, {len(payload)} bytes"
                )

    def complain(self, text: str) -> None:
        with self._lock:
            self.complaints.append(text)

    def read_log(self, consumer: str, path: Path) -> None:
        """Receipts of a consumer process. The last line may be torn: then it was never told to anybody."""
        for line in path.read_bytes().split(b"\n")[:-1]:
            kind, queue, payload = line.split(b"\t")
            if kind == b"got":
                self.got(consumer, queue.decode(), payload)
            else:
                self.complain(f"{consumer}: {payload.decode(errors='replace')}")

    def acknowledged_by(self, publisher: str) -> int:
        return self._acknowledged[publisher]

    @property
    def counts(self) -> str:
        by = Counter(sent.outcome for sent in self.sent.values())
        twice = len(self.receipts) - len({receipt.name for receipt in self.receipts})
        return (
            f"{by['acknowledged']} acknowledged, {by['unknown']} unknown, {by['rolled back']} rolled back,"
            f" {len(self.receipts)} received, {twice} of them again"
        )
