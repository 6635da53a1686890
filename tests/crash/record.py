"""What the histories of a round say, put together: publishes, answers, deliveries and settlements by message.

Part of the offline checker: nothing but the standard library and the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.history import Event, read_histories

# (client, session): a connection with one channel.
Session = tuple[str, int]
# (queue, id): a message in a queue.
Copy = tuple[str, str]
# (incarnation, time)
Moment = tuple[int, float]

PERSISTENT = 2
CLEAN_END = "term"


@dataclass(slots=True)
class Published:
    """A message as its publisher knows it."""

    session: Session
    tag: int
    queues: list[str]
    seal: int
    priority: int
    mode: int
    transaction: str
    made_from: str
    moment: Moment


@dataclass(slots=True)
class Delivered:
    """One delivery of a message from a queue."""

    moment: Moment
    session: Session
    redelivered: bool
    seal: int


@dataclass(slots=True)
class Settled:
    """A delivery that a consumer has settled for good: acknowledged or rejected."""

    moment: Moment
    transaction: str
    # When it was certain that the broker had handled it; -1 for never.
    handled_s: float = -1.0


@dataclass(slots=True)
class Transaction:
    """Publishes and settlements that happen together."""

    ids: list[str] = field(default_factory=list)
    # What it settles, and under which delivery tags.
    sources: list[Copy] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)
    asked: Moment | None = None
    answered: Moment | None = None
    rolled_back: bool = False


class Record:
    """Everything that the clients and the driver noted."""

    def __init__(self, folder: Path) -> None:
        # By kind, in words; the checker adds to them.
        self.anomalies: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.published: dict[str, Published] = {}
        self.confirmed: set[str] = set()
        self.transactions: dict[str, Transaction] = {}
        self.delivered: dict[Copy, list[Delivered]] = {}
        self.settled: dict[Copy, list[Settled]] = {}
        # Who consumed from a queue.
        self.consumers: dict[str, set[str]] = {}
        # When the broker was told to end, and how, by incarnation.
        self.ends: dict[int, tuple[float, str]] = {}
        # The last moment at which a persistent message was published that was confirmed later, by incarnation.
        self.confirmed_until_s: dict[int, float] = {}
        # Incarnations in which a client vanished with deliveries that nobody has seen.
        self.drops: set[int] = set()
        # Publishes of a session that are not answered, in order.
        self._unanswered: dict[Session, dict[int, str]] = {}
        # Deliveries of a session that are not settled, in order; and settlements since its last barrier.
        self._unsettled: dict[Session, dict[int, Copy]] = {}
        self._unhandled: dict[Session, list[Settled]] = {}
        for client, events in read_histories(folder):
            if client == "driver":
                self._read_driver(events)
        for client, events in read_histories(folder):
            if client != "driver":
                self._read_client(client, events)
        self._note_confirmed()

    def anomaly(self, kind: str, text: str) -> None:
        self.anomalies.append((kind, text))

    # --- the driver -----------------------------------------------------------------------------------

    def _read_driver(self, events: Iterator[Event]) -> None:
        for kind, incarnation, time_s, *details in events:
            if kind == "info end":
                self.ends[incarnation] = (time_s, details[0])
                self.counts[f"ends by {details[0]}"] += 1
            elif kind == "info start":
                for line in details[1]:
                    # What a kill may leave. Everything else says that something is lost or damaged.
                    if "never completed" not in line:
                        self.anomaly("recovery complains", f"incarnation {incarnation}: {line}")
            elif kind == "fail audit":
                self.anomaly("definition", f"{details[0]} {details[1]}: {details[2]}")
            elif kind == "ok audit":
                self.counts["definitions there"] += 1

    # --- clients --------------------------------------------------------------------------------------

    def _read_client(self, client: str, events: Iterator[Event]) -> None:
        for kind, incarnation, time_s, number, *details in events:
            session = (client, number)
            moment = (incarnation, time_s)
            if kind == "ok delivery":
                self._take_delivery(session, moment, details)
            elif kind == "invoke publish":
                self._take_publish(session, moment, details)
            elif kind == "invoke settle":
                self._take_settle(session, moment, details)
            elif kind in ("ok confirm", "fail confirm"):
                self._take_confirm(session, kind == "ok confirm", details[0], details[1])
            elif kind == "invoke commit":
                self.transactions.setdefault(details[0], Transaction()).asked = moment
            elif kind == "ok commit":
                self._take_commit(session, moment, details[0])
            elif kind == "ok rollback":
                self.transactions.setdefault(details[0], Transaction()).rolled_back = True
            elif kind == "ok barrier":
                for settled in self._unhandled.pop(session, []):
                    settled.handled_s = time_s
            elif kind == "info dropped":
                self.drops.add(incarnation)
            elif kind == "info lost":
                self._take_loss(session, moment, details[0])
            elif kind == "ok closed":
                left = len(self._unanswered.get(session, {}))
                if left:
                    self.anomaly("confirm", f"{left} publishes of {session} were never answered")
            elif kind == "info surprise":
                self.anomaly("surprise", f"{session}: {details[0]}")

    def _take_publish(self, session: Session, moment: Moment, details: Event) -> None:
        tag, message_id, queues, seal, priority, mode, transaction, made_from = details
        self.counts["published"] += 1
        self.published[message_id] = Published(
            session, tag, queues, seal, priority, mode, transaction, made_from, moment
        )
        if transaction:
            self.transactions.setdefault(transaction, Transaction()).ids.append(message_id)
        else:
            self._unanswered.setdefault(session, {})[tag] = message_id

    def _take_confirm(self, session: Session, is_ack: bool, tag: int, multiple: bool) -> None:
        waiting = self._unanswered.setdefault(session, {})
        tags = [each for each in waiting if each <= tag] if multiple else [tag] if tag in waiting else []
        if not tags:
            self.anomaly("confirm", f"{session}: tag {tag} (multiple {multiple}) answers nothing that is open")
        if not is_ack:
            self.counts["nacked"] += len(tags)
        for each in tags:
            message_id = waiting.pop(each)
            if is_ack:
                self.confirmed.add(message_id)

    def _take_delivery(self, session: Session, moment: Moment, details: Event) -> None:
        tag, queue, redelivered, message_id, seal, _, _ = details
        self.counts["deliveries"] += 1
        self.counts["redelivered"] += bool(redelivered)
        copy = (queue, message_id)
        self._unsettled.setdefault(session, {})[tag] = copy
        self.consumers.setdefault(queue, set()).add(session[0])
        self.delivered.setdefault(copy, []).append(Delivered(moment, session, bool(redelivered), seal))

    def _take_settle(self, session: Session, moment: Moment, details: Event) -> None:
        tag, multiple, how, name = details
        waiting = self._unsettled[session]
        if name:
            # Open until the commit; after a rollback it is settled anew.
            transaction = self.transactions.setdefault(name, Transaction())
            transaction.tags.append(tag)
            transaction.sources.append(waiting[tag])
            self.settled.setdefault(waiting[tag], []).append(Settled(moment, name))
            return
        for each in [each for each in waiting if each <= tag] if multiple else [tag]:
            copy = waiting.pop(each)
            if how == "requeue":
                self.counts["requeued"] += 1
                continue
            settled = Settled(moment, "")
            self.settled.setdefault(copy, []).append(settled)
            self._unhandled.setdefault(session, []).append(settled)

    def _take_commit(self, session: Session, moment: Moment, name: str) -> None:
        transaction = self.transactions[name]
        transaction.answered = moment
        for tag in transaction.tags:
            del self._unsettled[session][tag]

    def _take_loss(self, session: Session, moment: Moment, reason: str) -> None:
        end_s, how = self.ends.get(moment[0], (float("inf"), ""))
        # 320 is how a broker says that it stops.
        is_expected = moment[1] >= end_s and (not reason[:3].isdigit() or (reason.startswith("320") and how != "kill"))
        if not is_expected:
            self.anomaly("connection", f"{session} lost it at {moment}, the end came at {end_s} ({how}): {reason}")

    def _note_confirmed(self) -> None:
        for transaction in self.transactions.values():
            if transaction.answered is not None:
                self.confirmed.update(transaction.ids)
        self.counts["confirmed"] = len(self.confirmed)
        for message_id in self.confirmed:
            sent = self.published[message_id]
            if sent.mode == PERSISTENT:
                incarnation, time_s = sent.moment
                self.confirmed_until_s[incarnation] = max(time_s, self.confirmed_until_s.get(incarnation, 0.0))
