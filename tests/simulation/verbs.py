"""The steps that clients cause: publishing, fetching, settling, declaring; and what the server does to queues.

The books are told after a verb has returned. If the machine goes down in the middle of one, nothing of it was written:
verbs only gather.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.message import Entry, Incoming, MessageProps, Run, unlike
from tests.simulation.books import Message, QueueBooks, content, require
from tests.simulation.driver import Driver
from tests.simulation.machine import VHOSTS, OpenQueue
from tests.simulation.publishing import QueueToken, Token, shared_entries

# name → (vhost, durable, max_priority)
QUEUES = {
    "a": (0, True, 0),
    "b": (0, True, 0),
    "c": (1, True, 0),
    "p": (0, True, 2),
    "t": (0, False, 0),
    "u": (0, False, 1),
}
MANY = 1 << 30


class Verbs(Driver):
    """What clients do."""

    # --- publishing ---------------------------------------------------------------------------------

    def publish(self) -> None:
        queue = self.pick()
        if queue is not None:
            self._publish([queue])
            self.end_unit()

    def publish_entries(self) -> None:
        queue = self.pick()
        if queue is not None:
            self._publish_entries([queue])
            self.end_unit()

    def fan_out(self) -> None:
        queues = list(self.node.queues.values())
        self.rng.shuffle(queues)
        if len(queues) > 1:
            if self.rng.random() < 0.6:
                self._publish(queues[: self.rng.randint(2, 3)])
            else:
                self._publish_entries(queues[: self.rng.randint(2, 3)])
            self.end_unit()

    def transaction(self) -> None:
        """Several things to several queues, without a commit in between."""
        for _ in range(self.rng.randint(2, 5)):
            queue = self.pick()
            if queue is None:
                return
            way = self.rng.random()
            if way < 0.4:
                self._publish([queue])
            elif way < 0.55:
                self._publish_entries([queue])
            elif way < 0.9:
                self._ack(queue)
            else:
                self._requeue(queue)
        self.end_unit()

    def _token(self, queues: int) -> Token | None:
        return Token(queues) if self.rng.random() < 0.6 else None

    def _publish(self, queues: Sequence[OpenQueue]) -> None:
        envelope, bodies = self.publishers.envelope(), self.publishers.bodies()
        expiry_ms = self.publishers.expiry_ms(self.clock.wall_ms())
        delivered = self.rng.random() < 0.05
        token = self._token(len(queues))
        props = None if token is None and expiry_ms < 0 else MessageProps(expiry_ms, token)
        entries = shared_entries(envelope, bodies, props)
        incoming = Incoming(envelope, bodies)
        for queue in queues:
            first = queue.messages.publish(incoming, _own(props, token, queue), delivered)
            self._published(queue, range(first, first + len(bodies)), entries, token, delivered)

    def _publish_entries(self, queues: Sequence[OpenQueue]) -> None:
        plain, expiry_ms = self.publishers.entries(self.clock.wall_ms())
        token = self._token(len(queues))
        props = None if token is None and expiry_ms < 0 else MessageProps(expiry_ms, token)
        incoming = unlike(plain)
        entries = incoming.entries_with(props)
        for queue in queues:
            first = queue.messages.publish(incoming, _own(props, token, queue))
            seq_ids: Sequence[int] = range(first, first + len(entries))
            if queue.max_priority:
                seq_ids = self._seq_ids_of(queue, entries)
                require(first == seq_ids[0], f"{queue.name} answers with {first}, and the messages are {seq_ids}")
            self._published(queue, seq_ids, entries, token, False)

    def _seq_ids_of(self, queue: OpenQueue, entries: Sequence[Entry]) -> list[int]:
        """Messages of different priorities do not follow each other: look for them."""
        with self.undisturbed():
            found = {entry[1]: seq_id for seq_id, entry, _ in queue.contents()}
        missing = [entry for entry in entries if entry[1] not in found]
        require(not missing, f"{queue.name} does not have what was just published: {missing}")
        return [found[entry[1]] for entry in entries]

    def _published(
        self, queue: OpenQueue, seq_ids: Sequence[int], entries: Sequence[Entry], token: Token | None, seen: bool
    ) -> None:
        books = self.books_of(queue)
        unit = self.books.unit
        any_lasts = False
        for seq_id, entry in zip(seq_ids, entries, strict=True):
            lasts = queue.durable and entry[0].persistent
            any_lasts = any_lasts or lasts
            books.add(Message(seq_id, entry, lasts, unit, seen))
        if token is not None:
            token.units[queue.queue_id] = unit if any_lasts else -1
            self.owed.setdefault(queue.queue_id, []).append(token)

    # --- fetching -----------------------------------------------------------------------------------

    def fetch(self) -> None:
        self._fetch(True)

    def fetch_without_ack(self) -> None:
        self._fetch(False)

    def _fetch(self, ack_required: bool) -> None:
        queue = self.pick()
        if queue is None:
            return
        count_max, bytes_max = self.rng.choice((1, 2, 6, MANY)), self.rng.choice((0, 20, 100, MANY))
        run = queue.messages.fetch(count_max, bytes_max, ack_required)
        books = self.books_of(queue)
        self._taken(books, books.check_run(run, count_max, bytes_max), ack_required)
        self.end_unit()

    def fetch_at(self) -> None:
        """Some by number, from anywhere."""
        queue = self.pick()
        if queue is None:
            return
        books = self.books_of(queue)
        ready = books.ready()
        chosen = self.rng.sample(ready, self.rng.randint(0, min(len(ready), 6)))
        # Of one level: after an error those of another are given back, and are redelivered then.
        chosen = [message for message in chosen if self._level(queue, message) == self._level(queue, chosen[0])]
        found = queue.messages.fetch_at([message.seq_id for message in chosen])
        seen = [(seq_id, content(entry)) for seq_id, entry in found]
        known = [(message.seq_id, message.content) for message in chosen]
        require(seen == known, f"{seen} were taken from {queue.name} by number, and wanted were {known}")
        self._taken(books, chosen, True)
        self.end_unit()

    def _level(self, queue: OpenQueue, message: Message) -> int:
        return min(message.entry[0].priority, queue.max_priority)

    def _taken(self, books: QueueBooks, taken: Sequence[Message], ack_required: bool) -> None:
        for message in taken:
            message.seen = True
            if ack_required:
                message.pending = True
            else:
                books.settle(message, self.books.unit)

    def drop(self) -> None:
        queue = self.pick()
        if queue is None:
            return
        ack_required = self.rng.random() < 0.5
        dropped = queue.messages.drop(ack_required)
        books = self.books_of(queue)
        head = books.ready()[:1]
        require(bool(head) == (dropped is not None), f"a drop from {queue.name} found {dropped}, and there is {head}")
        if dropped is not None:
            require(dropped == head[0].seq_id, f"{dropped} was dropped from {queue.name}, not {head}")
            self._taken(books, head, ack_required)
        self.end_unit()

    def drop_expired(self) -> None:
        queue = self.pick()
        if queue is None:
            return
        expired = self._expired(queue)
        try:
            dropped = queue.messages.dropwhile(self._is_expired)
        except OSError:
            self._removed_some(queue, expired)
            raise
        require(dropped == len(expired), f"{dropped} messages of {queue.name} have expired, and should {expired}")
        for message in expired:
            self.books_of(queue).settle(message, self.books.unit)
        self.end_unit()

    def fetch_expired(self) -> None:
        queue = self.pick()
        if queue is None:
            return
        expired = self._expired(queue)
        seen: list[tuple[int, tuple[object, ...]]] = []
        try:
            queue.messages.fetchwhile(self._is_expired, lambda seq_id, entry: seen.append((seq_id, content(entry))))
        except OSError:
            self._taken(self.books_of(queue), expired[: len(seen)], True)
            self.end_unit()
            raise
        known = [(message.seq_id, message.content) for message in expired]
        require(seen == known, f"{seen} of {queue.name} have expired, and should {known}")
        self._taken(self.books_of(queue), expired, True)
        self.end_unit()

    def _is_expired(self, props: MessageProps | None) -> bool:
        return props is not None and 0 <= props.expiry_ms <= self.clock.wall_ms()

    def _expired(self, queue: OpenQueue) -> list[Message]:
        expired: list[Message] = []
        for message in self.books_of(queue).ready():
            if not self._is_expired(message.entry[2]):
                break
            expired.append(message)
        return expired

    def browse(self) -> None:
        queue = self.pick()
        if queue is None:
            return
        books = self.books_of(queue)
        seq_ids = [message.seq_id for message in books.ready()]
        start = self.rng.choice([0, *seq_ids])
        run: Run | None = queue.messages.browse(start, 3, 50)
        books.check_run(run, 3, 50, start)

    # --- settling -----------------------------------------------------------------------------------

    def ack(self) -> None:
        queue = self.pick()
        if queue is not None:
            self._ack(queue)
            self.end_unit()

    def consume(self) -> None:
        """Fetch and ack from the head, many messages: whole files become superfluous."""
        queue = self.pick()
        if queue is None:
            return
        books = self.books_of(queue)
        for _ in range(self.rng.randint(2, 12)):
            taken = books.check_run(queue.messages.fetch(3, MANY, True), 3, MANY)
            self._taken(books, taken, True)
            self._ack_these(queue, taken)
        self.end_unit()

    def _ack(self, queue: OpenQueue) -> None:
        self._ack_these(queue, self._some_pending(self.books_of(queue)))

    def _ack_these(self, queue: OpenQueue, chosen: Sequence[Message]) -> None:
        books = self.books_of(queue)
        seq_ids = [message.seq_id for message in chosen]
        acked = queue.messages.ack([*seq_ids, *seq_ids[:1], 1 << 40])
        require(acked == len(seq_ids), f"{acked} of {chosen} were acked in {queue.name}")
        for message in chosen:
            books.settle(message, self.books.unit)

    def requeue(self) -> None:
        queue = self.pick()
        if queue is not None:
            self._requeue(queue)
            self.end_unit()

    def _requeue(self, queue: OpenQueue) -> None:
        chosen = self._some_pending(self.books_of(queue))
        requeued = queue.messages.requeue([message.seq_id for message in chosen])
        require(requeued == len(chosen), f"{requeued} of {chosen} were requeued in {queue.name}")
        for message in chosen:
            message.pending = False

    def _some_pending(self, books: QueueBooks) -> list[Message]:
        pending = books.pending()
        way = self.rng.random()
        if way < 0.3:
            return pending
        if way < 0.6:
            return pending[: self.rng.randint(0, 3)]
        self.rng.shuffle(pending)
        return pending[: self.rng.randint(0, 4)]

    def purge(self) -> None:
        queue = self.pick()
        if queue is None:
            return
        books = self.books_of(queue)
        ready = books.ready()
        in_slices = queue.messages.begin_purge()
        try:
            purged = 0 if in_slices else queue.messages.purge()
            while in_slices and (count := queue.messages.purge_some(2)):
                purged += count
        except OSError:
            whole = not in_slices and queue.max_priority == 0
            require(not whole or len(queue.messages) == len(ready), f"half a purge of {queue.name}")
            self._removed_some(queue, ready)
            raise
        require(purged == len(ready), f"{purged} of {ready} were purged from {queue.name}")
        for message in ready:
            books.settle(message, self.books.unit)
        self.end_unit()

    def _removed_some(self, queue: OpenQueue, chosen: Sequence[Message]) -> None:
        """These were to go when an error came out: some of them, from the first on, are gone."""
        with self.undisturbed():
            there = {seq_id for seq_id, _, _ in queue.contents()}
        gone = [message for message in chosen if message.seq_id not in there]
        require(gone == list(chosen[: len(gone)]), f"{gone} are gone from {queue.name}, of {chosen}")
        for message in gone:
            self.books_of(queue).settle(message, self.books.unit)
        self.end_unit()

    def look(self) -> None:
        """Read everything, and change nothing."""
        for queue in self.node.queues.values():
            self.check_contents(queue)
            if not queue.max_priority:
                lasting = len([message for message in self.books_of(queue).messages.values() if message.lasts])
                told = queue.messages.status()["messages_persistent"]
                require(told == lasting, f"{queue.name} counts {told} persistent messages, and has {lasting}")

    # --- declaring ----------------------------------------------------------------------------------

    def declare(self) -> None:
        names = [name for name in QUEUES if name not in self.node.queues]
        if not self.profile.second_vhost:
            names = [name for name in names if name != "c"]
        if names:
            self._declare(self.rng.choice(names))

    def _declare(self, name: str) -> None:
        vhost, durable, max_priority = QUEUES[name]
        self.ids_given += 1
        queue_id = f"{self.ids_given:04x}"
        text = self.node.declare(name, queue_id, VHOSTS[vhost], durable, max_priority)
        books = self.books
        books.queues[name] = QueueBooks(name, queue_id, VHOSTS[vhost], durable, max_priority, books.unit)
        if text:
            books.definitions.append((books.unit, text))
        self.end_unit()

    def delete(self) -> None:
        queue = self.pick()
        if queue is None:
            return
        text = self.node.delete(queue)
        books = self.books.queues.pop(queue.name)
        books.deleted = self.books.unit
        if text:
            self.books.deleted.append(books)
            self.books.definitions.append((self.books.unit, text))
        self.end_unit()
        self.drain(queue)
        owed = [token for token in self.owed.pop(queue.queue_id, []) if not token.is_refused]
        require(not owed, f"{len(owed)} confirms are still owed by {queue.name}, which is deleted")

    def note(self) -> None:
        """A change of the definitions that is not about queues."""
        text = self.node.define({"do": "note", "unit": self.books.unit})
        self.books.definitions.append((self.books.unit, text))
        self.end_unit()

    # --- what the server does to queues -------------------------------------------------------------

    def ram_seconds(self) -> None:
        queue = self.pick()
        if queue is not None:
            queue.messages.set_ram_duration_target(self.rng.choice((0.0, 0.1, float("inf"))))

    def ram_bytes(self) -> None:
        queue = self.pick()
        if queue is not None:
            queue.messages.set_ram_bytes_target(self.rng.choice((0, 50, -1)))

    def lazy(self) -> None:
        queue = self.pick()
        if queue is not None:
            queue.messages.set_queue_mode(self.rng.random() < 0.5)

    def resume(self) -> None:
        for queue in self.node.queues.values():
            queue.messages.resume()

    def time_out(self) -> None:
        queue = self.pick()
        if queue is not None:
            queue.messages.timeout()


def _own(props: MessageProps | None, token: Token | None, queue: OpenQueue) -> MessageProps | None:
    """Return what is published to one queue: its share of the token."""
    return props if props is None or token is None else MessageProps(props.expiry_ms, QueueToken(token, queue))
