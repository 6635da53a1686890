"""The judge of a round: reads histories, knows nothing of penstock, and lists whatever must not be.

`python -m tests.crash.checker FOLDER` checks the histories in a folder again.

What must hold (docs: what the client was told is what counts):
  lost           a confirmed persistent message, or one whose commit was answered, was settled by a consumer in the end
  invented       nothing is delivered that was not published, to that queue, by a transaction that was asked to commit
  wrong bytes    body and properties are those that were sent
  duplicate      `redelivered` is 0 at most once for a message in a queue, and never after another delivery of it
  unexplained    without a crash and without vanished clients, `redelivered` is 1 only after another delivery
  resurrected    what was acknowledged does not come back while the broker lives; nor later, if the ack was handled
                 before a publish that was confirmed, or before a clean stop
  order          of first deliveries per publishing session, queue and priority
  transaction    all of it or nothing of it; a source message is moved once
  transient      does not survive its broker
  confirm        every publish is answered at most once, and exactly once when the session ended in peace
  connection     the broker ends no connection unless it is told to end
  definition     what was answered is there, what was deleted is not
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from tests.crash.record import CLEAN_END, PERSISTENT, Copy, Delivered, Moment, Record, Session, Settled, Transaction

SHOWN_PER_KIND = 5
# The client that takes what is left at the end; a queue has its own consumers beside it.
DRAIN = "drain"


class Checker:
    """Checks one round."""

    def __init__(self, folder: Path, nacks_allowed: bool = False) -> None:
        self.record = Record(folder)
        self._crashes = {number for number, (_, how) in self.record.ends.items() if how != CLEAN_END}
        for deliveries in self.record.delivered.values():
            deliveries.sort(key=lambda each: each.moment)
        if not nacks_allowed and self.record.counts["nacked"]:
            self.record.anomaly("confirm", f"{self.record.counts['nacked']} publishes were refused")
        for copy, deliveries in self.record.delivered.items():
            self._check_content(copy, deliveries)
            self._check_redelivered(copy, deliveries)
            self._check_settled(copy, deliveries)
        self._check_lost()
        self._check_order()
        self._check_transactions()

    @property
    def anomalies(self) -> list[tuple[str, str]]:
        return self.record.anomalies

    def report(self) -> str:
        """What was counted, and the first anomalies of each kind."""
        lines = [", ".join(f"{count:,} {name}" for name, count in sorted(self.record.counts.items()))]
        for kind, count in Counter(kind for kind, _ in self.anomalies).items():
            lines.append(f"{kind}: {count}")
            lines += [f"    {text}" for each, text in self.anomalies if each == kind][:SHOWN_PER_KIND]
        return "\n".join(lines)

    # --- message by message ---------------------------------------------------------------------------

    def _check_content(self, copy: Copy, deliveries: list[Delivered]) -> None:
        queue, message_id = copy
        sent = self.record.published.get(message_id)
        if sent is None or queue not in sent.queues:
            self.record.anomaly("invented", f"{copy} {deliveries}")
            return
        for each in deliveries:
            if each.seal != sent.seal:
                self.record.anomaly("wrong bytes", f"{copy} {each}, sent {sent}")
        if sent.mode != PERSISTENT and deliveries[-1].moment[0] > sent.moment[0]:
            self.record.anomaly("transient", f"{copy} of {sent.moment} at {deliveries[-1].moment}")
        if sent.transaction:
            transaction = self.record.transactions[sent.transaction]
            if transaction.rolled_back or transaction.asked is None:
                self.record.anomaly("invented", f"{copy} of a transaction that was not committed: {deliveries}")

    def _check_redelivered(self, copy: Copy, deliveries: list[Delivered]) -> None:
        for each in deliveries[1:]:
            if not each.redelivered:
                self.record.anomaly("duplicate", f"{copy} {deliveries}")
                break
        first = deliveries[0]
        sent = self.record.published.get(copy[1])
        if sent is not None and first.redelivered:
            lives = range(sent.moment[0], first.moment[0] + 1)
            if not any(each in self.record.drops for each in lives) and not any(
                each in self._crashes for each in lives[:-1]
            ):
                self.record.anomaly("unexplained", f"{copy} published {sent.moment}, first seen at {first.moment}")

    def _check_settled(self, copy: Copy, deliveries: list[Delivered]) -> None:
        """Nothing comes back that is certainly gone."""
        for settled in self.record.settled.get(copy, []):
            gone = self._gone_since(settled)
            if gone is None:
                continue
            for each in deliveries:
                if each.moment > settled.moment and (each.moment[0] == settled.moment[0] or each.moment >= gone):
                    self.record.anomaly("resurrected", f"{copy} settled at {settled}, gone since {gone}, {deliveries}")

    def _gone_since(self, settled: Settled) -> Moment | None:
        """From when on it cannot come back, beyond this life. None when it is not known to be settled at all."""
        incarnation = settled.moment[0]
        later = (incarnation + 1, 0.0)
        if settled.transaction:
            transaction = self.record.transactions[settled.transaction]
            if transaction.rolled_back:
                return None
            return later if self._has_happened(transaction) else None
        if settled.handled_s < 0:
            # The connection may have ended with the ack on its way.
            return None
        _, how = self.record.ends.get(incarnation, (0.0, ""))
        if how == CLEAN_END or self.record.confirmed_until_s.get(incarnation, 0.0) > settled.handled_s:
            return later
        # While this broker lives.
        return (1 << 60, 0.0)

    # --- all in all -----------------------------------------------------------------------------------

    def _check_lost(self) -> None:
        record = self.record
        for message_id in record.confirmed:
            sent = record.published[message_id]
            if sent.mode != PERSISTENT:
                continue
            for queue in sent.queues:
                copy = (queue, message_id)
                if not any(self._is_final(settled) for settled in record.settled.get(copy, [])):
                    seen = record.delivered.get(copy, "never delivered")
                    record.anomaly("lost", f"{copy} published at {sent.moment}: {seen}")

    def _is_final(self, settled: Settled) -> bool:
        if not settled.transaction:
            return True
        transaction = self.record.transactions[settled.transaction]
        # All of it was seen, perhaps only by the broker that died then: nothing tells whether it had happened.
        return self._has_happened(transaction) or all(
            copy in self.record.delivered for copy in self._copies(transaction)
        )

    def _has_happened(self, transaction: Transaction) -> bool:
        """It was answered, or a later broker knows of it. Before that a crash may undo what was seen already."""
        if transaction.answered is not None:
            return True
        if transaction.asked is None:
            return False
        for copy in self._copies(transaction):
            if any(each.moment[0] > transaction.asked[0] for each in self.record.delivered.get(copy, [])):
                return True
        return False

    def _copies(self, transaction: Transaction) -> list[Copy]:
        return [(queue, each) for each in transaction.ids for queue in self.record.published[each].queues]

    def _check_transactions(self) -> None:
        moved: Counter[Copy] = Counter()
        for name, transaction in self.record.transactions.items():
            if not self._has_happened(transaction):
                continue
            self.record.counts["transactions"] += 1
            missing = [copy for copy in self._copies(transaction) if copy not in self.record.delivered]
            if missing:
                self.record.anomaly("transaction", f"{name} was done in part; not seen: {missing}")
            moved.update(transaction.sources)
        for copy, count in moved.items():
            if count > 1:
                self.record.anomaly("transaction", f"{copy} was moved {count} times")

    def _check_order(self) -> None:
        """By one consumer at a time: what several of them get at once has no order that they could compare."""
        lanes: dict[tuple[object, ...], list[tuple[Moment, int]]] = {}
        for (queue, message_id), deliveries in self.record.delivered.items():
            sent = self.record.published.get(message_id)
            if sent is None:
                continue
            is_shared = len([name for name in self.record.consumers[queue] if not name.startswith(DRAIN)]) > 1
            seen: set[int] = set()
            for each in deliveries:
                incarnation = each.moment[0]
                reader: Session | int = each.session if is_shared else incarnation
                if incarnation not in seen and (not is_shared or not each.redelivered):
                    lane = (queue, sent.session, sent.priority, reader)
                    lanes.setdefault(lane, []).append((each.moment, sent.tag))
                seen.add(incarnation)
        for lane, steps in lanes.items():
            steps.sort()
            tags = [tag for _, tag in steps]
            for before, after in pairwise(tags):
                if after < before:
                    self.record.anomaly("order", f"{lane}: {after} after {before}")
                    break


def main() -> int:
    checker = Checker(Path(sys.argv[1]))
    sys.stdout.write(checker.report() + "\n")
    return 1 if checker.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
