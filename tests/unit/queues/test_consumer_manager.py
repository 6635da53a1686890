"""The consumer manager, rule by rule; docs/lineage.md says where the rules come from."""

from __future__ import annotations

from collections import deque

import pytest

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.consumer_manager import Availability, ConsumerManager
from penstock.queues.consumers.node_list import (
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    UNLINKED,
    NodeList,
)


class Watcher(Consumer):
    """Counts how often it is told of work."""

    def __init__(self, tag: str = "c", priority: int = 0, acquires: bool = True) -> None:
        super().__init__(tag, priority, acquires, no_ack=False, exclusive=False)
        self.told = 0
        self.got = 0

    def notify_work(self) -> None:
        self.told += 1

    def cancelled_by_queue(self) -> None:
        raise AssertionError("the manager cancels nobody")


class Counter(Availability):
    """A queue that has only a number of messages, and knows consumers for whom none of them is."""

    def __init__(self) -> None:
        self.ready = 0
        self.published = 0
        self.barred: set[Consumer] = set()
        self.questions = 0
        self.manager = ConsumerManager(self)

    def has_available(self, consumer: Consumer) -> bool:
        self.questions += 1
        if not consumer.acquires:
            return consumer.browse_seq_id < self.published
        return self.ready > 0 and consumer not in self.barred

    def available_count(self) -> int:
        return self.ready

    def publish(self, count: int = 1) -> None:
        self.ready += count
        self.published += count
        self.manager.notify_available(count)

    def pull(self, consumer: Watcher) -> bool:
        """One message, as a queue hands it out; False when the consumer got nothing."""
        if not self.manager.begin_pull(consumer):
            return False
        if not self.has_available(consumer):
            self.manager.missed(consumer)
            return False
        self.ready -= 1
        consumer.got += 1
        self.manager.pulled(consumer)
        return True

    def added(self, *consumers: Watcher) -> None:
        for consumer in consumers:
            self.manager.add(consumer, True)

    def states(self, *consumers: Watcher) -> list[int]:
        self.manager.check_invariants()
        return [self.manager.state_of(consumer) for consumer in consumers]


@pytest.fixture
def queue() -> Counter:
    return Counter()


# --- states and adding ----------------------------------------------------------------------------


def test_a_consumer_starts_where_its_kind_and_its_wish_put_it(queue: Counter) -> None:
    keen, idle, browser, idle_browser = Watcher(), Watcher(), Watcher(acquires=False), Watcher(acquires=False)
    assert queue.states(keen) == [REMOVED]
    queue.manager.add(keen, True)
    queue.manager.add(idle, False)
    queue.manager.add(browser, True)
    queue.manager.add(idle_browser, False)
    assert queue.states(keen, idle, browser, idle_browser) == [
        INTERESTED,
        NOT_INTERESTED,
        NON_ACQUIRING,
        NOT_INTERESTED,
    ]
    assert queue.manager.counts() == {"interested": 1, "not_interested": 2, "notified": 0, "non_acquiring": 1}
    assert len(queue.manager) == 4


def test_a_consumer_stays_in_the_list_of_all_until_it_is_removed(queue: Counter) -> None:
    first, second = Watcher("first"), Watcher("second")
    queue.added(first, second)
    queue.publish()
    queue.manager.set_interest(second, False)
    assert queue.manager.consumers() == [first, second]
    queue.manager.remove(first)
    assert queue.manager.consumers() == [second]
    assert queue.states(first) == [REMOVED]


def test_a_consumer_added_to_a_queue_with_messages_is_told_at_once(queue: Counter) -> None:
    queue.publish()
    keen, idle, browser = Watcher(), Watcher(), Watcher(acquires=False)
    queue.added(keen, browser)
    queue.manager.add(idle, False)
    assert [keen.told, idle.told, browser.told] == [1, 0, 1]
    assert queue.states(keen, idle, browser) == [NOTIFIED, NOT_INTERESTED, NON_ACQUIRING]


def test_a_removed_consumer_may_come_back(queue: Counter) -> None:
    consumer = Watcher()
    queue.added(consumer)
    queue.manager.remove(consumer)
    queue.added(consumer)
    assert queue.states(consumer) == [INTERESTED]
    assert len(queue.manager) == 1


def test_adding_or_removing_twice_is_a_programming_error(queue: Counter) -> None:
    consumer = Watcher()
    queue.added(consumer)
    with pytest.raises(AssertionError):
        queue.manager.add(consumer, True)
    queue.manager.remove(consumer)
    with pytest.raises(AssertionError):
        queue.manager.remove(consumer)


# --- legal moves ----------------------------------------------------------------------------------


def test_interest_goes_on_and_off_and_saying_it_twice_changes_nothing(queue: Counter) -> None:
    consumer, browser = Watcher(), Watcher(acquires=False)
    queue.added(consumer, browser)
    for desired, expected in ((True, [INTERESTED, NON_ACQUIRING]), (False, [NOT_INTERESTED, NOT_INTERESTED])) * 2:
        for _ in range(2):
            queue.manager.set_interest(consumer, desired)
            queue.manager.set_interest(browser, desired)
            assert queue.states(consumer, browser) == expected


def test_a_notified_consumer_keeps_its_state_when_it_repeats_its_interest(queue: Counter) -> None:
    consumer = Watcher()
    queue.added(consumer)
    queue.publish()
    queue.manager.set_interest(consumer, True)
    assert queue.states(consumer) == [NOTIFIED]
    assert consumer.told == 1


def test_a_notified_consumer_is_not_told_a_second_time(queue: Counter) -> None:
    consumer = Watcher()
    queue.added(consumer)
    queue.publish()
    queue.publish(5)
    assert queue.states(consumer) == [NOTIFIED]
    assert consumer.told == 1


def test_a_browser_is_told_of_everything_new_and_is_never_moved_by_it(queue: Counter) -> None:
    browser = Watcher(acquires=False)
    queue.added(browser)
    for times in range(1, 4):
        queue.publish()
        assert browser.told == times
        assert queue.states(browser) == [NON_ACQUIRING]
    assert queue.manager.begin_pull(browser)
    queue.manager.pulled(browser)
    assert queue.states(browser) == [NON_ACQUIRING]


@pytest.mark.parametrize("state", [INTERESTED, NOT_INTERESTED, NOTIFIED, NON_ACQUIRING])
def test_a_consumer_can_be_removed_from_any_state(queue: Counter, state: int) -> None:
    consumer = Watcher(acquires=state != NON_ACQUIRING)
    queue.manager.add(consumer, state != NOT_INTERESTED)
    if state == NOTIFIED:
        queue.publish()
    assert queue.states(consumer) == [state]
    queue.manager.remove(consumer)
    assert queue.states(consumer) == [REMOVED]
    assert len(queue.manager) == 0
    assert sum(queue.manager.counts().values()) == 0


def test_a_removed_consumer_is_moved_by_nothing(queue: Counter) -> None:
    consumer = Watcher()
    queue.added(consumer)
    queue.publish()
    queue.manager.remove(consumer)
    queue.manager.set_interest(consumer, True)
    assert not queue.manager.begin_pull(consumer)
    queue.manager.pulled(consumer)
    queue.manager.missed(consumer)
    assert queue.states(consumer) == [REMOVED]
    assert consumer.told == 1


# --- levels ---------------------------------------------------------------------------------------


def test_consumers_are_listed_by_falling_priority_and_then_by_arrival(queue: Counter) -> None:
    priorities = [0, 5, -3, 5, 0, 2**40, -3]
    consumers = [Watcher(str(index), priority) for index, priority in enumerate(priorities)]
    queue.added(*consumers)
    assert [consumer.tag for consumer in queue.manager.consumers()] == ["5", "1", "3", "0", "4", "2", "6"]
    queue.manager.check_invariants()


def test_a_level_lives_from_its_first_consumer_to_its_last_and_counts_only_active_ones(queue: Counter) -> None:
    low, high, high_browser = Watcher(), Watcher(priority=7), Watcher(priority=7, acquires=False)
    assert queue.manager.highest_active_priority() is None
    queue.added(low, high_browser)
    assert queue.manager.highest_active_priority() == 0
    queue.added(high)
    assert queue.manager.highest_active_priority() == 7
    assert [queue.manager.active_at(priority) for priority in (0, 7, 8)] == [1, 1, 0]
    queue.manager.set_interest(high, False)
    assert queue.manager.highest_active_priority() == 0
    assert queue.manager.active_at(7) == 0
    queue.manager.remove(high)
    queue.manager.remove(high_browser)
    queue.manager.remove(low)
    assert queue.manager.highest_active_priority() is None
    queue.manager.check_invariants()


def test_active_consumers_are_counted_notified_or_not(queue: Counter) -> None:
    consumers = [Watcher() for _ in range(3)]
    queue.added(*consumers)
    queue.publish()
    assert queue.manager.begin_pull(consumers[0])
    assert queue.manager.active_at(0) == 3


# --- the list -------------------------------------------------------------------------------------


def test_a_list_keeps_order_and_exact_size_wherever_an_entry_is_taken_out(queue: Counter) -> None:
    consumers = [Watcher(str(index)) for index in range(5)]
    queue.added(*consumers)
    nodes = [consumer.node for consumer in consumers]
    listed, other = NodeList(), NodeList()
    entries = [type(node.entry)(node) for node in nodes if node is not None]
    for entry in entries:
        listed.append(entry)
    listed.transfer(entries[2], other)
    listed.transfer(entries[4], other)
    listed.remove(entries[0])
    assert [node.consumer.tag for node in listed.nodes()] == ["1", "3"]
    assert [node.consumer.tag for node in other.nodes()] == ["2", "4"]
    assert (listed.size, other.size) == (2, 2)
    listed.append(entries[0])
    other.transfer(entries[4], listed)
    assert [node.consumer.tag for node in listed.nodes()] == ["1", "3", "0", "4"]
    assert (listed.size, other.size) == (4, 1)


def test_a_removed_consumer_is_gone_from_memory_without_any_sweep(queue: Counter) -> None:
    """Even the last one of a list, which a list with lazy deletion would hold until the next append."""
    tail = Watcher()
    queue.added(Watcher(), tail)
    node = tail.node
    assert node is not None
    queue.manager.remove(tail)
    assert node.entry.next is UNLINKED
    assert node.entry.prev is UNLINKED
    assert node.all_entry.next is UNLINKED
    assert queue.manager.counts()["interested"] == 1


# --- something became available -------------------------------------------------------------------


def test_one_message_tells_all_browsers_and_one_consumer(queue: Counter) -> None:
    browsers = [Watcher(acquires=False) for _ in range(3)]
    idle_browser = Watcher(acquires=False)
    consumers = [Watcher() for _ in range(3)]
    queue.added(*browsers, *consumers)
    queue.manager.add(idle_browser, False)
    queue.publish()
    assert [browser.told for browser in browsers] == [1, 1, 1]
    assert idle_browser.told == 0
    assert [consumer.told for consumer in consumers] == [1, 0, 0]


def test_several_messages_tell_as_many_consumers_in_list_order(queue: Counter) -> None:
    consumers = [Watcher() for _ in range(4)]
    queue.added(*consumers)
    queue.publish(3)
    assert queue.states(*consumers) == [NOTIFIED, NOTIFIED, NOTIFIED, INTERESTED]
    queue.publish(3)
    assert [consumer.told for consumer in consumers] == [1, 1, 1, 1]


def test_a_message_goes_by_those_who_could_not_take_it(queue: Counter) -> None:
    barred, taker = Watcher(), Watcher()
    queue.added(barred, taker)
    queue.barred.add(barred)
    queue.publish()
    assert queue.states(barred, taker) == [INTERESTED, NOTIFIED]


# --- priorities when notifying --------------------------------------------------------------------


def test_a_lower_priority_is_not_told_while_a_higher_one_wants_the_messages(queue: Counter) -> None:
    low, high = Watcher(), Watcher(priority=1)
    queue.added(low, high)
    queue.publish(5)
    assert queue.states(low, high) == [INTERESTED, NOTIFIED]
    queue.publish()
    assert queue.states(low, high) == [INTERESTED, NOTIFIED]
    assert low.told == 0


def test_a_lower_priority_is_told_when_no_higher_one_could_take_the_message(queue: Counter) -> None:
    low, high, higher = Watcher(), Watcher(priority=1), Watcher(priority=2)
    queue.added(low, high, higher)
    queue.barred.add(high)
    queue.manager.set_interest(higher, False)
    queue.publish()
    assert queue.states(low, high, higher) == [NOTIFIED, INTERESTED, NOT_INTERESTED]


def test_interest_in_a_queue_with_messages_is_answered_unless_a_higher_priority_has_them(queue: Counter) -> None:
    low, high, peer = Watcher(), Watcher(priority=1), Watcher(priority=1)
    queue.added(high)
    queue.publish(2)
    queue.added(low, peer)
    assert queue.states(low, high, peer) == [INTERESTED, NOTIFIED, NOTIFIED]
    assert [low.told, high.told, peer.told] == [0, 1, 1]


def test_interest_in_an_empty_queue_is_not_answered(queue: Counter) -> None:
    consumer = Watcher()
    queue.manager.add(consumer, False)
    queue.manager.set_interest(consumer, True)
    assert queue.states(consumer) == [INTERESTED]
    assert consumer.told == 0


# --- the order of a pull --------------------------------------------------------------------------


def test_a_pull_gives_the_notification_back_first_and_takes_it_again_when_it_got_something(queue: Counter) -> None:
    consumer, other = Watcher(), Watcher()
    queue.added(consumer, other)
    queue.publish()
    assert queue.manager.begin_pull(consumer)
    assert [queue.manager.state_of(consumer), queue.manager.state_of(other)] == [INTERESTED, INTERESTED]
    queue.ready -= 1
    queue.manager.pulled(consumer)
    assert queue.states(consumer) == [NOTIFIED]
    assert consumer.told == 1


def test_a_consumer_that_got_nothing_waits_behind_the_others(queue: Counter) -> None:
    first, second = Watcher(), Watcher()
    queue.added(first, second)
    queue.publish()
    assert queue.pull(first)
    assert not queue.pull(first)
    assert queue.states(first, second) == [INTERESTED, INTERESTED]
    queue.publish()
    assert queue.states(first, second) == [INTERESTED, NOTIFIED]


def test_a_message_that_comes_while_a_pull_finds_nothing_wakes_the_puller_again(queue: Counter) -> None:
    """The wake-up that is lost when a consumer stays notified while it looks."""
    consumer = Watcher()
    queue.added(consumer)
    queue.publish()
    assert queue.pull(consumer)
    assert queue.manager.begin_pull(consumer)
    assert not queue.has_available(consumer)
    queue.publish()
    queue.manager.missed(consumer)
    assert queue.states(consumer) == [NOTIFIED]
    assert consumer.told == 2


def test_a_consumer_for_whom_there_is_nothing_makes_way_for_one_other(queue: Counter) -> None:
    barred, second, third = Watcher(), Watcher(), Watcher()
    queue.added(barred, second, third)
    queue.publish()
    queue.barred.add(barred)
    assert not queue.pull(barred)
    assert queue.states(barred, second, third) == [INTERESTED, NOTIFIED, INTERESTED]


def test_a_miss_on_an_empty_queue_tells_nobody(queue: Counter) -> None:
    consumers = [Watcher() for _ in range(3)]
    queue.added(*consumers)
    queue.publish()
    queue.ready = 0
    assert not queue.pull(consumers[0])
    assert queue.states(*consumers) == [INTERESTED] * 3
    assert [consumer.told for consumer in consumers] == [1, 0, 0]


def test_a_consumer_that_got_nothing_does_not_wake_itself(queue: Counter) -> None:
    """Not even when the queue has something that it could not hand out at once."""
    consumer, barred = Watcher(), Watcher()
    queue.added(consumer, barred)
    queue.barred.add(barred)
    queue.publish()
    assert queue.manager.begin_pull(consumer)
    queue.manager.missed(consumer)
    assert queue.manager.state_of(consumer) == INTERESTED
    assert [consumer.told, barred.told] == [1, 0]


def test_a_browser_at_the_end_of_the_queue_tells_nobody(queue: Counter) -> None:
    browser, first, second, third = Watcher(acquires=False), Watcher(), Watcher(), Watcher()
    queue.added(browser, first, second, third)
    queue.publish()
    browser.browse_seq_id = 1
    assert queue.manager.begin_pull(browser)
    queue.manager.missed(browser)
    assert queue.states(browser, first, second, third) == [NON_ACQUIRING, NOTIFIED, INTERESTED, INTERESTED]


def test_a_consumer_without_interest_may_not_pull(queue: Counter) -> None:
    consumer = Watcher()
    queue.added(consumer)
    queue.publish()
    queue.manager.set_interest(consumer, False)
    assert not queue.manager.begin_pull(consumer)
    assert queue.states(consumer) == [NOT_INTERESTED]


def test_interest_lost_during_a_pull_stays_lost_and_the_rest_goes_to_another(queue: Counter) -> None:
    consumer, other = Watcher(), Watcher()
    queue.added(consumer, other)
    queue.publish()
    assert queue.manager.begin_pull(consumer)
    queue.manager.set_interest(consumer, False)
    queue.manager.pulled(consumer)
    assert queue.states(consumer, other) == [NOT_INTERESTED, NOTIFIED]


# --- interest off ---------------------------------------------------------------------------------


def test_a_notified_consumer_that_loses_interest_hands_its_work_to_the_next(queue: Counter) -> None:
    first, second, third = Watcher(), Watcher(), Watcher()
    queue.added(first, second, third)
    queue.publish()
    queue.manager.set_interest(first, False)
    assert queue.states(first, second, third) == [NOT_INTERESTED, NOTIFIED, INTERESTED]


def test_work_is_handed_on_although_another_is_notified_if_that_one_would_be_too_few(queue: Counter) -> None:
    first, second, third = Watcher(), Watcher(), Watcher()
    queue.added(first, second, third)
    queue.publish(2)
    queue.manager.set_interest(first, False)
    assert queue.states(first, second, third) == [NOT_INTERESTED, NOTIFIED, NOTIFIED]


def test_a_notified_consumer_that_is_removed_hands_its_work_to_the_next(queue: Counter) -> None:
    first, second = Watcher(), Watcher(priority=-1)
    queue.added(first, second)
    queue.publish()
    queue.manager.remove(first)
    assert queue.states(first, second) == [REMOVED, NOTIFIED]
    assert second.told == 1


def test_nobody_is_told_when_a_consumer_that_served_itself_loses_interest(queue: Counter) -> None:
    first, second, third = Watcher(), Watcher(), Watcher()
    queue.added(first, second, third)
    queue.publish(2)
    assert queue.pull(first)
    queue.manager.set_interest(first, False)
    assert queue.states(first, second, third) == [NOT_INTERESTED, NOTIFIED, INTERESTED]
    assert queue.pull(second)
    queue.manager.set_interest(second, False)
    assert third.told == 0


def test_the_next_priority_is_woken_when_the_last_of_a_higher_one_withdraws(queue: Counter) -> None:
    """As many as there are messages, so that they share them."""
    high = Watcher(priority=9)
    lows = [Watcher() for _ in range(4)]
    queue.added(high, *lows)
    queue.publish(3)
    assert [low.told for low in lows] == [0, 0, 0, 0]
    queue.manager.set_interest(high, False)
    assert queue.states(*lows) == [NOTIFIED, NOTIFIED, NOTIFIED, INTERESTED]


def test_a_lower_priority_is_not_told_while_a_peer_of_the_one_that_withdrew_is_notified(queue: Counter) -> None:
    low, high, peer = Watcher(), Watcher(priority=1), Watcher(priority=1)
    queue.added(low, high, peer)
    queue.publish(2)
    queue.manager.set_interest(high, False)
    assert queue.states(low, high, peer) == [INTERESTED, NOT_INTERESTED, NOTIFIED]


def test_a_browser_that_loses_interest_tells_nobody(queue: Counter) -> None:
    browser, first, second = Watcher(acquires=False), Watcher(), Watcher()
    queue.added(browser, first, second)
    queue.publish()
    queue.manager.set_interest(browser, False)
    assert queue.states(browser, first, second) == [NOT_INTERESTED, NOTIFIED, INTERESTED]


# --- priorities when pulling ----------------------------------------------------------------------


def test_a_consumer_may_not_pull_what_a_higher_priority_wants(queue: Counter) -> None:
    low, high = Watcher(), Watcher(priority=1)
    queue.added(low)
    queue.publish()
    queue.added(high)
    assert queue.states(low, high) == [NOTIFIED, NOTIFIED]
    assert not queue.pull(low)
    assert queue.states(low, high) == [INTERESTED, NOTIFIED]
    assert high.told == 1
    assert queue.pull(high)


def test_a_higher_priority_that_waits_is_told_when_a_lower_one_tries_to_pull(queue: Counter) -> None:
    low, high = Watcher(), Watcher(priority=1)
    queue.added(low, high)
    queue.barred.add(high)
    queue.publish()
    assert queue.states(low, high) == [NOTIFIED, INTERESTED]
    queue.barred.clear()
    assert not queue.pull(low)
    assert queue.states(low, high) == [INTERESTED, NOTIFIED]


def test_a_consumer_may_pull_what_a_higher_priority_could_not_take(queue: Counter) -> None:
    low, barred, idle = Watcher(), Watcher(priority=1), Watcher(priority=2)
    queue.added(low, barred)
    queue.manager.add(idle, False)
    queue.barred.add(barred)
    queue.publish()
    assert queue.pull(low)


def test_the_highest_priority_pulls_without_asking_about_others(queue: Counter) -> None:
    low, high = Watcher(), Watcher(priority=1)
    queue.added(low, high)
    queue.publish()
    queue.questions = 0
    assert queue.manager.begin_pull(high)
    assert queue.questions == 0
    queue.manager.pulled(high)


# --- turns ----------------------------------------------------------------------------------------


def test_consumers_that_take_turns_get_equal_shares_also_after_back_pressure(queue: Counter) -> None:
    consumers = [Watcher(str(index)) for index in range(4)]
    queue.added(*consumers)
    held = consumers[1]
    queue.manager.set_interest(held, False)
    queue.publish(30)
    turns = deque(consumer for consumer in consumers if queue.manager.state_of(consumer) == NOTIFIED)
    assert len(turns) == 3
    for _ in range(9):
        assert queue.pull(turns[0])
        turns.rotate(-1)
    queue.manager.set_interest(held, True)
    assert held.told == 1
    turns.append(held)
    while queue.pull(turns[0]):
        turns.rotate(-1)
    assert [consumer.got for consumer in consumers] == [9, 5, 8, 8]
    assert queue.ready == 0
