"""Messages that expire in a queue: at the head and nowhere else, whoever looks and whenever."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_house import Grasping, House, Inbox, Token, texts_of
from tests.effort import examples

from penstock.message import Envelope, Run, unlike
from penstock.queues.leaving.expiry import STALE_MIN, ExpirySchedule
from penstock.queues.queue import Queue


@pytest.fixture
def house() -> House:
    return House()


def taken(run: Run | None) -> list[int]:
    assert run is not None
    return list(range(run.first_seq_id, run.first_seq_id + len(run.entries)))


def test_a_message_is_there_until_its_expiry_and_not_at_it(house: House) -> None:
    house.publish("a", expiration_ms=1000)
    house.pass_ms(999)
    assert len(house.queue) == 1
    house.pass_ms(1)
    assert len(house.queue) == 0
    assert house.queue.expiry.expired_count == 1


def test_neither_a_pull_nor_a_get_hands_out_an_expired_message(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b", expiration_ms=10)
    house.publish("c")
    house.pass_ms(10)
    assert house.get() == "c"
    house.publish("d", expiration_ms=10)
    house.publish("e")
    house.pass_ms(10)
    assert house.pull_all(inbox) == ["e"]
    assert (house.queue.expiry.expired_count, house.queue.delivered_count) == (3, 2)


def test_the_timer_drops_what_has_expired_at_the_head_without_anyone_looking(house: House) -> None:
    house.publish("a", expiration_ms=10)
    house.publish("b", expiration_ms=20)
    due = house.expiries.next_due_ms()
    assert due == house.clock.wall_ms() + 10
    house.pass_ms(10)
    house.wake_up()
    assert len(house.backing) == 1
    assert house.expiries.next_due_ms() == due + 10
    house.pass_ms(10)
    house.wake_up()
    assert len(house.backing) == 0
    assert house.expiries.next_due_ms() == -1


def test_an_expired_message_stays_while_one_that_has_not_expired_is_in_front_of_it(house: House) -> None:
    house.publish("a")
    house.publish("b", expiration_ms=10)
    house.pass_ms(100)
    house.wake_up()
    assert len(house.queue) == 2
    assert house.get() == "a"
    assert house.get() is None
    assert house.queue.expiry.expired_count == 1


def test_the_timer_is_set_when_a_message_with_an_expiry_comes_to_the_head(house: House) -> None:
    house.publish("a")
    house.publish("b", expiration_ms=10)
    assert house.expiries.next_due_ms() == -1
    house.get()
    assert house.expiries.next_due_ms() == house.clock.wall_ms() + 10


def test_a_run_does_not_carry_along_what_has_expired_behind_a_plain_message(house: House) -> None:
    inbox = house.consumer()
    house.publish("a")
    house.publish("b", expiration_ms=10)
    house.publish("c")
    house.pass_ms(100)
    assert house.pull_all(inbox) == ["a", "c"]


def test_a_run_does_not_carry_along_what_has_expired_behind_entries_of_their_own(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", expiration_ms=1000)
    house.queue.publish(unlike([(Envelope("", "q", b"\x00\x00"), b"b\xce", None)]), None)
    house.publish("c", expiration_ms=10)
    house.pass_ms(100)
    assert house.pull_all(inbox) == ["a", "b"]
    # The same where the first message was the plain one.
    house = House()
    inbox = house.consumer()
    house.publish("z", expiration_ms=10)
    house.get()
    house.queue.publish(unlike([(Envelope("", "q", b"\x00\x00"), b"a\xce", None)]), None)
    house.publish("b", expiration_ms=20)
    house.pass_ms(100)
    assert house.pull_all(inbox) == ["a"]


def test_a_run_does_not_carry_along_what_has_expired_behind_a_longer_expiry(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", expiration_ms=1000)
    house.publish("b", expiration_ms=10)
    house.publish("c", expiration_ms=2000)
    house.pass_ms(100)
    assert house.pull_all(inbox) == ["a", "c"]


def test_messages_that_expire_in_their_order_are_still_pulled_together(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b", expiration_ms=10)
    house.publish("c", expiration_ms=10)
    house.publish("d")
    assert house.pull(inbox) == ["a", "b", "c", "d"]


def test_runs_are_whole_again_when_the_queue_was_empty_in_between(house: House) -> None:
    inbox = house.consumer(Inbox(no_ack=True))
    house.publish("a")
    house.publish("b", expiration_ms=10)
    assert house.pull_all(inbox) == ["a", "b"]
    house.publish("c", "d")
    assert house.pull(inbox) == ["c", "d"]
    house.publish("e", "f", expiration_ms=10)
    assert house.pull(inbox) == ["e", "f"]


def test_an_unacknowledged_message_does_not_expire_but_does_when_it_comes_back(house: House) -> None:
    house.publish("a", expiration_ms=10)
    run = house.queue.get(False)
    house.pass_ms(100)
    house.wake_up()
    assert house.backing.depth() == 1
    house.queue.requeue(taken(run))
    assert len(house.queue) == 0
    assert house.queue.expiry.expired_count == 1


def test_a_message_that_comes_back_before_its_expiry_sets_the_timer(house: House) -> None:
    house.publish("a", expiration_ms=10)
    due = house.expiries.next_due_ms()
    run = house.queue.get(False)
    house.pass_ms(5)
    house.expiries.run_due(house.clock.wall_ms())
    house.queue.requeue(taken(run))
    assert house.expiries.next_due_ms() == due


def test_a_purge_does_not_make_unacknowledged_messages_immortal(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", expiration_ms=10)
    run = house.queue.pull(inbox, 1)
    house.publish("b", expiration_ms=10)
    assert house.queue.purge() == 1
    house.pass_ms(100)
    house.queue.requeue(taken(run))
    assert house.pull_all(inbox) == []
    assert house.queue.expiry.expired_count == 1


def test_a_requeue_of_expired_messages_hands_out_what_stands_behind_them(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", "b", expiration_ms=10)
    house.publish("c")
    run = house.queue.pull(inbox, 2)
    house.pass_ms(100)
    house.queue.requeue(taken(run))
    assert house.pull_all(inbox) == ["c"]


def test_a_browser_does_not_see_what_has_expired_at_the_head(house: House) -> None:
    browser = house.consumer(Inbox(acquires=False))
    house.publish("a", expiration_ms=10)
    house.publish("b")
    house.pass_ms(10)
    assert house.pull_all(browser) == ["b"]


# --- expiration 0 -------------------------------------------------------------------------------------


def test_expiration_0_without_a_consumer_is_expired_on_arrival(house: House) -> None:
    token = Token()
    house.publish("a", "b", expiration_ms=0, confirm=token)
    assert house.backing.depth() == 0
    assert token.completed == 1
    assert (house.queue.published_count, house.queue.expiry.expired_count) == (2, 2)


def test_expiration_0_reaches_a_consumer_that_waits(house: House) -> None:
    inbox = Grasping(house)
    house.consumer(inbox)
    token = Token()
    house.publish("a", expiration_ms=0, confirm=token)
    house.publish("b", expiration_ms=0)
    assert token.completed == 1
    assert inbox.taken == ["a", "b"]


def test_expiration_0_is_over_when_the_message_comes_back(house: House) -> None:
    inbox = Grasping(house)
    house.consumer(inbox)
    house.publish("a", expiration_ms=0)
    house.queue.set_interest(inbox, False)
    house.queue.requeue([0])
    assert len(house.queue) == 0
    assert house.queue.expiry.expired_count == 1


def test_expiration_0_does_not_wait_for_a_consumer_that_wants_nothing_now(house: House) -> None:
    house.consumer(interested=False)
    house.publish("a", expiration_ms=0)
    assert house.backing.depth() == 0


def test_expiration_0_does_not_wait_for_a_browser(house: House) -> None:
    house.consumer(Inbox(acquires=False))
    house.publish("a", expiration_ms=0)
    assert house.backing.depth() == 0


def test_expiration_0_is_gone_when_the_consumer_did_not_come_within_its_turn(house: House) -> None:
    inbox = house.consumer()
    house.publish("a", expiration_ms=0)
    assert house.pull(inbox) == []
    assert house.queue.expiry.expired_count == 1


# --- the end ------------------------------------------------------------------------------------------


def test_a_deleted_queue_is_not_kept_by_the_schedule_until_its_messages_would_have_expired() -> None:
    shared = ExpirySchedule()
    before = queues_in_memory()
    for _ in range(200):
        house = House(shared)
        house.publish("a", expiration_ms=10**9)
        house.queue.delete()
        del house
    assert shared.next_due_ms() == -1
    assert queues_in_memory() - before <= STALE_MIN + 1


def queues_in_memory() -> int:
    gc.collect()
    return len([found for found in gc.get_objects() if type(found) is Queue])


# --- against a model ----------------------------------------------------------------------------------

EXPIRATIONS_MS = st.sampled_from([-1, -1, 10, 20, 40])
STEPS = st.one_of(
    st.tuples(st.just("publish"), EXPIRATIONS_MS, st.integers(1, 4)),
    st.tuples(st.just("pass"), st.integers(1, 25), st.just(0)),
    st.tuples(st.just("pull"), st.integers(1, 6), st.just(0)),
    st.tuples(st.just("ack"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("requeue"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("purge"), st.just(0), st.just(0)),
    st.tuples(st.just("wake"), st.just(0), st.just(0)),
)


class OneByOne:
    """How RabbitMQ says it: before each single message that is handed out, what has expired at the head is dropped."""

    def __init__(self) -> None:
        self.ready: list[tuple[int, int]] = []
        self.pending: dict[int, int] = {}
        self.next = 0

    def publish(self, expiry_ms: int, count: int) -> None:
        for _ in range(count):
            self.ready.append((self.next, expiry_ms))
            self.next += 1

    def next_message(self, now_ms: int) -> int | None:
        while self.ready and 0 <= self.ready[0][1] <= now_ms:
            self.ready.pop(0)
        if not self.ready:
            return None
        number, expiry_ms = self.ready.pop(0)
        self.pending[number] = expiry_ms
        return number

    def requeue(self, numbers: list[int]) -> None:
        self.ready = sorted(self.ready + [(number, self.pending.pop(number)) for number in numbers])


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_messages_come_out_as_if_each_had_been_looked_at_when_it_reached_the_head(
    steps: list[tuple[str, int, int]],
) -> None:
    house, model = House(), OneByOne()
    inbox = house.consumer()
    for step, number, count in steps:
        now_ms = house.clock.wall_ms()
        if step == "publish":
            house.publish(*(str(model.next + index) for index in range(count)), expiration_ms=number)
            model.publish(now_ms + number if number >= 0 else -1, count)
        elif step == "pass":
            house.pass_ms(number)
        elif step == "pull":
            run = house.queue.pull(inbox, number)
            pulled = [] if run is None else texts_of(run)
            # The queue may hand out less than it was asked for, but not nothing while there is something.
            for text in pulled or ["None"]:
                assert text == str(model.next_message(now_ms))
        elif step == "purge":
            house.queue.purge()
            model.ready.clear()
        elif step == "wake":
            house.wake_up()
        else:
            chosen = sorted(model.pending)[number : number + 2]
            if step == "ack":
                house.queue.ack(chosen)
                for seq_id in chosen:
                    del model.pending[seq_id]
            else:
                house.queue.requeue(chosen)
                model.requeue(chosen)
        house.backing.check_invariants()
    rest = house.pull_all(inbox)
    for text in [*rest, "None"]:
        assert text == str(model.next_message(house.clock.wall_ms()))
