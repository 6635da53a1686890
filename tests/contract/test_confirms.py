"""Confirm tokens: when they are settled or handed out, and that it is once."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import TIMEOUT_NONE, BackingQueue
from penstock.message import MessageProps
from tests.contract.backings import OpenBacking
from tests.contract.noted_token import NotedToken, confirmed


def confirming() -> MessageProps:
    return MessageProps(confirm=NotedToken())


def test_nothing_is_confirmed_when_nobody_asked(backing: OpenBacking, bq: BackingQueue) -> None:
    assert confirmed(bq) == []
    backing.publish(b"a")
    backing.publish(b"b", props=MessageProps(1_000))
    backing.take(1)
    assert backing.settle() == []


def test_a_run_is_confirmed_once_and_as_a_whole(backing: OpenBacking) -> None:
    props = confirming()
    backing.publish(b"a", b"b", b"c", props=props)
    assert backing.settle() == [props.confirm]
    assert backing.settle() == []


def test_a_transient_run_is_confirmed_as_soon_as_it_is_held(backing: OpenBacking, bq: BackingQueue) -> None:
    props = confirming()
    backing.persistent = False
    backing.publish(b"a", b"b", props=props)
    assert bq.drain_confirmed() == [props.confirm]


def test_a_queue_that_is_given_up_is_told_what_its_backing_owes_and_nothing_is_said_later(
    backing: OpenBacking, bq: BackingQueue
) -> None:
    told, owed = confirming(), [confirming(), confirming()]
    backing.publish(b"a", props=told)
    assert backing.settle() == [told.confirm]
    for props in owed:
        backing.publish(b"b", b"c", props=props)
    taken = bq.take_owed()
    assert sorted(map(id, taken)) == sorted(id(props.confirm) for props in owed)
    assert all(token.waiting == 1 for token in taken)
    assert bq.take_owed() == []
    assert backing.settle() == []


def test_every_run_is_confirmed_when_the_backing_asks_for_nothing_more(backing: OpenBacking, bq: BackingQueue) -> None:
    runs = [confirming() for _ in range(20)]
    for props in runs:
        backing.publish(b"a", b"b", props=props)
    tokens = backing.settle()
    assert bq.needs_timeout() == TIMEOUT_NONE
    assert sorted(map(id, tokens)) == sorted(id(props.confirm) for props in runs)


@pytest.mark.parametrize("drained_first", [False, True], ids=["owed", "given"])
def test_requeue_neither_loses_nor_repeats_a_confirm(
    backing: OpenBacking, bq: BackingQueue, drained_first: bool
) -> None:
    props = confirming()
    backing.publish(b"a", b"b", props=props)
    tokens = backing.settle() if drained_first else []
    for _ in range(3):
        bq.requeue([seq_id for seq_id, _, _ in backing.take(2)])
    tokens += backing.settle()
    bq.ack([seq_id for seq_id, _, _ in backing.take(2)])
    tokens += backing.settle()
    assert tokens == [props.confirm]


def test_purge_gives_the_confirms_that_are_owed_once(backing: OpenBacking, bq: BackingQueue) -> None:
    props = confirming()
    backing.publish(b"a", b"b", props=props)
    bq.purge()
    assert backing.settle() == [props.confirm]
    bq.purge()
    assert backing.settle() == []


def test_an_ack_before_the_confirm_does_not_lose_it(backing: OpenBacking, bq: BackingQueue) -> None:
    props = confirming()
    backing.publish(b"a", b"b", props=props)
    bq.ack([seq_id for seq_id, _, _ in backing.take(2)])
    assert backing.settle() == [props.confirm]
    assert backing.settle() == []


@pytest.mark.parametrize("verb", ["fetch", "drop", "dropwhile"])
def test_a_run_that_was_taken_without_ack_is_confirmed(backing: OpenBacking, bq: BackingQueue, verb: str) -> None:
    props = confirming()
    backing.publish(b"a", b"b", props=props)
    if verb == "fetch":
        backing.take(2, ack_required=False)
    elif verb == "drop":
        bq.drop(False)
        bq.drop(False)
    else:
        assert bq.dropwhile(lambda _: True) == 2
    assert backing.settle() == [props.confirm]
    assert backing.settle() == []


def test_the_drained_list_belongs_to_the_caller(backing: OpenBacking, bq: BackingQueue) -> None:
    """A token must not appear in a list that was handed out before it was due, or it would be settled twice."""
    props = confirming()
    backing.persistent = False
    before = bq.drain_confirmed()
    backing.publish(b"a", props=props)
    assert before == []
    assert bq.drain_confirmed() == [props.confirm]
    before.append(NotedToken())
    assert bq.drain_confirmed() == []


def test_needs_timeout_and_timeout_are_harmless_when_nothing_is_owed(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b", props=confirming())
    backing.take(1)
    backing.settle()
    before = backing.folded()
    for _ in range(3):
        bq.timeout()
        assert bq.needs_timeout() == TIMEOUT_NONE
    assert backing.settle() == []
    assert backing.folded() == before
