"""What all steps of a feature simulation share: the broker of this life, what the driver knows, and the look around.

One thread, one source of chance, no real file and no real time: the same seed does the same, byte by byte.
"""

from __future__ import annotations

import random

from penstock.broker.features.deduplication import DedupGate
from penstock.broker.vhost.companions import DEDUP
from penstock.clock import ManualClock
from penstock.message import ConfirmToken, Run, body_bytes
from penstock.queues.queue import Queue
from tests.disk.sim_files import FaultPlan, SimFiles
from tests.simulation.books import require
from tests.simulation.driver import Trace, no_trace
from tests.simulation.features.feature_books import Copy, History, Picture, is_over, messages
from tests.simulation.features.feature_machine import FeatureNode, Inbox
from tests.simulation.features.feature_profile import GROUP_HEADER, SORT_HEADER, FeatureProfile
from tests.simulation.features.feature_rules import COUNT_HEADER, Facts, Rules


class Token(ConfirmToken):
    """Waits for the confirm of some messages."""

    __slots__ = ("driver", "is_durable", "is_refused", "is_told", "mids", "number", "originals", "targets")

    def __init__(self, driver: FeatureDriver, mids: list[int], targets: list[str], is_durable: bool) -> None:
        super().__init__(len(targets))
        self.driver = driver
        self.mids = mids
        self.targets = targets
        # Whether all queues that it was published to last.
        self.is_durable = is_durable
        # The messages that came in for it: of a duplicate, the first one with its key.
        self.originals = set(mids)
        # The picture after the publish.
        self.number = -1
        self.is_refused = False
        self.is_told = False

    def complete(self) -> None:
        require(not self.is_told, f"the publish of {self.mids} was confirmed twice")
        self.is_told = True
        self.driver.completed.append(self)

    def refuse(self) -> None:
        require(not self.is_told or self.is_refused, f"the publish of {self.mids} was confirmed, and then refused")
        self.is_told = self.is_refused = True
        self.driver.facts.refused.update(self.mids)


class FeatureDriver:
    """Drives one broker through its lives."""

    def __init__(self, seed: int, trace: Trace = no_trace) -> None:
        self.seed = seed
        self.trace = trace
        self.rng = random.Random(f"features {seed}")
        self.profile = FeatureProfile(self.rng)
        self.topology = self.profile.topology
        self.specs = self.topology.specs
        self.clock = ManualClock()
        self.files = SimFiles(FaultPlan(self.profile.machine.survival))
        self.node: FeatureNode
        # Bodies of all messages.
        self.bodies: dict[int, bytes] = {}
        self.rules = Rules(self.topology, self.bodies)
        self.facts = Facts(0)
        self.picture: Picture = {}
        self.history = History(self.specs, {})
        self.completed: list[Token] = []
        # Tokens of this life that were not told yet, and those of this step.
        self.fresh: list[Token] = []
        self.inboxes: list[Inbox] = []
        # Who came in with which key: queue name and key → the latest message.
        self.came_with: dict[tuple[str, bytes], int] = {}
        # Who has which message: queue name and seq_id → inbox, None for a get.
        self.out: dict[tuple[str, int], Inbox | None] = {}
        # How often messages that are out, or came back, were delivered before.
        self.counts: dict[tuple[str, int], int] = {}
        # The highest that each was, also of messages that have gone since: a crash may bring them back with any count
        # up to that. After a crash, those that were not delivered yet.
        self.counts_ever: dict[tuple[str, int], int] = {}
        self.counts_at_most: dict[tuple[str, int], int] = {}
        self.tags = 0
        self.lives = 0
        self.deliveries = 0

    def queue(self, name: str) -> Queue | None:
        return self.node.vhost.queues.get(name)

    def pick(self) -> Queue | None:
        """Some queue."""
        queues = list(self.node.vhost.queues.values())
        return self.rng.choice(queues) if queues else None

    def forget_queue(self, name: str) -> None:
        """It was deleted: nobody has messages of it any more."""
        self.rules.deleted(name)
        self.out = {key: inbox for key, inbox in self.out.items() if key[0] != name}
        self.counts = {key: count for key, count in self.counts.items() if key[0] != name}
        self.inboxes = [inbox for inbox in self.inboxes if inbox.queue.name != name]

    # --- deliveries -----------------------------------------------------------------------------------------

    def delivered_to(self, inbox: Inbox, run: Run) -> None:
        self.delivered(inbox.queue, inbox, run, inbox.no_ack)

    def delivered(self, queue: Queue, inbox: Inbox | None, run: Run, no_ack: bool) -> None:
        """Called within a pull, also when that is in the middle of a publish."""
        for index, (envelope, body, props) in enumerate(run.entries):
            seq_id = run.first_seq_id + index
            copy = Copy(queue.name, seq_id, body, envelope, -1 if props is None else props.expiry_ms, True)
            self.trace(f"  {queue.name}/{seq_id} message {copy.mid} to {inbox.tag if inbox else 'get'}")
            self.deliveries += 1
            require(not queue.paused, f"{copy} was handed out by a paused queue")
            require(copy.key not in self.out, f"{copy} was handed out twice")
            require(body == self.bodies[copy.mid], f"{copy} should be {self.bodies[copy.mid]!r}")
            require(not is_over(copy, self.clock.wall_ms()), f"{copy} has expired, and was handed out")
            self._check_count(copy)
            self._check_order(copy, inbox)
            if no_ack:
                self.facts.consumed.add(copy.mid)
                self.facts.settled.add(copy.key)
                self.counts.pop(copy.key, None)
            else:
                self.out[copy.key] = inbox
                if inbox is not None:
                    inbox.unacked[seq_id] = None

    def _check_count(self, copy: Copy) -> None:
        spec = self.specs[copy.queue]
        if not spec.counts:
            return
        stored = self.picture[copy.queue].copies.get(copy.seq_id)
        expected = self.counts.get(copy.key, 0)
        if expected == 0 and stored is not None and spec.retry_min_ms:
            value = stored.value(COUNT_HEADER)
            expected = value if isinstance(value, int) else 0
        told = copy.value(COUNT_HEADER)
        told = told if isinstance(told, int) else 0
        at_most = self.counts_at_most.pop(copy.key, -1)
        if stored is None and expected == 0:
            # It came in this very step; where from, the rules look at.
            expected = told
        elif at_most >= 0:
            most = max(at_most, expected)
            require(told <= most, f"{copy} was delivered {most} times before the crash, and says {told}")
            expected = told
        else:
            require(told == expected, f"{copy} was delivered {expected} times before, and says {told}")
        limit = spec.delivery_limit
        require(
            limit < 0 or expected <= limit, f"{copy} is delivered for the {expected + 1}. time; the limit is {limit}"
        )
        self.note_count(copy.key, expected)

    def note_count(self, key: tuple[str, int], count: int) -> None:
        self.counts[key] = count
        self.counts_ever[key] = max(count, self.counts_ever.get(key, 0))

    def _check_order(self, copy: Copy, inbox: Inbox | None) -> None:
        spec = self.specs[copy.queue]
        if spec.order not in ("group", "sort") or spec.at_least_once:
            return
        now_ms = self.clock.wall_ms()
        for other in self.picture[copy.queue].copies.values():
            key = other.key
            if key == copy.key or key in self.facts.settled or is_over(other, now_ms):
                continue
            if key in self.facts.rejected or key in self.rules.condemned or key in self.rules.put_off:
                continue
            if spec.order == "sort":
                is_first = rank(other) < rank(copy) and key not in self.out
                require(not is_first, f"{copy} was handed out before {other}")
            elif other.value(GROUP_HEADER) is not None and other.value(GROUP_HEADER) == copy.value(GROUP_HEADER):
                if key in self.out:
                    require(self.out[key] is inbox, f"{copy} and {other} of one group are with two consumers")
                elif other.seq_id < copy.seq_id and key not in self.facts.returned:
                    require(False, f"{copy} was handed out before {other} of its group")

    # --- looking around -------------------------------------------------------------------------------------

    def look_around(self) -> None:
        """After each step: the change is explained, what was promised is noted, the broker is in order."""
        self.node.check()
        after = self.node.picture()
        self.rules.check(self.picture, after, self.facts)
        # What a consumer has again was not put off.
        self.rules.put_off = {key: how for key, how in self.rules.put_off.items() if key not in self.out}
        self.picture = after
        number = self.history.add(self.node.journal.next_lsn, after)
        self.history.durable_to(self.node.journal.durable_lsn)
        for token in self.fresh:
            token.number = number
        self.fresh.clear()
        self._note_confirms()
        self._check_windows()
        self.facts = Facts(self.clock.wall_ms())

    def _note_confirms(self) -> None:
        """A message that was confirmed and is still there must be there after a crash, wherever it has gone."""
        there = {copy.mid for copy in messages(self.picture) if self._lasts(copy)} if self.completed else set()
        for token in self.completed:
            if not self.facts.emptied.isdisjoint(token.targets):
                # A queue that is deleted owes nobody anything.
                continue
            if token.is_durable and not token.originals.isdisjoint(there):
                self.trace(f"  confirmed {token.mids}: picture {token.number} is promised")
                self.history.promise(token.number)
        self.completed.clear()

    def _lasts(self, copy: Copy) -> bool:
        return copy.envelope.persistent and self.picture[copy.queue].durable

    def _check_windows(self) -> None:
        """A window and the companion in which it lasts are in step."""
        vhost = self.node.vhost
        for queue in vhost.queues.values():
            gates = queue.intake.gates if queue.intake is not None else []
            for gate in gates:
                if isinstance(gate, DedupGate):
                    gate._window.check_invariants()
                    companion = vhost.companions.find(DEDUP, queue.name)
                    require(companion is not None, f"{queue.name} has no window")
                    stored = [body_bytes(copy.body) for copy in self.picture[companion.name].copies.values()]  # type: ignore[union-attr]
                    known = [slot.key for slot in gate._window._slots]
                    require(stored == known, f"the window of {queue.name} is {known}, and lasts as {stored}")


def rank(copy: Copy) -> tuple[int, int, int]:
    value = copy.value(SORT_HEADER)
    return (1, value, copy.seq_id) if isinstance(value, int) else (0, 0, copy.seq_id)
