"""A queue: publishing, pulling, dealing, requeueing, purging, deleting, browsing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_house import Grasping, House, Inbox, Token, texts_of
from tests.effort import examples

from penstock import limits
from penstock.errors import ChannelException
from penstock.message import Envelope, unlike
from penstock.queues.consumers.node_list import INTERESTED, NOTIFIED
from penstock.queues.selection.shelf_selection import ShelfSelection
from penstock.queues.selection.sorted_order import SortedOrder


@pytest.fixture
def house() -> House:
    return House()


# --- publishing and pulling ---------------------------------------------------------------------------


def test_messages_are_pulled_in_the_order_in_which_they_were_published(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b")
    house.publish("c")
    assert house.pull(inbox) == ["a", "b", "c"]
    assert house.pull(inbox) == []


def test_a_publish_tells_an_interested_consumer_once_until_it_has_pulled(house: House) -> None:
    inbox = house.consumer()
    house.publish("a")
    house.publish("b")
    assert inbox.told == 1
    assert house.pull_all(inbox) == ["a", "b"]
    house.publish("c")
    assert inbox.told == 2


def test_a_consumer_that_is_not_interested_is_told_when_it_becomes_so(house: House) -> None:
    inbox = house.consumer(interested=False)
    house.publish("a")
    assert inbox.told == 0
    house.queue.set_interest(inbox, True)
    assert inbox.told == 1


def test_a_consumer_that_comes_to_a_full_queue_is_told_at_once(house: House) -> None:
    house.publish("a")
    assert house.consumer().told == 1


def test_a_pull_takes_no_more_than_it_may(house: House) -> None:
    inbox = house.consumer()
    house.publish(*"abcde")
    assert house.pull(inbox, 2) == ["a", "b"]
    assert house.pull(inbox, 2) == ["c", "d"]


def test_a_pull_stops_at_the_byte_limit_but_takes_at_least_one_message(house: House) -> None:
    inbox = house.consumer()
    large = "x" * (limits.PULL_BYTES_MAX // 2 + 1)
    house.publish(large, large, "x" * (2 * limits.PULL_BYTES_MAX))
    assert [len(house.pull(inbox)) for _ in range(4)] == [1, 1, 1, 0]


def test_get_takes_the_oldest_message_past_all_consumers(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b")
    assert house.get() == "a"
    assert house.pull(inbox) == ["b"]
    assert house.get() is None


def test_counters_count_what_was_published_and_delivered(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b", "c")
    run = house.queue.pull(inbox, 2)
    assert run is not None
    house.queue.get(True)
    house.queue.ack([run.first_seq_id])
    house.queue.ack([run.first_seq_id, 99])
    house.queue.reject([run.first_seq_id + 1])
    queue = house.queue
    assert (queue.published_count, queue.delivered_count) == (3, 3)
    assert queue.backing.depth() == 0


def test_what_is_consumed_without_acknowledgement_is_gone(house: House) -> None:
    inbox = house.consumer(Inbox(no_ack=True))
    house.publish("a")
    assert house.pull(inbox) == ["a"]
    assert house.backing.depth() == 0


def test_messages_with_envelopes_of_their_own_are_published_and_pulled_like_a_run(house: House) -> None:
    inbox = house.consumer()
    token = Token()
    envelopes = [Envelope("", "q", b"\x08\x00" + bytes([priority])) for priority in (1, 2)]
    house.queue.publish(unlike([(envelope, b"x\xce", None) for envelope in envelopes]), token)
    assert (inbox.told, token.completed, house.queue.published_count) == (1, 1, 2)
    run = house.queue.pull(inbox, 5)
    assert run is not None
    assert [envelope for envelope, _, _ in run.entries] == envelopes


def test_an_offer_serves_those_who_were_told_in_their_order_and_leaves_the_rest_to_their_turns(house: House) -> None:
    first, second = (Grasping(house) for _ in range(2))
    house.consumer(first)
    house.consumer(second)
    surplus = 10
    house.publish(*["x"] * (limits.TURN_MESSAGES_MAX + limits.PULL_MESSAGES_MAX + surplus))
    house.queue.offer()
    left = len(house.queue)
    assert 0 < left <= limits.PULL_MESSAGES_MAX + surplus, "an offer is bounded, as a turn is"
    assert first.taken
    assert second.taken
    house.queue.consumers.check_invariants()
    house.queue.offer()
    assert len(house.queue) == 0


def test_an_offer_to_consumers_that_do_not_take_ends(house: House) -> None:
    inbox = house.consumer()
    house.publish("a")
    house.queue.offer()
    assert house.pull(inbox) == ["a"]


# --- confirms -----------------------------------------------------------------------------------------


def test_a_confirm_is_settled_within_the_publish(house: House) -> None:
    token = Token()
    house.publish("a", "b", confirm=token)
    assert (token.waiting, token.completed) == (0, 1)


def test_a_confirm_of_two_queues_is_complete_after_the_second(house: House) -> None:
    token = Token(waiting=2)
    house.publish("a", confirm=token)
    assert token.completed == 0
    other = House()
    other.publish("a", confirm=token)
    assert token.completed == 1


# --- exclusive and auto-delete ------------------------------------------------------------------------


def test_nobody_joins_an_exclusive_consumer(house: House) -> None:
    first = house.consumer(Inbox(exclusive=True))
    with pytest.raises(ChannelException) as refused:
        house.consumer()
    assert refused.value.reply_text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    assert house.queue.consumer_count() == 1
    house.queue.remove_consumer(first)
    house.consumer()
    assert house.queue.consumer_count() == 1


def test_an_exclusive_consumer_joins_nobody(house: House) -> None:
    first = house.consumer()
    with pytest.raises(ChannelException, match="in exclusive use"):
        house.consumer(Inbox(exclusive=True))
    # The refused one has not locked the queue.
    second = house.consumer()
    house.queue.remove_consumer(first)
    with pytest.raises(ChannelException, match="in exclusive use"):
        house.consumer(Inbox(exclusive=True))
    house.queue.remove_consumer(second)
    house.consumer(Inbox(exclusive=True))
    assert house.queue.consumer_count() == 1


def test_a_browser_counts_as_a_consumer_for_an_exclusive_one(house: House) -> None:
    house.consumer(Inbox(acquires=False))
    with pytest.raises(ChannelException, match="in exclusive use"):
        house.consumer(Inbox(exclusive=True))


def test_the_owner_hears_of_the_last_consumer_that_leaves_and_of_no_other(house: House) -> None:
    first, second = house.consumer(), house.consumer()
    house.queue.remove_consumer(first)
    assert house.landlord.deserted == []
    house.queue.remove_consumer(second)
    assert house.landlord.deserted == ["q"]


# --- dealing ------------------------------------------------------------------------------------------


def test_few_messages_are_dealt_singly_and_in_turn(house: House) -> None:
    first, second, third = house.consumer(), house.consumer(), house.consumer()
    house.publish(*"abcdefg")
    dealt = [house.pull(inbox) for _ in range(2) for inbox in (first, second, third)]
    assert dealt == [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]


def test_a_consumer_alone_takes_all_it_may(house: House) -> None:
    inbox, idle = house.consumer(), house.consumer(interested=False)
    house.publish(*"abcdefg")
    assert house.pull(inbox) == list("abcdefg")
    assert house.pull(idle) == []


def test_consumers_of_another_priority_do_not_share(house: House) -> None:
    low, high = house.consumer(Inbox(priority=0)), house.consumer(Inbox(priority=5))
    house.publish(*"abc")
    assert house.pull(low) == []
    assert house.pull(high) == list("abc")


@settings(deadline=None)
@given(ready=st.integers(1, 400), consumers=st.integers(1, 6), count_max=st.integers(1, 300))
def test_packs_grow_with_the_backlog_and_leave_enough_for_the_others(
    ready: int, consumers: int, count_max: int
) -> None:
    house = House()
    inboxes = [house.consumer() for _ in range(consumers)]
    house.publish(*(str(number) for number in range(ready)))
    pulled = len(house.pull(inboxes[0], count_max))
    if consumers == 1:
        assert pulled == min(ready, count_max)
    else:
        share = ready // (consumers * limits.DEAL_SINGLY_BELOW)
        assert pulled == min(count_max, max(1, share))
        # Each of the others could get as much at once.
        assert pulled == 1 or ready - pulled >= pulled * (consumers - 1)


def test_what_is_shelved_counts_for_the_packs_too(house: House) -> None:
    house.queue.selection = ShelfSelection(house.queue.leaving, house.queue.backing, SortedOrder(lambda envelope: 1))
    first, second = house.consumer(), house.consumer()
    house.publish(*(str(number) for number in range(400)))
    assert len(house.queue.backing) == 0, "all of it is shelved"
    share = 400 // (2 * limits.DEAL_SINGLY_BELOW)
    assert len(house.pull(first)) == share
    assert len(house.pull(second)) == (400 - share) // (2 * limits.DEAL_SINGLY_BELOW)


# --- requeue ------------------------------------------------------------------------------------------


def test_a_requeued_message_returns_to_its_original_position(house: House) -> None:
    inbox = house.consumer()
    house.publish(*"abcd")
    run = house.queue.pull(inbox, 3)
    assert run is not None
    house.queue.requeue([run.first_seq_id + 2, run.first_seq_id])
    again = house.queue.pull(inbox, 1)
    assert again is not None
    assert again.redelivered
    assert texts_of(again) == ["a"]
    assert house.pull(inbox, 1) == ["c"]
    last = house.queue.pull(inbox, 1)
    assert last is not None
    assert (texts_of(last), last.redelivered) == (["d"], False)


def test_a_requeue_tells_a_waiting_consumer(house: House) -> None:
    house.publish("a")
    run = house.queue.get(False)
    assert run is not None
    inbox = house.consumer()
    assert inbox.told == 0
    house.queue.requeue([run.first_seq_id])
    assert inbox.told == 1
    assert house.pull(inbox) == ["a"]


def test_a_requeue_of_unknown_messages_tells_nobody(house: House) -> None:
    inbox = house.consumer()
    house.queue.requeue([0, 7])
    assert inbox.told == 0
    assert len(house.queue) == 0


# --- purge and delete ---------------------------------------------------------------------------------


def test_a_purge_removes_and_counts_ready_messages_only(house: House) -> None:
    inbox = house.consumer()
    house.publish(*"abc")
    run = house.queue.pull(inbox, 1)
    assert run is not None
    assert house.queue.purge() == 2
    assert house.queue.purge() == 0
    house.queue.requeue([run.first_seq_id])
    assert house.pull(inbox) == ["a"]


def test_a_deletion_cancels_the_consumers_and_counts_ready_messages_only(house: House) -> None:
    first, second, browser = house.consumer(), house.consumer(), house.consumer(Inbox(acquires=False))
    house.publish(*"abc")
    run = house.queue.pull(first, 1)
    assert run is not None
    assert house.queue.delete() == 2
    assert [inbox.cancelled for inbox in (first, second, browser)] == [1, 1, 1]
    assert house.queue.deleted
    assert house.queue.consumer_count() == 0
    assert house.backing.depth() == 0
    # The owner deletes; it need not be told that the consumers are gone.
    assert house.landlord.deserted == []


def test_a_deleted_queue_lets_late_settlements_and_pulls_pass(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b")
    run = house.queue.pull(inbox, 2)
    assert run is not None
    house.queue.delete()
    house.queue.ack([run.first_seq_id])
    house.queue.reject([run.first_seq_id])
    house.queue.requeue([run.first_seq_id + 1])
    house.queue.set_interest(inbox, True)
    assert house.pull(inbox) == []
    assert house.backing.depth() == 0


def test_a_deleted_queue_accepts_nothing(house: House) -> None:
    house.queue.delete()
    with pytest.raises(AssertionError):
        house.publish("a")


# --- browsing -----------------------------------------------------------------------------------------


def test_a_browser_reads_everything_and_takes_nothing(house: House) -> None:
    browser = house.consumer(Inbox(acquires=False))
    house.publish(*"abc")
    assert browser.told == 1
    assert house.pull(browser, 2) == ["a", "b"]
    assert house.pull(browser, 2) == ["c"]
    assert house.pull(browser) == []
    assert len(house.queue) == 3
    assert house.queue.delivered_count == 0
    house.publish("d")
    assert browser.told == 2
    assert house.pull(browser) == ["d"]


def test_a_browser_does_not_see_what_others_have_taken(house: House) -> None:
    browser, taker = house.consumer(Inbox(acquires=False)), house.consumer()
    house.publish(*"abc")
    assert house.pull(taker, 1) == ["a"]
    assert house.pull_all(browser) == ["b", "c"]


def test_a_browser_sees_a_message_that_comes_back_only_ahead_of_its_place(house: House) -> None:
    browser = house.consumer(Inbox(acquires=False))
    house.publish(*"abcd")
    run = house.queue.get(False)
    assert run is not None
    assert house.pull(browser, 1) == ["b"]
    ahead = [house.queue.get(False), house.queue.get(False)]
    house.queue.requeue([run.first_seq_id])
    house.queue.requeue([found.first_seq_id for found in ahead if found is not None])
    assert house.pull_all(browser) == ["c", "d"]


def test_two_browsers_read_each_at_its_own_place(house: House) -> None:
    first, second = house.consumer(Inbox(acquires=False)), house.consumer(Inbox(acquires=False))
    house.publish(*"abc")
    assert house.pull(first, 2) == ["a", "b"]
    assert house.pull(second, 1) == ["a"]
    assert house.pull(first, 2) == ["c"]
    assert house.pull_all(second) == ["b", "c"]


# --- the whole ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_whatever_consumers_do_no_message_is_lost_and_no_consumer_sleeps_beside_work(data: st.DataObject) -> None:
    house = House()
    inboxes = [house.consumer(Inbox(str(number), priority=number % 2), interested=False) for number in range(3)]
    held: dict[int, str] = {}
    gone = published = 0
    for _ in range(data.draw(st.integers(5, 40))):
        step = data.draw(st.sampled_from(("publish", "pull", "interest", "requeue", "ack", "purge")))
        inbox = data.draw(st.sampled_from(inboxes))
        if step == "publish":
            count = data.draw(st.integers(1, 30))
            house.publish(*(str(published + number) for number in range(count)))
            published += count
        elif step == "pull":
            run = house.queue.pull(inbox, data.draw(st.integers(1, 8)))
            if run is not None:
                held.update(enumerate(texts_of(run), run.first_seq_id))
        elif step == "interest":
            house.queue.set_interest(inbox, data.draw(st.booleans()))
        elif step == "purge":
            gone += house.queue.purge()
        elif held:
            chosen = data.draw(st.lists(st.sampled_from(sorted(held)), max_size=5, unique=True))
            if step == "ack":
                house.queue.ack(chosen)
                gone += len(chosen)
            else:
                house.queue.requeue(chosen)
            for seq_id in chosen:
                del held[seq_id]
        house.queue.consumers.check_invariants()
        assert len(house.queue) + len(held) + gone == published
    if len(house.queue):
        states = [house.queue.consumers.state_of(inbox) for inbox in inboxes]
        assert NOTIFIED in states or INTERESTED not in states
