"""A single active consumer: who is served, who is next, and what standbys are not told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_house import Inbox
from tests.effort import examples

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.consumer_manager import Availability, ConsumerManager
from penstock.queues.consumers.node_list import INTERESTED, NON_ACQUIRING, NOT_INTERESTED, NOTIFIED
from penstock.queues.consumers.single_active import SingleActive


class Stock(Availability):
    """So many messages, for anybody."""

    def __init__(self) -> None:
        self.count = 0

    def has_available(self, consumer: Consumer) -> bool:
        return self.count > 0

    def available_count(self) -> int:
        return self.count


class Stage:
    """A manager whose consumers are let in by a `SingleActive`."""

    def __init__(self) -> None:
        self.stock = Stock()
        self.manager = ConsumerManager(self.stock)
        self.activity = SingleActive(self.manager)

    def add(self, tag: str, priority: int = 0, interested: bool = True, **attributes: Any) -> Inbox:
        inbox = Inbox(tag, priority, **attributes)
        self.activity.add(inbox, interested)
        self.check()
        return inbox

    def remove(self, inbox: Inbox) -> None:
        self.activity.remove(inbox)
        self.check()

    def publish(self) -> None:
        self.stock.count += 1
        self.manager.notify_available(1)
        self.check()

    def active(self) -> str | None:
        return None if self.activity.active is None else self.activity.active.tag

    def check(self) -> None:
        self.activity.check_invariants()
        self.manager.check_invariants()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_first_consumer_is_active_and_the_others_stand_by(stage: Stage) -> None:
    first, second = stage.add("first"), stage.add("second")
    assert stage.active() == "first"
    assert stage.manager.state_of(first) == INTERESTED
    assert stage.manager.state_of(second) == NOT_INTERESTED
    stage.publish()
    assert (first.told, second.told) == (1, 0)


def test_nobody_is_active_where_nobody_is(stage: Stage) -> None:
    assert stage.active() is None
    stage.remove(stage.add("only"))
    assert stage.active() is None
    stage.add("again")
    assert stage.active() == "again"


def test_when_the_active_consumer_leaves_the_next_one_is_told_of_what_waits(stage: Stage) -> None:
    first, second = stage.add("first"), stage.add("second")
    stage.publish()
    stage.remove(first)
    assert stage.active() == "second"
    assert stage.manager.state_of(second) == NOTIFIED
    assert second.told == 1


def test_the_next_one_has_the_highest_priority_and_came_first_among_its_equals(stage: Stage) -> None:
    inboxes = {tag: stage.add(tag, int(tag[1:])) for tag in ("a0", "b0", "c5", "d9", "e5", "f9")}
    order = []
    while (tag := stage.active()) is not None:
        order.append(tag)
        stage.remove(inboxes[tag])
    assert order == ["a0", "d9", "f9", "c5", "e5", "b0"]


def test_a_higher_priority_does_not_take_over(stage: Stage) -> None:
    stage.add("first", 0)
    stage.publish()
    stage.add("higher", 10)
    assert stage.active() == "first"


def test_an_active_consumer_without_credit_does_not_yield(stage: Stage) -> None:
    first, second = stage.add("first"), stage.add("second", 7)
    stage.activity.set_interest(first, False)
    stage.publish()
    assert stage.active() == "first"
    assert (first.told, second.told) == (0, 0)
    stage.activity.set_interest(first, True)
    assert first.told == 1


def test_what_a_standby_wishes_counts_when_it_becomes_active(stage: Stage) -> None:
    first, second, third = stage.add("first"), stage.add("second"), stage.add("third", interested=False)
    stage.publish()
    stage.activity.set_interest(second, False)
    stage.activity.set_interest(third, True)
    assert stage.manager.state_of(third) == NOT_INTERESTED
    stage.remove(first)
    assert stage.active() == "second"
    assert stage.manager.state_of(second) == NOT_INTERESTED
    stage.remove(second)
    assert stage.manager.state_of(third) == NOTIFIED


def test_a_standby_that_leaves_is_never_called(stage: Stage) -> None:
    first, second, third = stage.add("first"), stage.add("second", 3), stage.add("third")
    stage.remove(second)
    stage.remove(first)
    assert stage.active() == "third"
    stage.activity.set_interest(second, True)
    stage.publish()
    assert (second.told, third.told) == (0, 1)


def test_a_browser_is_neither_active_nor_a_standby(stage: Stage) -> None:
    browser = stage.add("browser", 9, acquires=False)
    assert stage.active() is None
    first = stage.add("first")
    assert stage.active() == "first"
    stage.publish()
    assert browser.told == 1
    assert stage.manager.state_of(browser) == NON_ACQUIRING
    stage.activity.set_interest(browser, False)
    assert stage.manager.state_of(browser) == NOT_INTERESTED
    stage.remove(first)
    assert stage.active() is None
    stage.remove(browser)


STEPS = st.tuples(st.sampled_from(("add", "browse", "remove", "wish", "publish")), st.integers(0, 7), st.booleans())


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(STEPS, max_size=40))
def test_exactly_one_is_active_whatever_happens(steps: list[tuple[str, int, bool]]) -> None:
    stage = Stage()
    # Who is there, in the order of arrival.
    there: list[Inbox] = []
    for step, number, yes in steps:
        if step in ("add", "browse"):
            there.append(stage.add(f"c{len(there)}", number % 3, yes, acquires=step == "add"))
        elif step == "publish":
            stage.publish()
        elif there:
            inbox = there[number % len(there)]
            if step == "wish":
                stage.activity.set_interest(inbox, yes)
                stage.check()
                continue
            was_active = stage.activity.active
            there.remove(inbox)
            stage.remove(inbox)
            if inbox is was_active:
                heirs = sorted((each for each in there if each.acquires), key=lambda each: -each.priority)
                assert stage.activity.active is (heirs[0] if heirs else None)
            else:
                assert stage.activity.active is was_active
    assert sum(map(len, stage.activity._standbys.values())) == max(0, sum(inbox.acquires for inbox in there) - 1)
