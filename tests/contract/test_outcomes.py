"""Why messages leave and who got them: told to every backing, and never of any consequence for the messages."""

from __future__ import annotations

import pytest

from penstock.backing import outcomes
from penstock.backing.backing_queue import BackingQueue
from penstock.journal.format import rows
from penstock.message import MessageProps
from tests.contract.backings import MANY, OpenBacking, expired_at, listed
from tests.contract.noted_token import NotedToken

OUTCOMES = [
    (outcomes.ACKED, outcomes.REASON_NONE),
    (outcomes.REJECTED, outcomes.REASON_REJECTED),
    (outcomes.EXPIRED, outcomes.REASON_EXPIRED),
    (outcomes.DEAD_LETTERED, outcomes.REASON_MAXLEN),
    (outcomes.DROPPED, outcomes.REASON_DELIVERY_LIMIT),
    (outcomes.PURGED, outcomes.REASON_NONE),
    (outcomes.FETCHED, outcomes.REASON_NONE),
    (outcomes.LOST, outcomes.REASON_NONE),
    (outcomes.MOVED, outcomes.REASON_NONE),
]


def comes_back(backing: OpenBacking) -> bool:
    """Whether what is not gone is there after the next start."""
    return backing.spec.survives and (backing.persistent or backing.spec.keeps_transient)


def test_every_outcome_means_gone() -> None:
    assert {outcome for outcome, _ in OUTCOMES} == rows.GONE_KINDS


@pytest.mark.parametrize(("outcome", "reason"), OUTCOMES)
def test_whatever_the_outcome_is_the_message_is_gone(
    backing: OpenBacking, bq: BackingQueue, outcome: int, reason: int
) -> None:
    first = backing.publish(b"a", b"b", b"c")
    backing.take(3)
    assert bq.ack([first + 1], outcome, reason, outcomes.THE_QUEUE) == 1
    assert bq.ack([first + 1], outcome, reason) == 0
    assert [seq_id for seq_id, _ in backing.pending()] == [first, first + 2]
    bq.check_invariants()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("outcome", "reason"), OUTCOMES)
def test_whatever_the_outcome_was_it_does_not_come_back(
    backing: OpenBacking, outcome: int, reason: int, is_clean: bool
) -> None:
    backing.publish(b"a", b"b")
    backing.take(2)
    backing.queue.ack([backing.pending()[0][0]], outcome, reason)
    # Whoever waits for the disk waits for the ack, too.
    backing.publish(b"c", props=MessageProps(-1, NotedToken()))
    backing.settle()
    if is_clean:
        backing.restart()
    else:
        backing.crash()
    assert [payload for _, payload in backing.ready()] == ([b"b", b"c"] if comes_back(backing) else [])


@pytest.mark.parametrize("outcome", [outcomes.DROPPED, outcomes.PURGED, outcomes.EXPIRED])
def test_a_drop_with_an_outcome_removes_the_head(backing: OpenBacking, bq: BackingQueue, outcome: int) -> None:
    first = backing.publish(b"a", b"b")
    assert bq.drop(False, outcome, outcomes.REASON_MAXLEN) == first
    assert backing.ready() == [(first + 1, b"b")]
    assert bq.depth() == 1
    bq.check_invariants()


def test_an_actor_gets_what_anybody_would_get(backing: OpenBacking, bq: BackingQueue) -> None:
    actor = bq.name_actor(b'{"consumer":"c"}')
    first = backing.publish(b"a", b"b", b"c", b"d")
    assert listed(bq.fetch(1, MANY, True, actor)) == [(first, b"a", False)]
    assert [seq_id for seq_id, _ in bq.fetch_at([first + 2, first + 9], outcomes.THE_QUEUE)] == [first + 2]
    assert listed(bq.fetch(1, MANY, False, actor)) == [(first + 1, b"b", False)]
    assert backing.pending() == [(first, b"a"), (first + 2, b"c")]
    assert bq.ack([first, first + 2]) == 2


def test_a_number_for_an_actor_is_never_one_of_the_queues_own(bq: BackingQueue) -> None:
    numbers = [bq.name_actor(b"{}") for _ in range(3)]
    assert min(numbers) >= outcomes.NO_ACTOR
    assert numbers == [outcomes.NO_ACTOR] * 3 or len(set(numbers)) == 3


def test_an_actor_that_is_forgotten_or_unknown_does_no_harm(backing: OpenBacking, bq: BackingQueue) -> None:
    actor = bq.name_actor(b"{}")
    bq.forget_actor(actor)
    bq.forget_actor(actor)
    bq.forget_actor(12345)
    backing.publish(b"a")
    assert len(listed(bq.fetch(1, MANY, True, actor))) == 1
    bq.note_given([seq_id for seq_id, _ in backing.pending()], actor)
    backing.settle()


def test_notes_for_history_change_nothing(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c")
    backing.take(2)
    before = backing.folded()
    bq.note_given([first + 1, first, first + 2, first + 99], bq.name_actor(b"{}"))
    bq.note_returned([first, first + 1, first + 2, first + 99])
    assert backing.folded() == before
    bq.check_invariants()
    assert bq.requeue([first]) == 1
    assert bq.ack([first + 1]) == 1
    assert [payload for _, payload in backing.ready()] == [b"a", b"c"]


@pytest.mark.parametrize("is_returned", [False, True])
def test_a_crash_brings_back_what_was_given(backing: OpenBacking, bq: BackingQueue, is_returned: bool) -> None:
    backing.publish(b"a", b"b", props=MessageProps(-1, NotedToken()))
    backing.settle()
    taken = [seq_id for seq_id, _, _ in backing.take(2)]
    bq.note_given(taken, bq.name_actor(b"{}"))
    if is_returned:
        bq.note_returned(taken)
    bq.ack(taken[1:], outcomes.MOVED)
    backing.publish(b"c", props=MessageProps(-1, NotedToken()))
    backing.settle()
    backing.crash()
    back = [b"a", b"c"] if comes_back(backing) else []
    assert [payload for _, payload in backing.ready()] == back
    assert [redelivered for _, _, redelivered in backing.take(len(back[:1]))] == [True for _ in back[:1]]


def test_what_the_queue_takes_away_with_fetchwhile_is_pending(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(10, 20)
    seen: list[int] = []
    assert bq.fetchwhile(expired_at(15), lambda seq_id, _: seen.append(seq_id)) == 1
    assert bq.ack(seen, outcomes.DEAD_LETTERED, outcomes.REASON_EXPIRED) == 1
    assert bq.depth() == 1
