"""Which changes of a picture a step may cause: nothing comes from nowhere, and nothing goes without a reason.

A copy that is gone was acknowledged, purged, replaced, or it died; one that died is where its queue's dead-letter
arguments lead to, perhaps several queues further on, or was lost where those arguments allow that. One that was held is
where it belongs, and not before its time. A copy that is new was published in this step, or is one of those.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from penstock.broker.features.x_death import death_count, entries_of
from penstock.broker.vhost.companions import HELD_FOR_EXCHANGE, HELD_FOR_QUEUE, companion_name
from tests.simulation.books import Broken, require
from tests.simulation.features.feature_books import Copy, Picture, is_over, messages
from tests.simulation.features.feature_profile import FAN, VALUE_HEADER, Topology

REASONS = (b"rejected", b"expired", b"maxlen", b"delivery_limit")
COUNT_HEADER = "x-delivery-count"
# Messages of a run have the number of the first one in their headers.
RUN_MAX = 5
# Copies of one message that a ring of queues may make in one step.
ROUNDS_MAX = 8
Key = tuple[str, int]


@dataclass(slots=True)
class Facts:
    """What the driver has done in one step."""

    now_ms: int
    # Where each new message was published to: names of queues, or of the companion in which it waits.
    published: dict[int, list[str]] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    # Messages, and queues that have seen their keys already.
    duplicates: set[tuple[int, str]] = field(default_factory=set)
    settled: set[Key] = field(default_factory=set)
    # Messages that a consumer without acks got.
    consumed: set[int] = field(default_factory=set)
    rejected: set[Key] = field(default_factory=set)
    # What was given back, and whether its consumer was lost; with the count that it must have then.
    returned: dict[Key, tuple[bool, int]] = field(default_factory=dict)
    # Queues that were purged or deleted.
    emptied: set[str] = field(default_factory=set)
    # Held messages that somebody has released, or held until another time.
    released: set[Key] = field(default_factory=set)
    rescheduled: dict[Key, int] = field(default_factory=dict)
    moved: dict[Key, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fate:
    """What may have become of a copy."""

    # How many copies may be where.
    places: Counter[str] = field(default_factory=Counter)
    may_vanish: bool = False
    # How many there may be at all.
    fan: int = 0

    def add(self, other: Fate) -> None:
        """It may also have gone that way."""
        self.places |= other.places
        self.may_vanish |= other.may_vanish
        self.fan = max(self.fan, other.fan)


def at(name: str, may_vanish: bool = False) -> Fate:
    return Fate(Counter([name]), may_vanish, 1)


def all_of(legs: list[Fate]) -> Fate:
    """It went all these ways at once."""
    fate = Fate(may_vanish=all(leg.may_vanish for leg in legs))
    for leg in legs:
        fate.places += leg.places
        fate.fan += leg.fan
    return fate


class Rules:
    """Of one seed."""

    def __init__(self, topology: Topology, bodies: dict[int, bytes]) -> None:
        self._topology = topology
        # Of all messages that were ever published.
        self._bodies = bodies
        # Where a message dies whose way is being followed.
        self._dying_in: list[str] = []
        # Messages that have died or were released by hand, and stay until somebody takes them.
        self.condemned: set[Key] = set()
        # Messages that have come back, were too many for one turn, and wait for theirs; as `Facts.returned`.
        self.put_off: dict[Key, tuple[bool, int]] = {}

    def restarted(self) -> None:
        self.condemned.clear()
        self.put_off.clear()

    def deleted(self, name: str) -> None:
        """A queue is gone, with its companion."""
        names = (name, companion_name(HELD_FOR_QUEUE, name))
        self.condemned = {key for key in self.condemned if key[0] not in names}
        self.put_off = {key: how for key, how in self.put_off.items() if key[0] not in names}

    def check(self, before: Picture, after: Picture, facts: Facts) -> None:
        self._before, self._after, self._facts = before, after, facts
        gone: dict[int, list[Copy]] = {}
        new: dict[int, list[Copy]] = {}
        for copy in messages(before):
            kept = self._same_queue(copy)
            if kept is None:
                gone.setdefault(copy.mid, []).append(copy)
            elif kept.identity() != copy.identity():
                raise Broken(f"{copy} has changed: {kept}")
        for copy in messages(after):
            if not self._was_there(copy):
                new.setdefault(copy.mid, []).append(copy)
        self.put_off.update(facts.returned)
        self.condemned |= facts.rejected | facts.released
        for key, (_, count) in facts.returned.items():
            if 0 <= self._topology.specs[key[0]].delivery_limit < count:
                self.condemned.add(key)
        for mid in sorted(gone.keys() | new.keys() | facts.published.keys()):
            self._check_message(mid, gone.get(mid, []), new.get(mid, []))
        pending = {copy.key for copy in messages(after) if copy.is_pending}
        self.put_off = {
            key: how
            for key, how in self.put_off.items()
            if key in pending and self._topology.specs[key[0]].retries(how[0])
        }

    def _same_queue(self, copy: Copy) -> Copy | None:
        shelf = self._after.get(copy.queue)
        if shelf is None or shelf.queue_id != self._before[copy.queue].queue_id:
            return None
        return shelf.copies.get(copy.seq_id)

    def _was_there(self, copy: Copy) -> bool:
        shelf = self._before.get(copy.queue)
        return shelf is not None and shelf.queue_id == self._after[copy.queue].queue_id and copy.seq_id in shelf.copies

    def _check_message(self, mid: int, gone: list[Copy], new: list[Copy]) -> None:
        facts = self._facts
        for copy in new:
            require(copy.body == self._bodies[mid], f"{copy} should be {self._bodies[mid]!r}")
            require(copy.value("n") in range(mid - RUN_MAX, mid + 1), f"{copy} has lost its headers: {copy.headers}")
        sources = [self._leaving(copy) for copy in gone]
        legs = [self._published(mid, target) for target in facts.published.get(mid, [])]
        sources += legs
        for place in {copy.queue for copy in new}:
            count = sum(copy.queue == place for copy in new)
            most = sum(source.places[place] for source in sources)
            require(count <= most, f"message {mid} is {count} times new in {place}, at most {most}; gone: {gone}")
        most = sum(source.fan for source in sources)
        require(len(new) <= most, f"message {mid} has come to {new}, which is more than {most}; gone: {gone}")
        must = [source for source in sources if not source.may_vanish]
        require(len(new) >= len(must), f"message {mid} is lost: gone from {gone}, came to {new}, {sources}")
        for source in must:
            found = any(source.places[copy.queue] for copy in new)
            require(found, f"message {mid} is lost: gone from {gone}, should be in {source.places}, is in {new}")
        self._check_headers(gone, new)

    # --- where copies go ----------------------------------------------------------------------------------

    def _published(self, mid: int, target: str) -> Fate:
        facts = self._facts
        shelf = self._after.get(target) or self._before[target]
        if shelf.kind:
            return at(target)
        spec = self._topology.specs[target]
        if (mid, target) in facts.duplicates and not (spec.refuses and mid in facts.refused):
            return Fate(may_vanish=True)
        fate = self._arriving(target, frozenset(), mid, False, True)
        if not spec.refuses or mid not in facts.refused:
            return fate
        is_alone = len(facts.published[mid]) == 1
        if is_alone:
            # It was this queue that has refused.
            fate = Fate()
            if spec.overflow == "reject-publish-dlx":
                fate = self._dying(target, frozenset(), mid)
        fate.may_vanish = True
        return fate

    def _leaving(self, copy: Copy) -> Fate:
        facts = self._facts
        key = copy.key
        if key in facts.settled or copy.queue in facts.emptied:
            fate = Fate(may_vanish=True)
            if copy.queue in self._topology.specs and is_over(copy, facts.now_ms):
                # It may have expired when the queue was looked at for the last time.
                fate.add(self._dying(copy.queue, deaths_of(copy), copy.mid))
            return fate
        shelf = self._before[copy.queue]
        if key in facts.rescheduled:
            return at(copy.queue)
        if shelf.kind:
            return self._released(copy, shelf.kind)
        spec = self._topology.specs[copy.queue]
        ways: list[Fate] = []
        if is_over(copy, facts.now_ms) or key in self.condemned or (spec.drops and self._was_full(copy.queue)):
            ways.append(self._dying(copy.queue, deaths_of(copy), copy.mid))
        if key in self.put_off and key not in self.condemned and spec.retries(self.put_off[key][0]):
            ways.append(at(companion_name(HELD_FOR_QUEUE, copy.queue)))
        if key in facts.moved:
            ways.append(self._arriving(facts.moved[key], deaths_of(copy), copy.mid, False))
        if spec.order == "value" and self._is_replaced(copy):
            ways.append(Fate(may_vanish=True))
        require(bool(ways), f"{copy} is gone without a reason")
        fate = Fate()
        for way in ways:
            fate.add(way)
        return fate

    def _was_full(self, name: str) -> bool:
        """Whether a queue that has dropped messages had to: then it is still full, unless more has happened."""
        facts = self._facts
        spec = self._topology.specs[name]
        if name not in self._after or facts.settled or facts.rejected or self.put_off or facts.moved:
            return True
        if (
            spec.order == "value"
            or spec.at_least_once
            or any(is_over(copy, facts.now_ms) for copy in self._before[name].copies.values())
        ):
            return True
        return len(self._after[name].copies) >= spec.length_max

    def _is_replaced(self, copy: Copy) -> bool:
        """Whether there is, or was, a newer message with the same key."""
        value = copy.value(VALUE_HEADER)
        if value is None:
            return False
        for picture in (self._before, self._after):
            for other in picture[copy.queue].copies.values() if copy.queue in picture else ():
                if other.seq_id > copy.seq_id and other.value(VALUE_HEADER) == value:
                    return True
        return copy.is_pending or bool(self._facts.published) or bool(self._facts.consumed)

    def _released(self, copy: Copy, kind: str) -> Fate:
        early = copy.expiry_ms > self._facts.now_ms and copy.key not in self.condemned
        require(not early, f"{copy} was released {copy.expiry_ms - self._facts.now_ms} ms too early")
        if kind == HELD_FOR_EXCHANGE:
            queues = [name for name in self._topology.late if self._may_exist(name)]
            fate = all_of([self._arriving(name, deaths_of(copy), copy.mid, True) for name in queues])
            fate.may_vanish |= not queues
            return fate
        owner = copy.queue.removeprefix(companion_name(HELD_FOR_QUEUE, ""))
        return self._inside(owner, deaths_of(copy), copy.mid) if self._may_exist(owner) else Fate(may_vanish=True)

    def _dying(self, name: str, passed: frozenset[str], mid: int) -> Fate:
        """A message dies in a queue, having died in others before."""
        spec = self._topology.specs[name]
        if spec.dead_exchange is None:
            return Fate(may_vanish=True)
        names = self._dead_targets(name)
        if not names:
            return Fate(may_vanish=not spec.at_least_once)
        if name in self._dying_in:
            # Round and round: it may be anywhere on the ring, several times where the ring has branches.
            return Fate(Counter(dict.fromkeys(self._after, ROUNDS_MAX)), True, ROUNDS_MAX)
        self._dying_in.append(name)
        passed = passed | {name}
        legs = [self._arriving(target, passed, mid, spec.at_least_once) for target in names]
        for target, leg in zip(names, legs, strict=True):
            leg.may_vanish |= target in passed
        self._dying_in.pop()
        return all_of(legs)

    def is_stuck(self, picture: Picture, key: Key) -> bool:
        """Whether a message that has died is still there although everybody would take it."""
        name, seq_id = key
        shelf = picture.get(name)
        if shelf is None or shelf.kind or seq_id not in shelf.copies:
            return False
        self._before = self._after = picture
        names = self._dead_targets(name)
        return bool(names) and not any(self._topology.specs[target].refuses for target in names)

    def _dead_targets(self, name: str) -> list[str]:
        spec = self._topology.specs[name]
        names = self._topology.fan if spec.dead_exchange == FAN else []
        if spec.dead_exchange == "":
            names = [spec.dead_key]
        return [target for target in names if self._may_exist(target)]

    def _arriving(self, name: str, passed: frozenset[str], mid: int, is_kept: bool, is_direct: bool = False) -> Fate:
        """A message is published to a queue; with `is_kept` it stays where it was if the queue refuses it."""
        if not self._may_exist(name):
            return Fate(may_vanish=True)
        spec = self._topology.specs[name]
        fate = self._inside(name, passed, mid)
        if spec.holds:
            fate.add(at(companion_name(HELD_FOR_QUEUE, name)))
        if spec.dedup_count and not is_direct:
            fate.may_vanish = True
        if spec.refuses and not is_kept and not is_direct:
            fate.may_vanish = True
        if spec.refuses and spec.overflow == "reject-publish-dlx":
            # Nobody keeps it when it has nowhere to go.
            fate.add(self._dying(name, passed, mid))
            fate.may_vanish |= not self._dead_targets(name)
        return fate

    def _inside(self, name: str, passed: frozenset[str], mid: int) -> Fate:
        """It got in: it is there, or has been pushed out again, replaced or consumed."""
        spec = self._topology.specs[name]
        fate = at(name, mid in self._facts.consumed or not self._must_exist(name))
        if spec.drops:
            fate.add(self._dying(name, passed, mid))
        if spec.order == "value":
            fate.may_vanish = True
        return fate

    def _may_exist(self, name: str) -> bool:
        return name in self._before or name in self._after

    def _must_exist(self, name: str) -> bool:
        return name in self._before and name in self._after

    # --- what is written on them --------------------------------------------------------------------------

    def _check_headers(self, gone: list[Copy], new: list[Copy]) -> None:
        facts = self._facts
        if not gone or not new:
            return
        was_held = any(self._before[copy.queue].kind for copy in gone)
        by_hand = any(copy.key in facts.moved or copy.key in facts.rescheduled for copy in gone)
        for copy in new:
            if self._after[copy.queue].kind == HELD_FOR_QUEUE:
                self._check_retry(copy, gone)
            elif not was_held and not by_hand and not self._after[copy.queue].kind:
                self._check_death(copy, {each.queue for each in gone})
        if was_held and len(gone) == 1 == len(new) and gone[0].queue == companion_name(HELD_FOR_QUEUE, new[0].queue):
            require(new[0].envelope == gone[0].envelope, f"{gone[0]} has changed when it was released: {new[0]}")

    def _check_death(self, copy: Copy, died_in: set[str]) -> None:
        entries = entries_of(copy.headers)
        queues = {entry["queue"][1].decode() for entry in entries}  # type: ignore[union-attr]
        require(bool(queues & died_in), f"{copy} died in {died_in}; its x-death knows {queues}")
        for entry in entries:
            require(entry["reason"][1] in REASONS, f"{copy} died of {entry['reason']}")
            require((death_count(entry) or 0) >= 1, f"{copy} has died {entry.get('count')} times")

    def _check_retry(self, copy: Copy, gone: list[Copy]) -> None:
        for old in gone:
            if old.key in self.put_off and copy.queue == companion_name(HELD_FOR_QUEUE, old.queue):
                count = self.put_off[old.key][1]
                spec = self._topology.specs[old.queue]
                require(copy.value(COUNT_HEADER) == count, f"{copy} was delivered {count} times: {copy.headers}")
                due_ms = self._facts.now_ms + min(spec.retry_min_ms * count, spec.retry_max_ms)
                require(copy.expiry_ms == due_ms, f"{copy} should be due at {due_ms}")


def deaths_of(copy: Copy) -> frozenset[str]:
    """The queues in which it has died before."""
    return frozenset(str(entry["queue"][1], "utf-8") for entry in entries_of(copy.headers))  # type: ignore[arg-type]
