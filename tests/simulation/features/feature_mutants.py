"""Bugs of features that were put in on purpose, to see whether the simulation notices.

Each is a small patch that is applied while seeds run and taken back afterwards. The docstring of its function says what
is wrong with it; README.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.backing.outcomes import DEAD_LETTERED, DROPPED
from penstock.broker import vhost as vhost_module
from penstock.broker.companions import companion_kind
from penstock.broker.dead_lettering import DeadLetterExchange
from penstock.broker.deduplication import DedupGate
from penstock.broker.held_messages import CountHeader, ReleaseToQueue, WaitForRetry
from penstock.broker.vhost import VHost
from penstock.queues.bury_again import BuryAgain
from penstock.queues.held_selection import HeldSelection
from penstock.queues.last_value_order import LastValueOrder
from penstock.queues.queue import Queue
from penstock.queues.queue_host import QueueHost
from penstock.queues.returns import Returns
from tests.simulation.mutants import Patch, changed

FEATURE_MUTANTS: dict[str, Callable[[], Patch]] = {}


def mutant(function: Callable[[], Patch]) -> Callable[[], Patch]:
    FEATURE_MUTANTS[function.__name__] = function
    return function


@contextmanager
def feature_applied(name: str) -> Iterator[None]:
    with FEATURE_MUTANTS[name]():
        yield


# --- moves --------------------------------------------------------------------------------------------


@mutant
def dead_letter_split_in_two() -> Patch:
    """A dead letter is published in one batch, and acknowledged where it died in the next."""

    def make(original: Any) -> Any:
        def publish(self: Any, *arguments: Any) -> Any:
            kept = original(self, *arguments)
            self._vhost.log._journal.commit()
            return kept

        return publish

    return changed(DeadLetterExchange, "_publish", make)


@mutant
def acked_before_it_is_published() -> Patch:
    """A dead letter is acknowledged where it died in one batch, and published in the next."""

    def make(original: Any) -> Any:
        def carry(self: Any, grave: Any, dead: Sequence[Any], reason: str) -> None:
            grave.buried([seq_id for seq_id, _ in dead], DEAD_LETTERED, reason)
            self._vhost.log._journal.commit()
            original(self, grave, dead, reason)

        return carry

    return changed(DeadLetterExchange, "_carry", make)


@mutant
def dead_letter_without_an_ack() -> Patch:
    """What was moved stays where it was, too."""
    return changed(QueueHost, "buried", lambda original: lambda self, seq_ids, outcome, reason: None)


@mutant
def refused_letters_dropped() -> Patch:
    """At least once is at most once: what nobody takes is not kept."""

    def make(original: Any) -> Any:
        return lambda self, dead, reason: self.buried([seq_id for seq_id, _ in dead], DROPPED, reason)

    return changed(QueueHost, "unburied", make)


@mutant
def never_buried_again() -> Patch:
    """What nobody took is kept, and never offered again."""
    return changed(BuryAgain, "expire_due", lambda original: lambda self, now_ms: None)


# --- held messages ------------------------------------------------------------------------------------


@mutant
def released_too_early() -> Patch:
    """A held message goes a little before it is due."""

    def make(original: Any) -> Any:
        return lambda self, now_ms: original(self, now_ms + 10)

    return changed(HeldSelection, "expire", make)


@mutant
def held_messages_not_armed_after_a_restart() -> Patch:
    """Companions are read again, and nobody is woken when their messages are due."""

    def make(original: Any) -> Any:
        def recovered(self: Any) -> None:
            if not isinstance(self.selection, HeldSelection):
                original(self)

        return recovered

    return changed(Queue, "recovered", make)


@mutant
def companion_not_restored_first() -> Patch:
    """Queues are opened before their companions, and make new ones."""

    def make(original: Any) -> Any:
        def restore(self: VHost, wanted: Any) -> None:
            ordered = sorted(wanted, key=lambda each: bool(companion_kind(each.arguments)))
            vhost_module.sorted = lambda items, key: ordered  # type: ignore[attr-defined]
            try:
                original(self, wanted)
            finally:
                del vhost_module.sorted  # type: ignore[attr-defined]

        return restore

    return changed(VHost, "restore_queues", make)


@mutant
def released_twice() -> Patch:
    """A held message comes to its queue two times."""

    def make(original: Any) -> Any:
        def carry(self: Any, grave: Any, dead: Sequence[Any], *arguments: Any) -> None:
            for _, (envelope, body, _) in dead:
                self._vhost.queues[self._queue_name].enter(envelope, [body], False)
            original(self, grave, dead, *arguments)

        return carry

    return changed(ReleaseToQueue, "_carry", make)


# --- retry --------------------------------------------------------------------------------------------


@mutant
def retry_loses_the_count() -> Patch:
    """A message waits for its next try without its count."""
    return changed(CountHeader, "stamped", lambda original: lambda self, envelope, count: envelope)


@mutant
def retry_counts_from_the_start() -> Patch:
    """A message that comes back from its wait is counted as if it had never been delivered."""
    return changed(CountHeader, "count_of", lambda original: lambda self, envelope: 0)


@mutant
def retry_without_an_ack() -> Patch:
    """A message waits for its next try, and is still in the queue."""

    def make(original: Any) -> Any:
        def wait(self: Any, dead: Sequence[Any], counts: Sequence[int]) -> None:
            forget = self._queue.forget
            self._queue.forget = lambda seq_ids, outcome: None
            original(self, dead, counts)
            self._queue.forget = forget

        return wait

    return changed(WaitForRetry, "wait", make)


@mutant
def limit_is_one_too_high() -> Patch:
    """A message is delivered once more than its queue allows."""

    def make(original: Any) -> Any:
        def returned(self: Any, seq_ids: Sequence[int], lost: bool) -> Any:
            self._limit += 1
            back = original(self, seq_ids, lost)
            self._limit -= 1
            return back

        return returned

    return changed(Returns, "returned", make)


# --- deduplication, last values -----------------------------------------------------------------------


@mutant
def key_not_stored() -> Patch:
    """A key is in the window, and not in the companion."""

    def make(original: Any) -> Any:
        def admit(self: Any, *arguments: Any) -> Any:
            hold = self._companion.hold
            self._companion.hold = lambda *_: -1
            is_in = original(self, *arguments)
            self._companion.hold = hold
            return is_in

        return admit

    return changed(DedupGate, "admit", make)


@mutant
def keys_not_remembered_after_a_restart() -> Patch:
    """The window is empty after a start."""
    return changed(DedupGate, "_remember_recovered", lambda original: lambda self: None)


@mutant
def key_in_a_batch_of_its_own() -> Patch:
    """A key is stored in one batch, and its message in the next: a crash leaves a key without a message."""

    def make(original: Any) -> Any:
        def admit(self: Any, *arguments: Any) -> Any:
            is_in = original(self, *arguments)
            self._vhost.log._journal.commit()
            return is_in

        return admit

    return changed(DedupGate, "admit", make)


@mutant
def newest_value_dropped() -> Patch:
    """The message that a new value replaces stays, and the new one goes."""

    def make(original: Any) -> Any:
        def added(self: Any, item: Any, is_new: bool) -> Any:
            latest = self._latest.get(item.key)
            replaced = original(self, item, is_new)
            return item if replaced is latest is not None else replaced

        return added

    return changed(LastValueOrder, "added", make)
