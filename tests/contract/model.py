"""A list of messages that says what any backing queue must hold, and what it may hold after a crash.

The model is told what was called and what came back; it asserts that the answer is one the contract allows, and follows
it. Messages that are gone stay in the list as GONE, since after a crash an ack that was not synced is undone.

After a crash a message has one of three fates: CONFIRMED (it must be there), UNCERTAIN (it may be), or none (it must
not). What is found settles it, and the model goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.message import ConfirmToken, Entry, Envelope, MessageProps, Run

READY, PENDING, GONE = "ready", "pending", "gone"
CONFIRMED, UNCERTAIN = "confirmed", "uncertain"


@dataclass(eq=False)
class PublishedRun:
    persistent: bool
    token: ConfirmToken | None
    confirmed: bool = False


@dataclass(eq=False)
class Held:
    seq_id: int
    entry: Entry
    run: PublishedRun
    state: str
    # What the next fetch must say; None when a crash made it unknowable.
    redelivered: bool | None


def content(entry: Entry) -> tuple[object, ...]:
    """All that an implementation must give back of a message, also when it had to read it from disk."""
    envelope, body, props = entry
    where = (envelope.exchange, envelope.routing_key, envelope.properties)
    flags = (envelope.persistent, envelope.priority, envelope.expiration_ms)
    return (*where, *flags, body, -1 if props is None else props.expiry_ms)


class BackingModel:
    """One durable queue."""

    def __init__(self, keeps_transient: bool = False) -> None:
        # Transient messages survive like persistent ones.
        self.keeps_transient = keeps_transient
        self.messages: dict[int, Held] = {}
        self.owed: list[PublishedRun] = []
        self.next_seq_id = 0
        # Where seq_ids begin is the implementation's choice; after a restart they may go on with a gap.
        self.gap_allowed = True

    def in_state(self, state: str) -> list[Held]:
        return [held for held in self.messages.values() if held.state == state]

    def bytes_in(self, state: str) -> int:
        return sum(len(held.entry[1]) - 1 for held in self.in_state(state))

    def contents(self) -> list[tuple[int, tuple[object, ...], bool]]:
        """What a fold must show."""
        held = [held for held in self.messages.values() if held.state != GONE]
        return [(one.seq_id, content(one.entry), one.state == PENDING) for one in held]

    def publish(
        self,
        first: int,
        envelope: Envelope,
        bodies: Sequence[bytes],
        props: MessageProps | None,
        state: str,
        seen: bool,
    ) -> None:
        assert first == self.next_seq_id or (self.gap_allowed and first > self.next_seq_id)
        run = PublishedRun(envelope.persistent or self.keeps_transient, None if props is None else props.confirm)
        for seq_id, body in enumerate(bodies, first):
            self.messages[seq_id] = Held(seq_id, (envelope, body, props), run, state, seen)
        if run.token is not None:
            self.owed.append(run)
        self.next_seq_id = first + len(bodies)
        self.gap_allowed = False

    def check_run(self, run: Run | None, ready: Sequence[Held], count_max: int, bytes_max: int) -> list[Held]:
        """`run` is a legal answer when `ready` is what it can be taken from; which messages are in it."""
        if run is None:
            assert not ready, "nothing came, but there are ready messages"
            return []
        count = len(run.entries)
        assert 1 <= count <= count_max
        taken = list(ready[:count])
        assert [held.seq_id for held in taken] == list(range(run.first_seq_id, run.first_seq_id + count))
        assert [content(held.entry) for held in taken] == [content(entry) for entry in run.entries]
        assert all(held.redelivered in (None, run.redelivered) for held in taken), "redelivered"
        assert count == 1 or sum(len(entry[1]) - 1 for entry in run.entries) <= bytes_max
        return taken

    def take(self, taken: Sequence[Held], ack_required: bool) -> None:
        for held in taken:
            held.state = PENDING if ack_required else GONE
            held.redelivered = True

    def head_while(self, predicate: Callable[[MessageProps | None], bool]) -> list[Held]:
        ready = self.in_state(READY)
        stop = [index for index, held in enumerate(ready) if not predicate(held.entry[2])]
        return ready[: stop[0]] if stop else ready

    def settle(self, seq_ids: Sequence[int], state: str) -> int:
        """Ack (to GONE) or requeue (to READY); how many were pending."""
        known = {seq_id for seq_id in seq_ids if seq_id in self.messages and self.messages[seq_id].state == PENDING}
        for seq_id in known:
            self.messages[seq_id].state = state
        return len(known)

    def forget(self, state: str) -> int:
        """Purge what is READY, or what is PENDING."""
        forgotten = self.in_state(state)
        for held in forgotten:
            held.state = GONE
        return len(forgotten)

    def confirm(self, tokens: Sequence[ConfirmToken]) -> None:
        for token in tokens:
            runs = [run for run in self.owed if run.token is token]
            assert len(runs) == 1, "a confirm came that was not owed, or came twice"
            runs[0].confirmed = True
            self.owed.remove(runs[0])

    def fates(self, clean: bool) -> dict[int, str]:
        """CONFIRMED or UNCERTAIN for what may come back after a clean stop or a crash; the rest must not."""
        fates: dict[int, str] = {}
        for held in self.messages.values():
            if held.run.persistent and held.state != GONE:
                fates[held.seq_id] = CONFIRMED if clean or held.run.confirmed else UNCERTAIN
            elif held.run.persistent and not clean:
                fates[held.seq_id] = UNCERTAIN
        return fates

    def recover(self, found: Sequence[tuple[int, Entry]], clean: bool, survives: bool) -> None:
        """The queue is open again and holds `found`, all of it ready. `survives`: the implementation keeps anything."""
        fates = self.fates(clean) if survives else {}
        there = [seq_id for seq_id, _ in found]
        assert there == sorted(set(there)), "out of order, or twice"
        assert set(there) <= fates.keys(), "a message came back that must not"
        lost = [seq_id for seq_id, fate in fates.items() if fate == CONFIRMED and seq_id not in there]
        assert not lost, "confirmed messages were lost"
        for seq_id, entry in found:
            assert content(entry) == content(self.messages[seq_id].entry)
        self._check_prefixes(set(there), fates)
        for held in self.messages.values():
            if not clean and not held.redelivered:
                held.redelivered = None
            held.state = READY
        self.messages = {seq_id: self.messages[seq_id] for seq_id in there}
        self.owed = []
        if not clean or not survives:
            self.next_seq_id = max(there, default=-1) + 1
        self.gap_allowed = True

    def _check_prefixes(self, there: set[int], fates: dict[int, str]) -> None:
        """What is left of a run that was not confirmed is a prefix of it, apart from messages that were gone."""
        missing: set[PublishedRun] = set()
        for seq_id in fates:
            held = self.messages[seq_id]
            if held.state != GONE and seq_id not in there:
                missing.add(held.run)
            assert held.state == GONE or seq_id not in there or held.run not in missing, "not a prefix"
