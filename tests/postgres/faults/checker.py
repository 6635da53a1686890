"""What must be true of a round when everything is drained. Does not know how the round went, only what it left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.postgres.faults.ledger import Ledger

NAMES_SHOWN = 5
Count = tuple[object, ...]


@dataclass
class Leftovers:
    """What the database says when a round is over."""

    # Queue and name of what was finalized in this round, and how often it was delivered.
    history: list[tuple[str, str, int]] = field(default_factory=list)
    # Queue and name of what is still there.
    messages: list[tuple[str, str]] = field(default_factory=list)
    # Rows of queue_stats before and after `update_queue_counts`.
    counts_before: list[Count] = field(default_factory=list)
    counts_after: list[Count] = field(default_factory=list)
    # Participants that should not be there.
    participants: list[str] = field(default_factory=list)


def problems_of(ledger: Ledger, left: Leftovers, is_gentle: bool, in_order: Sequence[str] = ()) -> list[str]:
    """In words; empty when all is well. `is_gentle`: nobody was killed. `in_order`: queues with one consumer."""
    problems = list(ledger.complaints)
    problems += lost_or_invented(ledger)
    problems += history_problems(ledger, left)
    if is_gentle:
        problems += repeated(ledger, left)
        problems += [text for queue in in_order for text in out_of_order(ledger, queue)]
    if left.messages:
        problems.append(f"not drained: {shown(f'{name} in {queue}' for queue, name in left.messages)}")
    if left.counts_before != left.counts_after:
        problems.append(f"the counts were wrong: {left.counts_before} should be {left.counts_after}")
    if left.participants:
        problems.append(f"participants of the dead remain: {shown(left.participants)}")
    return problems


def lost_or_invented(ledger: Ledger) -> list[str]:
    problems = []
    received = {receipt.name for receipt in ledger.receipts}
    sure = {receipt.name for receipt in ledger.receipts if receipt.is_sure}
    acknowledged = {name for name, sent in ledger.sent.items() if sent.outcome == "acknowledged"}
    rolled_back = {name for name, sent in ledger.sent.items() if sent.outcome == "rolled back"}
    if acknowledged - received:
        problems.append(f"lost: {shown(acknowledged - received)}")
    if sure & rolled_back:
        problems.append(f"rolled back and delivered: {shown(sure & rolled_back)}")
    if received - ledger.sent.keys():
        problems.append(f"never put: {shown(received - ledger.sent.keys())}")
    for receipt in ledger.receipts:
        sent = ledger.sent.get(receipt.name)
        if sent is not None and sent.queue != receipt.queue:
            problems.append(f"{receipt.name} was put into {sent.queue!r} and came out of {receipt.queue!r}")
    return problems


def history_problems(ledger: Ledger, left: Leftovers) -> list[str]:
    """Each message that came out was finalized once; nothing was finalized that nobody has seen."""
    problems = []
    finalized = Counter((queue, name) for queue, name, _ in left.history)
    twice = [name for (_, name), count in finalized.items() if count > 1]
    if twice:
        problems.append(f"finalized more than once: {shown(twice)}")
    names = {name for _, name in finalized}
    received = {receipt.name for receipt in ledger.receipts}
    sure = {receipt.name for receipt in ledger.receipts if receipt.is_sure}
    if names - received:
        problems.append(f"finalized and never received: {shown(names - received)}")
    if sure - names:
        problems.append(f"received and not in the history: {shown(sure - names)}")
    strange = [name for queue, name in finalized if name in ledger.sent and ledger.sent[name].queue != queue]
    if strange:
        problems.append(f"in the history of another queue: {shown(strange)}")
    return problems


def repeated(ledger: Ledger, left: Leftovers) -> list[str]:
    counts = Counter(receipt.name for receipt in ledger.receipts)
    twice = [name for name, count in counts.items() if count > 1]
    problems = [f"received more than once, and nobody was killed: {shown(twice)}"] if twice else []
    again = [name for _, name, deliveries in left.history if deliveries != 1]
    if again:
        problems.append(f"delivered more than once, and nobody was killed: {shown(again)}")
    return problems


def out_of_order(ledger: Ledger, queue: str) -> list[str]:
    """A publisher's messages come out in the order in which it put them."""
    last: dict[str, tuple[int, str]] = defaultdict(lambda: (0, ""))
    problems = []
    for receipt in ledger.receipts:
        sent = ledger.sent.get(receipt.name)
        if sent is None or receipt.queue != queue:
            continue
        before, name = last[sent.publisher]
        if sent.number < before:
            problems.append(f"out of order in {queue!r}: {name}, then {receipt.name}")
        else:
            last[sent.publisher] = (sent.number, receipt.name)
    return problems[:NAMES_SHOWN]


def shown(names: Iterable[str]) -> str:
    """Some of them, and how many there are."""
    found = sorted(names)
    more = f", … ({len(found)} in all)" if len(found) > NAMES_SHOWN else ""
    return ", ".join(found[:NAMES_SHOWN]) + more
