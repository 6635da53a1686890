"""The backing queues under test, and one of them opened as a queue would open it.

To put an implementation under the whole contract, and under the model test, add one line to `BACKINGS`.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.backing.backing_queue import NOT_DELIVERED, TIMEOUT_NONE, BackingQueue, BackingQueues, BackingWork
from penstock.backing.priority.priority import PriorityBackingQueues
from penstock.backing.volatile import VolatileBackingQueues
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, Run, body_bytes
from tests.contract.noted_token import NotedToken, confirmed
from tests.contract.postgres_backings import lose_power as end_sessions
from tests.contract.postgres_backings import postgres, tiny_postgres
from tests.contract.renumbered_backings import RenumberedBackingQueues
from tests.contract.variable_backings import lose_power, tiny_variable, variable

QUEUE_ID = "0f3a"
MANY = 1_000_000
SETTLE_DEADLINE_S = 60.0
CALLBACK_WAIT_S = 0.01


@dataclass(frozen=True)
class Backing:
    name: str
    # Makes the backing queues of one vhost over a folder that may hold what an earlier one left.
    factory: Callable[[Path], BackingQueues]
    # True when persistent messages outlive the process.
    survives: bool
    # Makes the folder what a loss of power leaves of it.
    lose_power: Callable[[Path], None] = lambda folder: None
    # Has limits that a handful of messages exceed.
    is_tiny: bool = False
    # Transient messages outlive the process, too: what holds them does.
    keeps_transient: bool = False
    # How much dearer its calls are than those of the others: searches are cut down by this.
    cost: int = 1


BACKINGS = [
    Backing("volatile", lambda folder: VolatileBackingQueues(), survives=False),
    Backing("priority-of-volatile", lambda folder: PriorityBackingQueues(VolatileBackingQueues(), 3), survives=False),
    Backing("renumbered-volatile", lambda folder: RenumberedBackingQueues(VolatileBackingQueues()), survives=False),
    Backing("variable", variable, survives=True, lose_power=lose_power),
    Backing("tiny-variable", tiny_variable, survives=True, lose_power=lose_power, is_tiny=True),
    Backing(
        "priority-of-variable",
        lambda folder: PriorityBackingQueues(tiny_variable(folder), 3),
        survives=True,
        lose_power=lose_power,
        is_tiny=True,
    ),
    Backing("postgres", postgres, survives=True, lose_power=end_sessions, keeps_transient=True, cost=5),
    Backing(
        "tiny-postgres",
        tiny_postgres,
        survives=True,
        lose_power=end_sessions,
        is_tiny=True,
        keeps_transient=True,
        cost=5,
    ),
]


# `make check` leaves out those that need a database.
BACKING_PARAMETERS = [
    pytest.param(spec, id=spec.name, marks=[pytest.mark.slow] if spec.cost > 1 else []) for spec in BACKINGS
]


class OpenBacking:
    """One durable queue's backing, with the queue's part of the work: callbacks and timeouts."""

    def __init__(self, spec: Backing, folder: Path, persistent: bool) -> None:
        self.spec = spec
        self.folder = folder
        # Delivery mode of what `publish` sends.
        self.persistent = persistent
        NotedToken.told.clear()
        self.callbacks: queue.SimpleQueue[tuple[str, BackingWork]] = queue.SimpleQueue()
        self.open_queues = spec.factory(folder)
        self.open_queues.start([])
        self.queue: BackingQueue = self.open_queues.open(QUEUE_ID, True, None, self.call_later)

    def call_later(self, kind: str, work: BackingWork) -> None:
        self.callbacks.put((kind, work))

    def run_callbacks(self) -> None:
        while not self.callbacks.empty():
            kind, work = self.callbacks.get()
            self.queue.invoke(kind, work)

    def settle(self) -> list[ConfirmToken]:
        """Do what the backing asks for until it asks no more; the tokens that came out."""
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        self.run_callbacks()
        while self.queue.needs_timeout() != TIMEOUT_NONE:
            assert time.monotonic() < deadline, "the backing keeps asking for timeouts"
            self.queue.timeout()
            self.run_callbacks()
            if self.queue.needs_timeout() != TIMEOUT_NONE:
                self._wait_for_callback()
        return confirmed(self.queue)

    def _wait_for_callback(self) -> None:
        with contextlib.suppress(queue.Empty):
            kind, work = self.callbacks.get(timeout=CALLBACK_WAIT_S)
            self.queue.invoke(kind, work)

    # --- stopping and coming back ---------------------------------------------------------------

    def restart(self) -> None:
        """Stop cleanly and open again."""
        self.queue.terminate()
        self.open_queues.stop()
        self._reopen()

    def delete(self) -> None:
        """Delete the queue, and open what is left of it."""
        self.queue.delete_and_terminate()
        self.open_queues.stop()
        self._reopen()

    def crash(self) -> None:
        """Abandon everything, as a loss of power does, and open again."""
        self.spec.lose_power(self.folder)
        self._reopen()

    def _reopen(self) -> None:
        self.callbacks = queue.SimpleQueue()
        self.open_queues = self.spec.factory(self.folder)
        recoveries = self.open_queues.start([QUEUE_ID])
        assert len(recoveries) == 1
        self.queue = self.open_queues.open(QUEUE_ID, True, recoveries[0], self.call_later)

    # --- short forms for tests --------------------------------------------------------------------

    def envelope(self) -> Envelope:
        return Envelope("amq.direct", "key", b"\x00\x00", persistent=self.persistent)

    def publish(self, *payloads: bytes, props: MessageProps | None = None, delivered: int = NOT_DELIVERED) -> int:
        """Publish one run."""
        return self.queue.publish(Incoming(self.envelope(), stored(payloads)), props, delivered)

    def publish_expiring(self, *expiries_ms: int) -> None:
        """One message for each, its expiry as its payload; -1 publishes a message without props."""
        for expiry_ms in expiries_ms:
            self.publish(b"%d" % expiry_ms, props=None if expiry_ms < 0 else MessageProps(expiry_ms))

    def take(self, count: int, ack_required: bool = True) -> list[tuple[int, bytes, bool]]:
        """Fetch exactly `count` messages, in as many runs as it takes: (seq_id, payload, redelivered)."""
        taken: list[tuple[int, bytes, bool]] = []
        while len(taken) < count:
            run = self.queue.fetch(count - len(taken), MANY, ack_required)
            assert run is not None, f"only {len(taken)} of {count} messages were ready"
            taken.extend(listed(run))
        return taken

    def ready(self) -> list[tuple[int, bytes]]:
        return [(seq_id, body_bytes(entry[1])) for seq_id, entry, pending in self.folded() if not pending]

    def pending(self) -> list[tuple[int, bytes]]:
        return [(seq_id, body_bytes(entry[1])) for seq_id, entry, pending in self.folded() if pending]

    def folded(self) -> list[tuple[int, Entry, bool]]:
        seen: list[tuple[int, Entry, bool]] = []

        def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
            seen.append((seq_id, entry, pending))
            return True

        self.queue.fold(visit)
        return seen


def stored(payloads: Sequence[bytes]) -> list[bytes]:
    return [payload + b"\xce" for payload in payloads]


def listed(run: Run | None) -> list[tuple[int, bytes, bool]]:
    """(seq_id, payload, redelivered) of each message of a run."""
    if run is None:
        return []
    return [
        (seq_id, body_bytes(entry[1]), run.redelivered) for seq_id, entry in enumerate(run.entries, run.first_seq_id)
    ]


def expired_at(now_ms: int) -> Callable[[MessageProps | None], bool]:
    return lambda props: props is not None and 0 <= props.expiry_ms <= now_ms
