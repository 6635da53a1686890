"""The steps that clients, people and the clock cause. Each is one thing that a broker does within one turn."""

from __future__ import annotations

from penstock.broker.operations.messages import held_calls, message_moves, messages_at_hand
from penstock.broker.operations.messages.message_moves import Target
from penstock.broker.vhost.companions import DEDUP, HELD_FOR_EXCHANGE, HELD_FOR_QUEUE, companion_name
from penstock.fields import Table
from penstock.message import Envelope, Incoming
from penstock.queues.delayed.held_selection import HeldSelection
from penstock.queues.queue import Queue
from penstock.wire.content import read_content
from penstock.wire.properties import Properties, encode_properties
from tests.simulation.books import require
from tests.simulation.features.feature_books import Copy, is_over
from tests.simulation.features.feature_driver import FeatureDriver, Token
from tests.simulation.features.feature_machine import Inbox, shelf_of
from tests.simulation.features.feature_profile import (
    DEDUP_HEADER,
    FAN,
    GROUP_HEADER,
    LATE,
    SORT_HEADER,
    VALUE_HEADER,
)

INBOXES_MAX = 4


class Steps(FeatureDriver):
    """What happens to a broker that lives."""

    # --- publishing -----------------------------------------------------------------------------------------

    def publish(self) -> None:
        """One message, to a queue, to the fan or by way of the exchange that delays."""
        route = self.rng.choice((*self.specs, *self.specs, FAN, LATE))
        exchange, key = (route, "k") if route in (FAN, LATE) else ("", route)
        headers = self._headers()
        if self.rng.random() < 0.5:
            headers[DEDUP_HEADER] = ("S", self.rng.choice((b"x", b"y", b"z")))
        self._publish(exchange, key, headers, 1)

    def publish_run(self) -> None:
        self._publish("", self.rng.choice(list(self.specs)), self._headers(), self.rng.randint(2, 5))

    def publish_late(self) -> None:
        headers = self._headers()
        headers["x-delay"] = ("I", self.rng.choice((1, 15, 1000, 5000)))
        self._publish(LATE, "k", headers, 1)

    def _headers(self) -> Table:
        rng = self.rng
        headers: Table = {}
        if rng.random() < 0.7:
            headers[GROUP_HEADER] = ("S", rng.choice((b"g", b"h")))
        if rng.random() < 0.7:
            headers[VALUE_HEADER] = ("S", rng.choice((b"v", b"w")))
        if rng.random() < 0.7:
            headers[SORT_HEADER] = ("I", rng.randrange(4))
        if rng.random() < 0.3:
            headers["x-not-valid-before"] = ("l", self.clock.wall_ms() + rng.choice((-5, 4, 40, 2000)))
        return headers

    def _publish(self, exchange: str, key: str, headers: Table, count: int) -> None:
        """As a channel does it: singly where a queue may refuse one message of a run."""
        rng = self.rng
        expiration = rng.choice(("4", "2000")) if rng.random() < 0.15 else None
        mode = 2 if rng.random() < self.profile.persistent_share else 1
        priority = rng.randrange(4)
        mids = [len(self.bodies) + index for index in range(count)]
        # One envelope for all: its header tells the first number.
        headers["n"] = ("l", mids[0])
        envelope = self._envelope(exchange, key, headers, mode, priority, expiration)
        if self._takes_singly(exchange, key, headers):
            for mid in mids:
                self._publish_run(envelope, headers, [mid])
        else:
            self._publish_run(envelope, headers, mids)

    def _takes_singly(self, exchange: str, key: str, headers: Table) -> bool:
        return any(queue.takes_singly for queue in self.node.vhost.route(exchange, [key], headers))

    def _publish_run(self, envelope: Envelope, headers: Table, mids: list[int]) -> None:
        queues = self.node.vhost.route(envelope.exchange, [envelope.routing_key], headers)
        for mid in mids:
            self.bodies[mid] = self._body(mid)
            self.facts.published[mid] = [queue.name for queue in queues]
        self.trace(f"  message {mids} to {[queue.name for queue in queues]} {headers}")
        if not queues:
            return
        token = Token(self, mids, [queue.name for queue in queues], all(queue.durable for queue in queues))
        self.fresh.append(token)
        key = headers.get(DEDUP_HEADER, ("V", None))[1]
        incoming = Incoming(envelope, [self.bodies[mid] for mid in mids])
        for queue in queues:
            if self._is_duplicate(queue, key):
                assert isinstance(key, bytes)
                self.facts.duplicates.update((mid, queue.name) for mid in mids)
                # Its publisher may rely on the one that is there.
                token.originals.add(self.came_with.get((queue.name, key), mids[0]))
            elif isinstance(key, bytes):
                self.came_with[queue.name, key] = mids[0]
            queue.publish(incoming, token)

    def _is_duplicate(self, queue: Queue, key: object) -> bool:
        """By what the companion has, which is what a crash leaves.

        By what it has now: another message with this key, that this one has pushed out of a queue which it came to
        first, may have died into this queue a moment ago.
        """
        window = self.node.vhost.companions.find(DEDUP, queue.name)
        if window is None or not isinstance(key, bytes):
            return False
        return shelf_of(window).known_key(b"S" + key, self.clock.wall_ms())

    def _envelope(
        self, exchange: str, key: str, headers: Table, mode: int, priority: int, expiration: str | None
    ) -> Envelope:
        properties = Properties(headers=headers, delivery_mode=mode, priority=priority, expiration=expiration)
        return read_content(exchange, key, encode_properties(properties)).envelope

    def _body(self, mid: int) -> bytes:
        large = self.rng.random() < self.profile.large_share
        return (b"%d." % mid).ljust(self.rng.choice((50, 130) if large else (0, 12)), b"o") + b"\xce"

    # --- consuming ------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        queue = self.pick()
        if queue is None or len(self.inboxes) >= INBOXES_MAX:
            return
        self.tags += 1
        no_ack = self.rng.random() < 0.15
        inbox = Inbox(f"c{self.tags}", queue, no_ack, self.rng.choice((1, 2, 5)), self.delivered_to)
        queue.add_consumer(inbox, True)
        self.inboxes.append(inbox)

    def cancel(self) -> None:
        """A consumer is lost, and what it had comes back."""
        if not self.inboxes:
            return
        inbox = self.inboxes.pop(self.rng.randrange(len(self.inboxes)))
        inbox.queue.remove_consumer(inbox)
        self._return(inbox.queue, list(inbox.unacked), True)

    def pull(self) -> None:
        if len(self.inboxes) < 2:
            self.subscribe()
        if self.inboxes:
            self.rng.choice(self.inboxes).pull()

    def get(self) -> None:
        queue = self.pick()
        if queue is not None:
            no_ack = self.rng.random() < 0.3
            run = queue.get(no_ack)
            if run is not None:
                self.delivered(queue, None, run, no_ack)

    def _some_out(self) -> tuple[Queue, list[int]] | None:
        """Messages of one queue that are with consumers."""
        if not self.out:
            self.pull()
        names = sorted({name for name, _ in self.out})
        if not names or self.rng.random() < 0.1:
            return None
        name = self.rng.choice(names)
        known = [seq_id for each, seq_id in self.out if each == name]
        queue = self.queue(name)
        assert queue is not None
        return queue, sorted(self.rng.sample(known, self.rng.randint(1, min(3, len(known)))))

    def _settled(self, queue: Queue, seq_ids: list[int]) -> None:
        """They are with nobody any more."""
        for seq_id in seq_ids:
            inbox = self.out.pop((queue.name, seq_id))
            if inbox is not None:
                inbox.unacked.pop(seq_id, None)

    def _update_interest(self, queue: Queue) -> None:
        for inbox in self.inboxes:
            if inbox.queue is queue:
                inbox.settled()

    def ack(self) -> None:
        chosen = self._some_out()
        if chosen is not None:
            queue, seq_ids = chosen
            self.facts.settled.update((queue.name, seq_id) for seq_id in seq_ids)
            self._settled(queue, seq_ids)
            for seq_id in seq_ids:
                self.counts.pop((queue.name, seq_id), None)
            queue.ack(seq_ids)
            self._update_interest(queue)

    def reject(self) -> None:
        chosen = self._some_out()
        if chosen is not None:
            queue, seq_ids = chosen
            self.facts.rejected.update((queue.name, seq_id) for seq_id in seq_ids)
            self._settled(queue, seq_ids)
            for seq_id in seq_ids:
                self.counts.pop((queue.name, seq_id), None)
            queue.reject(seq_ids)
            self._update_interest(queue)

    def requeue(self) -> None:
        chosen = self._some_out()
        if chosen is not None:
            self._return(*chosen, False)

    def _return(self, queue: Queue, seq_ids: list[int], lost: bool) -> None:
        for seq_id in seq_ids:
            key = (queue.name, seq_id)
            count = self.counts.get(key, 0) + 1
            self.facts.returned[key] = (lost, count)
            if self.specs[queue.name].counts:
                self.note_count(key, count)
        self._settled(queue, seq_ids)
        queue.requeue(seq_ids, lost)
        self._update_interest(queue)

    # --- the clock --------------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        self._pass_ms(self.rng.choice((1, 2, 5, 20, 100, 1000)))

    def pass_long(self) -> None:
        self._pass_ms(self.rng.choice((3000, 100_000)))

    def _pass_ms(self, milliseconds: int) -> None:
        """Time passes; what is due is done, in slices, and after that nothing is overdue."""
        self.clock.advance(milliseconds / 1000)
        for _ in range(300):
            self.facts.now_ms = self.clock.wall_ms()
            self.node.broker.expiries.run_due(self.clock.wall_ms())
            self.look_around()
            due_ms = self.node.broker.expiries.next_due_ms()
            if not 0 <= due_ms <= self.clock.wall_ms() + 1:
                break
            self.clock.advance(0.001)
        self._check_overdue()

    def _check_overdue(self) -> None:
        now_ms = self.clock.wall_ms()
        for shelf in self.picture.values():
            if shelf.kind in (HELD_FOR_QUEUE, HELD_FOR_EXCHANGE):
                for copy in shelf.copies.values():
                    waits = is_over(copy, now_ms - 1) and not self._is_refused(shelf.kind)
                    require(not waits, f"{copy} is overdue by {now_ms - copy.expiry_ms} ms")
            elif not shelf.kind and self.specs[shelf.name].order == "":
                self._check_head(self._ready(shelf.copies))

    def _check_head(self, ready: list[Copy]) -> None:
        if ready:
            require(not is_over(ready[0], self.clock.wall_ms() - 1), f"{ready[0]} has expired, and is at the head")

    def _ready(self, copies: dict[int, Copy]) -> list[Copy]:
        return [copy for copy in copies.values() if not copy.is_pending]

    def _is_refused(self, kind: str) -> bool:
        """Whether what is due may wait because a queue does not take it."""
        return kind == HELD_FOR_EXCHANGE and any(self.specs[name].refuses for name in self.topology.late)

    # --- the whole queue ----------------------------------------------------------------------------------------

    def purge(self) -> None:
        queue = self.pick()
        if queue is not None:
            for copy in self.picture[queue.name].copies.values():
                if copy.key not in self.out:
                    self.facts.settled.add(copy.key)
                    self.counts.pop(copy.key, None)
            queue.purge()

    def delete(self) -> None:
        queue = self.pick()
        if queue is not None:
            self.facts.emptied.update((queue.name, *[companion_name(kind, queue.name) for kind in (HELD_FOR_QUEUE,)]))
            self.node.vhost.delete_queue(queue, False, False)
            self.forget_queue(queue.name)

    def declare(self) -> None:
        """One of the queues that are not there."""
        for name in self.specs:
            if self.queue(name) is None:
                self.declare_queue(name)
                return

    def declare_queue(self, name: str) -> None:
        spec = self.specs[name]
        vhost = self.node.vhost
        queue = vhost.declare_queue(name, spec.durable, False, None, spec.arguments())
        for exchange, bound in ((FAN, self.topology.fan), (LATE, self.topology.late)):
            if name in bound:
                vhost.bind_queue(exchange, queue, "k", {})

    def pause(self) -> None:
        queue = self.pick()
        if queue is not None:
            messages_at_hand.pause(self.node.vhost, queue.name)

    def resume(self) -> None:
        for queue in self.node.vhost.queues.values():
            messages_at_hand.resume(self.node.vhost, queue.name)

    # --- messages at hand ---------------------------------------------------------------------------------------

    def _chosen(self, name: str) -> list[int]:
        """Messages of a queue that are with nobody."""
        free = [copy.seq_id for copy in self.picture[name].copies.values() if copy.key not in self.out]
        return sorted(self.rng.sample(free, min(len(free), self.rng.randint(1, 3))))

    def take_out(self) -> None:
        """Somebody deletes messages by their numbers."""
        queue = self.pick()
        if queue is not None:
            outcome = message_moves.delete(self.node.vhost, queue.name, self._chosen(queue.name))
            self.facts.settled.update((queue.name, seq_id) for seq_id in outcome.done)
            for seq_id in outcome.done:
                self.counts.pop((queue.name, seq_id), None)

    def move(self) -> None:
        queue, target = self.pick(), self.pick()
        if queue is None or target is None or queue is target:
            return
        chosen = self._chosen(queue.name)
        self.facts.moved.update({(queue.name, seq_id): target.name for seq_id in chosen})
        outcome = message_moves.move(self.node.vhost, queue.name, chosen, Target(queue=target.name))
        for seq_id in outcome.done:
            self.counts.pop((queue.name, seq_id), None)

    def _held(self) -> tuple[Queue, list[int]] | None:
        companions = [
            queue
            for queue in self.node.vhost.companions.queues.values()
            if isinstance(queue.selection, HeldSelection) and len(self.picture[queue.name].copies)
        ]
        if not companions:
            return None
        queue = self.rng.choice(companions)
        return queue, self._chosen(queue.name)

    def release(self) -> None:
        found = self._held()
        if found is not None:
            queue, seq_ids = found
            self.facts.released.update((queue.name, seq_id) for seq_id in seq_ids)
            held_calls.release_now(self.node.vhost, queue.name, seq_ids)

    def reschedule(self) -> None:
        found = self._held()
        if found is not None:
            queue, seq_ids = found
            due_ms = self.clock.wall_ms() + self.rng.choice((1, 30, 3000))
            edited = held_calls.reschedule(self.node.vhost, queue.name, seq_ids[0], due_ms)
            if edited.new_seq_id is not None:
                self.facts.rescheduled[(queue.name, seq_ids[0])] = due_ms
