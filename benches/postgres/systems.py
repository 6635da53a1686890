"""What is compared: a system has a schema and clients; a client puts, reserves and finalizes through one connection."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

PENSTOCK: Final = "penstock"
SESSION: Final = "penstock Session"
PROCRASTINATE: Final = "procrastinate"
PLAIN: Final = "plain table"
PLAIN_HISTORY: Final = "plain table with history"

QUEUE: Final = "bench"
PAYLOAD: Final = b"x" * 100
# Rows that are there before anything is measured come in statements of this size.
FILL_ROWS: Final = 10_000
# Who waits looks again after this time, in case the process is to end.
WAIT_S: Final = 1.0


@dataclass(frozen=True)
class Taken:
    """A reserved message: what the system needs to finalize it."""

    key: Any
    payload: bytes


class Client(ABC):
    @abstractmethod
    def put(self, payloads: Sequence[bytes]) -> None:
        """One message by the call for one, more by the call for many."""

    @abstractmethod
    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        """Up to `count` messages. With `wait_s` it waits for the first as the system waits."""

    @abstractmethod
    def finalize(self, taken: Sequence[Taken]) -> None:
        """One by the call for one, more by the call for many, if there is one."""

    def turn(self, taken: Sequence[Taken], count: int) -> list[Taken]:
        """Finalize these and reserve the next, in one call where the system has it."""
        self.finalize(taken)
        return self.reserve(count)

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class System(ABC):
    name: str

    @abstractmethod
    def version(self) -> str:
        """Of what is measured."""

    @abstractmethod
    def install(self, url: str) -> None:
        """Make the schema in an empty database."""

    @abstractmethod
    def producer(self, url: str) -> Client:
        """A client that puts."""

    @abstractmethod
    def consumer(self, url: str) -> Client:
        """A client that reserves and finalizes."""

    def fill(self, url: str, rows: int) -> None:
        """Have so many messages ready."""
        client = self.producer(url)
        try:
            for first in range(0, rows, FILL_ROWS):
                client.put([PAYLOAD] * min(FILL_ROWS, rows - first))
        finally:
            client.close()

    def consume(
        self, url: str, batch: int, until: float, ready: Callable[[], float], got: Callable[[int], None]
    ) -> int:
        """Work until that many seconds after the start that `ready` tells; how many messages were finalized by then."""
        client = self.consumer(url)
        try:
            end = ready() + until
            done = 0
            taken: list[Taken] = []
            while time.monotonic() < end:
                if not taken:
                    taken = client.reserve(batch, min(WAIT_S, end - time.monotonic()))
                if taken:
                    got(len(taken))
                    reserved, taken = taken, client.turn(taken, batch)
                    done += len(reserved)
            return done
        finally:
            client.close()
