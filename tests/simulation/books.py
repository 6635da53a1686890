"""What the driver itself knows: every message that it published, and every promise that it was given.

The journal is one log, so what a crash leaves is the log up to some point: a *cut*. Each change that the driver makes
has the number of its *unit*; changes of one unit are one batch, and are there together or not at all. `promised` is
the number of units that the engine has called durable, by a confirm or by `when_durable`. After a crash there must be
one cut, at or behind `promised`, that explains all that is found: every message, every definition, in every queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.message import Entry, Run

# Of something that has not happened.
NEVER = 1 << 60


class Broken(AssertionError):
    """The engine has broken its contract."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise Broken(text)


def content(entry: Entry) -> tuple[object, ...]:
    """All that must come back of a message."""
    envelope, body, props = entry
    where = (envelope.exchange, envelope.routing_key, envelope.properties)
    flags = (envelope.persistent, envelope.priority, envelope.expiration_ms)
    return (*where, *flags, body, -1 if props is None else props.expiry_ms)


class Message:
    """One message in one queue."""

    __slots__ = ("content", "entry", "gone", "lasts", "pending", "seen", "seq_id", "size", "unit")

    def __init__(self, seq_id: int, entry: Entry, lasts: bool, unit: int, seen: bool) -> None:
        self.seq_id = seq_id
        self.entry = entry
        self.content = content(entry)
        self.size = len(entry[1]) - 1
        # Persistent, in a durable queue.
        self.lasts = lasts
        # When it was published, and when it was settled.
        self.unit = unit
        self.gone = NEVER
        self.pending = False
        # Whether it must be marked: it was handed out before, or a crash made that unknowable.
        self.seen = seen

    def __repr__(self) -> str:
        gone = "" if self.gone == NEVER else f" gone in {self.gone}"
        return f"<{self.seq_id} {self.entry[1][:8]!r} of unit {self.unit}{gone}{'' if self.lasts else ' transient'}>"


@dataclass(eq=False)
class QueueBooks:
    """One queue, from its declaration to its deletion."""

    name: str
    queue_id: str
    vhost_id: str
    durable: bool
    # 0 = without priorities.
    max_priority: int
    # Of its definition; NEVER deleted = it is there.
    declared: int
    deleted: int = NEVER
    # Ready and pending.
    messages: dict[int, Message] = field(default_factory=dict)
    # Settled, and not yet promised to stay so.
    gone: list[Message] = field(default_factory=list)
    # By level: seq_ids below were used. A crash takes those of transient messages, and of what was not durable.
    floors: dict[int, int] = field(default_factory=dict)
    floors_kept: dict[int, int] = field(default_factory=dict)

    def ready(self) -> list[Message]:
        found = [message for message in self.messages.values() if not message.pending]
        if self.max_priority:
            found.sort(key=lambda message: message.seq_id)
        return found

    def pending(self) -> list[Message]:
        return [message for message in self.messages.values() if message.pending]

    def level(self, seq_id: int) -> int:
        return seq_id >> 48 if self.max_priority else 0

    def add(self, message: Message) -> None:
        seq_id = message.seq_id
        level = self.level(seq_id)
        require(seq_id >= self.floors.get(level, 0), f"seq_id {seq_id} of {self.name} is used a second time")
        require(seq_id not in self.messages, f"seq_id {seq_id} of {self.name} is in use")
        self.floors[level] = seq_id + 1
        self.messages[seq_id] = message

    def settle(self, message: Message, unit: int) -> None:
        del self.messages[message.seq_id]
        message.gone = unit
        if message.lasts:
            self.gone.append(message)

    def check_counts(self, ready: int, depth: int, ready_bytes: int, pending_bytes: int) -> None:
        """What the queue says about itself against what is known."""
        waiting = held = waiting_bytes = held_bytes = 0
        for message in self.messages.values():
            if message.pending:
                held += 1
                held_bytes += message.size
            else:
                waiting += 1
                waiting_bytes += message.size
        told = (ready, depth, ready_bytes, pending_bytes)
        known = (waiting, waiting + held, waiting_bytes, held_bytes)
        if told != known:
            raise Broken(f"{self.name} counts {told}, and there are {known} (ready, depth, bytes ready, bytes pending)")

    def check_run(self, run: Run | None, count_max: int, bytes_max: int, start: int = 0) -> list[Message]:
        """`run` is a legal answer to a fetch or a browse; the messages in it."""
        ready = [message for message in self.ready() if message.seq_id >= start]
        if run is None:
            require(not ready, f"nothing came from {self.name}, and there are {ready}")
            return []
        count = len(run.entries)
        taken = ready[:count]
        require(1 <= count <= count_max, f"{count} messages came from {self.name}, asked for {count_max}")
        require(count == len(taken), f"{count} messages came from {self.name}, and there are {len(taken)}")
        for offset, (message, entry) in enumerate(zip(taken, run.entries, strict=True)):
            found = run.first_seq_id + offset
            require(message.seq_id == found, f"{found} came from {self.name} when {message} was at the head")
            require(message.content == content(entry), f"{message} came from {self.name} as {entry}")
            require(
                message.seen == run.redelivered,
                f"{message} came from {self.name} with redelivered = {run.redelivered}",
            )
        size = sum(message.size for message in taken)
        require(count == 1 or size <= bytes_max, f"{size} bytes came from {self.name}, asked for {bytes_max}")
        return taken


class Books:
    """All queues, all definitions, all promises."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueBooks] = {}
        # Deleted, and not yet promised to stay so.
        self.deleted: list[QueueBooks] = []
        # (unit, text) of every change of the definitions so far.
        self.definitions: list[tuple[int, str]] = []
        # Units are counted from 1; what a restart has found is unit 0.
        self.unit = 1
        self.promised = 1

    def promise(self, unit: int) -> None:
        """Everything up to this unit, with it, is durable."""
        if unit >= self.promised:
            self.promised = unit + 1

    def durable_queues(self) -> list[QueueBooks]:
        return [queue for queue in [*self.queues.values(), *self.deleted] if queue.durable]

    # --- after a restart --------------------------------------------------------------------------

    def cut(self, found: dict[str, list[tuple[int, Entry]]], definitions: Sequence[str], clean: bool) -> int:
        """Where the log was cut off, from what was found: (seq_id, entry) of each durable queue by its id."""
        last = self.unit
        first = last if clean else self.promised
        votes = _Votes(first, last)
        self._vote_on_definitions(votes, definitions)
        by_id = {queue.queue_id: queue for queue in self.durable_queues()}
        strangers = [queue_id for queue_id in found if queue_id not in by_id]
        require(not strangers, f"queues came back that nobody declared: {strangers}")
        for queue in by_id.values():
            self._vote_on_messages(votes, queue, found.get(queue.queue_id, []))
        return votes.winner()

    def _vote_on_definitions(self, votes: _Votes, definitions: Sequence[str]) -> None:
        known = [text for _, text in self.definitions]
        count = len(definitions)
        require(list(definitions) == known[:count], f"the definitions are {definitions}, and were {known}")
        if count < len(known):
            votes.against(self.definitions[count][0] + 1, NEVER, f"the definition {known[count]} is lost")
        if count:
            votes.against(0, self.definitions[count - 1][0], f"the definition {known[count - 1]} is there")

    def _vote_on_messages(self, votes: _Votes, queue: QueueBooks, found: list[tuple[int, Entry]]) -> None:
        seq_ids = [seq_id for seq_id, _ in found]
        require(seq_ids == sorted(set(seq_ids)), f"{queue.name} has messages out of order, or twice: {seq_ids}")
        known = {message.seq_id: message for message in [*queue.gone, *queue.messages.values()] if message.lasts}
        for seq_id, entry in found:
            message = known.pop(seq_id, None)
            require(message is not None, f"{queue.name} has {seq_id} {entry[1]!r}, which must not be there")
            assert message is not None
            require(message.content == content(entry), f"{message} came back in {queue.name} as {entry}")
            gone = min(message.gone, queue.deleted)
            votes.against(0, message.unit, f"{message} is back in {queue.name}")
            votes.against(gone + 1, NEVER, f"{message} is back in {queue.name}, deleted in {queue.deleted}")
        for message in known.values():
            gone = min(message.gone, queue.deleted)
            votes.against(message.unit + 1, gone, f"{message} is lost in {queue.name}")

    def restart(self, cut: int, clean: bool, marks_all: bool) -> None:
        """Go on from what was found: the log ends at the cut, nobody has fetched anything, transient ones are gone.

        With `marks_all` the node cannot know what was handed out, so everything must be marked.
        """
        self.definitions = [(0, text) for unit, text in self.definitions if unit < cut]
        queues = [*self.queues.values(), *self.deleted]
        self.queues, self.deleted = {}, []
        for queue in queues:
            if queue.durable and queue.declared < cut <= queue.deleted:
                queue.declared, queue.deleted = 0, NEVER
                self._restart_queue(queue, cut, clean, marks_all)
                require(queue.name not in self.queues, f"there are two queues {queue.name}")
                self.queues[queue.name] = queue
        self.unit = 1
        self.promised = 1

    def _restart_queue(self, queue: QueueBooks, cut: int, clean: bool, marks_all: bool) -> None:
        messages = sorted([*queue.gone, *queue.messages.values()], key=lambda message: message.seq_id)
        queue.messages, queue.gone = {}, []
        for message in messages:
            if not message.lasts or message.unit >= cut:
                continue
            level = queue.level(message.seq_id)
            queue.floors_kept[level] = max(queue.floors_kept.get(level, 0), message.seq_id + 1)
            if message.gone < cut:
                continue
            message.gone = NEVER
            message.pending = False
            message.unit = 0
            if marks_all:
                message.seen = True
            queue.messages[message.seq_id] = message
        if clean:
            queue.floors_kept = queue.floors
        queue.floors = dict(queue.floors_kept)


class _Votes:
    """Cuts from `first` to `last`, and what speaks against each."""

    def __init__(self, first: int, last: int) -> None:
        self._first = first
        self._last = last
        self._against: list[tuple[int, int, str]] = []

    def against(self, start: int, end: int, why: str) -> None:
        """The cut is not in start … end."""
        start = max(start, self._first)
        end = min(end, self._last)
        if start <= end:
            self._against.append((start, end, why))

    def winner(self) -> int:
        size = self._last - self._first + 1
        steps = [0] * (size + 1)
        for start, end, _ in self._against:
            steps[start - self._first] += 1
            steps[end - self._first + 1] -= 1
        counts: list[int] = []
        count = 0
        for step in steps[:size]:
            count += step
            counts.append(count)
        # The earliest that explains everything, or that explains most.
        best = counts.index(min(counts)) + self._first
        wrong = [why for start, end, why in self._against if start <= best <= end]
        if wrong:
            raise Broken(
                f"no cut of the log from {self._first} to {self._last} explains what is there; with {best}: "
                + "; ".join(_some(wrong))
            )
        return best


def _some(texts: Iterable[str], count: int = 6) -> list[str]:
    listed = list(texts)
    return listed if len(listed) <= count else [*listed[:count], f"and {len(listed) - count} more"]
