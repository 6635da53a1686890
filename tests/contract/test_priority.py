"""What only the priority queue promises; what it has in common with the others is tested with them.

Starvation of lower levels is a promise too: RabbitMQ's consumers see the same order.
"""

from __future__ import annotations

import math

import pytest

from penstock.backing.backing_queue import TIMEOUT_NONE, TIMEOUT_TIMED, AsyncCallback, BackingQueue, BackingWork
from penstock.backing.priority.priority import PriorityBackingQueues
from penstock.backing.priority.priority_queue import PriorityBackingQueue
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, body_bytes, unlike
from tests.contract.backings import MANY, expired_at, listed, stored
from tests.contract.inner_backings import NotingQueue, NotingQueues

MAX = 5


class House:
    """A priority queue with levels that can be looked at, and what came through its callback."""

    def __init__(self, max_priority: int = MAX) -> None:
        self.inner = NotingQueues()
        self.handed_over: list[tuple[str, BackingWork]] = []
        self.queues = PriorityBackingQueues(self.inner, max_priority)
        self.bq = self.queues.open("0f", True, None, self.call_later)

    def call_later(self, kind: str, work: BackingWork) -> None:
        self.handed_over.append((kind, work))

    def publish(self, priority: int, *payloads: bytes, props: MessageProps | None = None) -> int:
        return self.bq.publish(Incoming(envelope(priority), stored(payloads)), props)

    def level(self, level: int) -> NotingQueue:
        return self.inner.opened[f"0f-{level:03d}"]


@pytest.fixture
def house() -> House:
    return House()


def envelope(priority: int) -> Envelope:
    return Envelope("", "key", b"\x00\x00", persistent=True, priority=priority)


def entry(priority: int, payload: bytes) -> Entry:
    return (envelope(priority), payload + b"\xce", None)


def fetch_all(bq: BackingQueue, count_max: int = MANY) -> list[tuple[int, bytes, bool]]:
    fetched: list[tuple[int, bytes, bool]] = []
    while (run := bq.fetch(count_max, MANY, True)) is not None:
        fetched += listed(run)
    bq.check_invariants()
    return fetched


def payloads(messages: list[tuple[int, bytes, bool]]) -> list[bytes]:
    return [payload for _, payload, _ in messages]


# --- order ----------------------------------------------------------------------------------------


def test_higher_levels_come_first_and_each_level_in_order(house: House) -> None:
    for priority, payload in [(1, b"1a"), (3, b"3a"), (0, b"0a"), (3, b"3b"), (1, b"1b"), (5, b"5a")]:
        house.publish(priority, payload)
    fetched = fetch_all(house.bq)
    assert payloads(fetched) == [b"5a", b"3a", b"3b", b"1a", b"1b", b"0a"]
    seq_ids = [seq_id for seq_id, _, _ in fetched]
    assert seq_ids == sorted(seq_ids)
    assert all(seq_id < 1 << 63 for seq_id in seq_ids)


def test_a_priority_above_the_maximum_counts_as_the_maximum(house: House) -> None:
    for priority, payload in [(255, b"a"), (MAX, b"b"), (MAX + 1, b"c"), (MAX - 1, b"d")]:
        house.publish(priority, payload)
    assert payloads(fetch_all(house.bq)) == [b"a", b"b", b"c", b"d"]
    assert sorted(house.inner.opened) == ["0f-004", "0f-005"]


def test_a_message_without_a_priority_stands_in_level_0(house: House) -> None:
    house.bq.publish(Incoming(Envelope("", "key", b""), stored([b"plain"])), None)
    house.publish(1, b"one")
    assert payloads(fetch_all(house.bq)) == [b"one", b"plain"]


def test_a_run_never_mixes_levels(house: House) -> None:
    house.publish(1, b"a", b"b")
    house.publish(2, b"c", b"d")
    runs = [listed(house.bq.fetch(MANY, MANY, True)) for _ in range(2)]
    assert [payloads(run) for run in runs] == [[b"c", b"d"], [b"a", b"b"]]
    first = runs[0][0][0]
    assert [seq_id - first for seq_id, _, _ in runs[0]] == [0, 1]


def test_a_message_with_a_higher_priority_overtakes_what_waits(house: House) -> None:
    house.publish(1, b"a", b"b", b"c")
    assert payloads(listed(house.bq.fetch(1, MANY, True))) == [b"a"]
    house.publish(4, b"urgent")
    assert payloads(fetch_all(house.bq)) == [b"urgent", b"b", b"c"]


def test_lower_levels_starve_while_higher_ones_have_messages(house: House) -> None:
    """W-11: by design, as in RabbitMQ."""
    house.publish(0, b"low")
    for index in range(50):
        house.publish(1, b"%d" % index)
        assert payloads(listed(house.bq.fetch(MANY, MANY, False))) == [b"%d" % index]
    assert payloads(fetch_all(house.bq)) == [b"low"]


def test_a_queue_of_one_level_is_an_ordinary_queue() -> None:
    house = House(max_priority=0)
    assert house.publish(0, b"a") == 0
    assert house.publish(200, b"b") == 1
    assert payloads(fetch_all(house.bq)) == [b"a", b"b"]


def test_seq_ids_of_the_lowest_of_256_levels_are_positive_64_bit_numbers() -> None:
    house = House(max_priority=255)
    low, high = house.publish(0, b"low"), house.publish(255, b"high")
    assert 0 <= high < low < 1 << 63
    assert payloads(fetch_all(house.bq)) == [b"high", b"low"]


# --- levels are opened when they are needed --------------------------------------------------------


def test_levels_are_opened_by_the_first_message_that_goes_there() -> None:
    house = House(max_priority=255)
    assert house.bq.fetch(1, MANY, True) is None
    house.bq.discard(Incoming(envelope(9), stored([b"x"])))
    assert (house.bq.ack([0, 1 << 50]), house.bq.depth(), house.bq.purge()) == (0, 0, 0)
    house.bq.check_invariants()
    assert house.inner.opened == {}
    house.publish(7, b"a")
    house.publish(7, b"b")
    house.bq.publish(unlike([entry(9, b"c"), entry(9, b"d")]), None)
    fetch_all(house.bq)
    house.publish(3, b"e")
    assert list(house.inner.opened) == ["0f-007", "0f-009", "0f-003"]


def test_a_level_that_is_opened_later_is_told_what_the_others_were_told(house: House) -> None:
    house.publish(1, b"a")
    house.bq.set_queue_mode(True)
    house.bq.set_ram_duration_target(2.5)
    house.bq.set_ram_bytes_target(1_000)
    house.publish(2, b"b")
    assert house.level(2).hints[:2] == [("lazy", 1.0), ("seconds", 2.5)]
    assert [name for name, _ in house.level(2).hints[2:]] == ["bytes"]
    house.bq.set_queue_mode(False)
    house.bq.set_ram_duration_target(math.inf)
    house.bq.set_ram_bytes_target(-1)
    house.publish(3, b"c")
    assert house.level(3).hints == []


# --- settling -------------------------------------------------------------------------------------


def test_requeued_messages_go_back_to_their_places_in_their_levels(house: House) -> None:
    house.publish(1, b"1a", b"1b")
    house.publish(2, b"2a", b"2b", b"2c")
    taken = {payload: seq_id for seq_id, payload, _ in fetch_all(house.bq)}
    house.publish(2, b"2d")
    assert house.bq.requeue([taken[b"1a"], taken[b"2c"], taken[b"2a"]]) == 3
    assert [(payload, redelivered) for _, payload, redelivered in fetch_all(house.bq)] == [
        (b"2a", True),
        (b"2c", True),
        (b"2d", False),
        (b"1a", True),
    ]
    assert house.bq.depth() == 6


def test_acks_of_several_levels_are_settled_in_one_call_in_any_order(house: House) -> None:
    for priority in (0, 2, 4):
        house.publish(priority, b"%d" % priority, b"%d" % priority)
    seq_ids = [seq_id for seq_id, _, _ in fetch_all(house.bq)]
    unknown = [-1, 0, seq_ids[0] + 2, seq_ids[-1] + 2, 1 << 52, 1 << 70, -(1 << 50)]
    mixed = [seq_ids[5], seq_ids[0], *unknown, seq_ids[3], seq_ids[5]]
    assert house.bq.ack(mixed) == 3
    assert house.bq.requeue(tuple(mixed)) == 0
    assert house.bq.requeue(seq_ids[::-1]) == 3
    assert [seq_id for seq_id, _, _ in fetch_all(house.bq)] == [seq_ids[1], seq_ids[2], seq_ids[4]]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_a_range_of_acks_may_have_any_step(house: House, step: int) -> None:
    first = house.publish(3, *[b"%d" % index for index in range(9)])
    fetch_all(house.bq)
    ids = range(first, first + 9, step) if step > 0 else range(first + 8, first - 1, step)
    assert house.bq.ack(ids) == len(ids)
    assert house.bq.ack(range(first, first)) == 0
    assert house.bq.requeue(range(first, first + 9)) == 9 - len(ids)


def test_a_range_over_the_border_between_two_levels_belongs_to_both(house: House) -> None:
    """Nobody asks for that; but nothing may be settled that was not meant."""
    high, low = house.publish(1, b"high"), house.publish(0, b"low")
    fetch_all(house.bq)
    assert high >> 48 != low >> 48
    assert house.bq.ack(range(low - 3, low + 1)) == 1
    assert house.bq.ack(range(high, high + 2)) == 1


def test_ackfold_keeps_the_order_given_across_levels(house: House) -> None:
    house.publish(1, b"1a", b"1b")
    house.publish(2, b"2a", b"2b")
    taken = {payload: seq_id for seq_id, payload, _ in fetch_all(house.bq)}
    order = [taken[name] for name in (b"1b", b"2a", b"1a", b"2b", b"1b", b"2a")]
    shown: list[tuple[int, bytes]] = []
    house.bq.ackfold(lambda seq_id, one: shown.append((seq_id, body_bytes(one[1]))), [-1, *order, 1 << 52])
    assert shown == [(taken[name], name) for name in (b"1b", b"2a", b"1a", b"2b")]
    house.bq.ackfold(lambda seq_id, one: pytest.fail("shown"), [])


# --- publishing together, and confirms -----------------------------------------------------------------


def test_messages_of_mixed_priorities_go_to_their_levels_in_order(house: House) -> None:
    mixed = [(1, b"1a"), (3, b"3a"), (1, b"1b"), (9, b"9a"), (3, b"3b"), (1, b"1c")]
    first = house.bq.publish(unlike([entry(*one) for one in mixed]), None)
    fetched = fetch_all(house.bq)
    assert payloads(fetched) == [b"9a", b"3a", b"3b", b"1a", b"1b", b"1c"]
    assert first == fetched[3][0]


def test_a_token_for_several_levels_comes_once_when_the_last_level_is_safe(house: House) -> None:
    token = ConfirmToken(1)
    for level in (1, 2, 3):
        house.publish(level, b"opens the level")
        house.level(level).is_safe = False
    house.bq.publish(
        unlike([entry(1, b"a"), entry(2, b"b"), entry(3, b"c"), entry(2, b"d")]), MessageProps(confirm=token)
    )
    assert (house.bq.drain_confirmed(), house.bq.needs_timeout()) == ([], TIMEOUT_TIMED)
    house.level(2).is_safe = True
    assert house.bq.drain_confirmed() == []
    house.level(1).is_safe = True
    assert (house.bq.drain_confirmed(), house.bq.needs_timeout()) == ([], TIMEOUT_TIMED)
    house.level(3).is_safe = True
    assert house.bq.drain_confirmed() == [token]
    assert (house.bq.drain_confirmed(), house.bq.needs_timeout()) == ([], TIMEOUT_NONE)
    assert token.waiting == 1, "settling it is the queue's business"


def test_a_token_for_one_level_is_handed_on_as_it_is(house: House) -> None:
    tokens = [ConfirmToken(1) for _ in range(3)]
    house.publish(1, b"a", props=MessageProps(confirm=tokens[0]))
    house.bq.publish(unlike([entry(2, b"b"), entry(2, b"c")]), MessageProps(confirm=tokens[1]))
    house.publish(3, b"d", props=MessageProps(confirm=tokens[2]))
    assert sorted(map(id, house.bq.drain_confirmed())) == sorted(map(id, tokens))
    assert house.bq.drain_confirmed() == []


class RefusableToken(ConfirmToken):
    """Counts how often it was refused."""

    __slots__ = ("refusals",)

    def __init__(self) -> None:
        super().__init__(1)
        self.refusals = 0

    def refuse(self) -> None:
        self.refusals += 1


def test_a_token_that_one_level_refuses_is_refused_once_and_never_confirmed(house: House) -> None:
    token = RefusableToken()
    for level in (1, 2, 3):
        house.publish(level, b"opens the level")
        house.level(level).is_safe = False
    house.bq.publish(unlike([entry(1, b"a"), entry(2, b"b"), entry(3, b"c")]), MessageProps(confirm=token))
    house.level(1).is_safe = True
    assert house.bq.drain_confirmed() == []
    house.level(2).refuse_all()
    house.level(3).is_safe = True
    assert house.bq.drain_confirmed() == []
    assert token.refusals == 1


def test_a_token_that_two_levels_refuse_is_refused_once(house: House) -> None:
    token = RefusableToken()
    for level in (1, 2):
        house.publish(level, b"opens the level")
        house.level(level).is_safe = False
    house.bq.publish(unlike([entry(1, b"a"), entry(2, b"b")]), MessageProps(confirm=token))
    for level in (1, 2):
        house.level(level).refuse_all()
    assert token.refusals == 1
    assert house.bq.drain_confirmed() == []


def test_a_list_for_one_level_is_handed_on_itself(house: House) -> None:
    """The inner backing may know it again in the next queue of a fan-out, and store it once."""
    incoming = unlike([entry(1, b"a"), entry(1, b"b")])
    house.bq.publish(incoming, None)
    assert house.level(1).last_incoming is incoming


# --- the head ---------------------------------------------------------------------------------------


def test_dropwhile_goes_on_in_the_next_level_when_one_is_used_up(house: House) -> None:
    for priority, expiry_ms in [(3, 10), (3, 10), (2, 10), (2, 99), (2, 10), (1, 10)]:
        house.publish(priority, b"%d" % expiry_ms, props=MessageProps(expiry_ms))
    assert house.bq.dropwhile(expired_at(20)) == 3
    head = house.bq.head_props()
    assert head is not None
    assert head.expiry_ms == 99
    assert len(house.bq) == 3


def test_an_expired_message_stays_behind_one_of_a_higher_level_that_has_not_expired(house: House) -> None:
    """W-10, as RabbitMQ has it: only what would be fetched next is at the head."""
    house.publish(1, b"expired", props=MessageProps(10))
    house.publish(2, b"fresh", props=MessageProps(99))
    assert house.bq.dropwhile(expired_at(20)) == 0
    assert house.bq.fetchwhile(expired_at(20), lambda seq_id, one: pytest.fail("fetched")) == 0
    house.bq.drop(False)
    assert house.bq.dropwhile(expired_at(20)) == 1


def test_fetchwhile_shows_the_messages_of_several_levels_with_their_seq_ids(house: House) -> None:
    for priority in (1, 3, 2):
        house.publish(priority, b"%d" % priority, props=MessageProps(10))
    house.publish(1, b"stays", props=MessageProps(99))
    shown: list[tuple[int, bytes]] = []
    count = house.bq.fetchwhile(expired_at(20), lambda seq_id, one: shown.append((seq_id, body_bytes(one[1]))))
    assert (count, [payload for _, payload in shown]) == (3, [b"3", b"2", b"1"])
    assert house.bq.requeue([seq_id for seq_id, _ in shown]) == 3
    assert payloads(fetch_all(house.bq)) == [b"3", b"2", b"1", b"stays"]


def test_drop_takes_from_the_highest_level_that_has_something(house: House) -> None:
    low, high = house.publish(1, b"low"), house.publish(2, b"high")
    assert [house.bq.drop(True) for _ in range(3)] == [high, low, None]
    assert house.bq.ack([high, low]) == 2


@pytest.mark.parametrize("count_max", [1, 2, MANY])
def test_a_browser_goes_through_all_levels_from_the_top(house: House, count_max: int) -> None:
    for priority in (0, 2, 1, 2, 0):
        house.publish(priority, b"%d" % priority, b"%d" % priority)
    seen: list[tuple[int, bytes, bool]] = []
    position = 0
    while (run := house.bq.browse(position, count_max, MANY)) is not None:
        seen += listed(run)
        position = seen[-1][0] + 1
    assert seen == fetch_all(house.bq)
    assert len(seen) == 10


def test_fold_goes_through_the_levels_in_order_and_stops_in_any_of_them(house: House) -> None:
    for priority in (0, 2, 1):
        house.publish(priority, b"%d" % priority, b"%d" % priority)
    house.bq.fetch(1, MANY, True)
    for stop_after in range(1, 7):
        shown: list[tuple[int, bool]] = []

        def visit(seq_id: int, one: Entry, pending: bool, shown: list[tuple[int, bool]] = shown) -> bool:
            shown.append((seq_id, pending))
            return len(shown) < stop_after  # noqa: B023

        house.bq.fold(visit)
        assert len(shown) == stop_after
        assert shown == sorted(shown)
        assert [pending for _, pending in shown] == [True, *[False] * (stop_after - 1)]


# --- callbacks, hints, numbers ---------------------------------------------------------------------------


def test_a_callback_comes_back_to_the_level_that_registered_it(house: House) -> None:
    """CX-7"""
    for level in (1, 4):
        house.publish(level, b"x")
    ran: list[BackingQueue] = []
    for level in (4, 1):
        house.level(level).callback("volatile", ran.append)
    house.level(4).callback("another", ran.append)
    assert ran == []
    assert {kind for kind, _ in house.handed_over} == {"priority"}
    for kind, work in house.handed_over:
        house.bq.invoke(kind, work)
    assert ran == [house.level(4), house.level(1)]


def test_a_level_that_is_opened_later_has_a_callback_of_its_own(house: House) -> None:
    house.publish(1, b"x")
    house.publish(2, b"y")
    house.level(2).callback("volatile", lambda level: level.purge() and None)
    kind, work = house.handed_over.pop()
    house.bq.invoke("volatile", work)
    assert len(house.bq) == 2, "work under another name is not ours"
    house.bq.invoke(kind, work)
    assert payloads(fetch_all(house.bq)) == [b"x"]


def test_bytes_in_ram_are_divided_between_the_levels_and_never_more_than_given(house: House) -> None:
    house.publish(1, b"x" * 3_000)
    house.publish(2, b"")
    house.publish(3, b"x" * 1_000)
    for bytes_max in (0, 1, 7, 10_000):
        house.bq.set_ram_bytes_target(bytes_max)
        shares = [house.level(level).hints[-1][1] for level in (1, 2, 3)]
        assert sum(shares) <= bytes_max
    assert shares[0] > shares[2] > shares[1] > 10_000 // 2 // 3
    house.bq.set_ram_bytes_target(-1)
    assert {house.level(level).hints[-1] for level in (1, 2, 3)} == {("bytes", -1)}


def test_the_duration_of_a_queue_is_the_shortest_of_its_levels(house: House) -> None:
    assert house.bq.ram_duration() == math.inf
    for level, seconds in ((1, 3.0), (2, math.inf), (3, 0.5)):
        house.publish(level, b"x")
        house.level(level).duration_s = seconds
    assert house.bq.ram_duration() == 0.5
    house.bq.set_ram_duration_target(7.0)
    house.bq.timeout()
    assert [house.level(level).hints for level in (1, 2, 3)] == [[("seconds", 7.0), ("timeout", 0.0)]] * 3


def test_status_has_the_length_of_each_open_level(house: House) -> None:
    house.publish(1, b"a", b"b")
    house.publish(4, b"c")
    assert payloads(listed(house.bq.fetch(1, MANY, True))) == [b"c"]
    status = house.bq.status()
    assert (status["kind"], status["len"], status["pending_acks"], status["levels_open"]) == ("priority", 2, 1, 2)
    assert {name: value for name, value in status.items() if name.startswith("len_")} == {"len_001": 2, "len_004": 0}
    assert House().bq.status()["next_seq_id"] == MAX << 48


# --- coming back ------------------------------------------------------------------------------------


def dropped(kind: str, work: BackingWork) -> None:
    """A callback for queues that hand nothing over."""


def reopen(house: House, known: bool, callback: AsyncCallback = dropped) -> tuple[NotingQueues, PriorityBackingQueue]:
    """The queue after a restart; `known`: somebody can tell which levels exist."""
    inner = NotingQueues(house.inner.opened)
    queues = PriorityBackingQueues(inner, MAX, inner.exists if known else None)
    _, old = queues.start(["ab", "0f"])
    assert inner.started == [f"{queue_id}-{level:03d}" for queue_id in ("ab", "0f") for level in range(MAX + 1)]
    return inner, queues.open("0f", True, old, callback)


@pytest.mark.parametrize("clean", [False, True], ids=["crash", "clean"])
@pytest.mark.parametrize("known", [False, True], ids=["all levels", "known levels"])
def test_the_levels_that_exist_are_opened_again(house: House, clean: bool, known: bool) -> None:
    house.publish(0, b"low")
    house.publish(3, b"high")
    if clean:
        house.bq.terminate()
    inner, bq = reopen(house, known)
    assert sorted(inner.opened) == (["0f-000", "0f-003"] if known else [f"0f-{level:03d}" for level in range(MAX + 1)])
    for name in ("0f-000", "0f-003"):
        recovery = inner.recoveries[name]
        assert recovery is not None
        assert recovery.clean == clean
    bq.publish(Incoming(envelope(4), stored([b"new"])), None)
    assert payloads(fetch_all(bq)) == [b"new", b"high", b"low"]


def test_a_queue_and_its_levels_come_back_cleanly_only_when_all_of_them_do() -> None:
    house = House(max_priority=1)
    house.publish(0, b"a")
    house.publish(1, b"b")
    house.bq.terminate()
    before = house.inner.opened
    (both,) = PriorityBackingQueues(NotingQueues(before), 1).start(["0f"])
    before["0f-001"].terminated = False
    inner = NotingQueues(before)
    queues = PriorityBackingQueues(inner, 1)
    (one,) = queues.start(["0f"])
    assert (both.clean, one.clean) == (True, False)
    queues.open("0f", True, one, dropped)
    recoveries = [inner.recoveries[name] for name in ("0f-000", "0f-001")]
    assert [recovery is not None and recovery.clean for recovery in recoveries] == [False, False]


def test_deleting_reaches_every_level(house: House) -> None:
    house.publish(1, b"a")
    house.publish(2, b"b")
    house.bq.delete_and_terminate()
    assert [house.level(level).depth() for level in (1, 2)] == [0, 0]
    house.queues.delete_crashed("77")
    assert house.inner.deleted == [f"77-{level:03d}" for level in range(MAX + 1)]
    house.queues.stop()
    assert house.inner.stopped
