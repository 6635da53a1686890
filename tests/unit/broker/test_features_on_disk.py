"""Features on the backing that lasts: what only shows where messages of one run are kept together."""

from __future__ import annotations

import random
from errno import EIO

import pytest
from at_hand_house import House
from tests.simulation.machine import StepSyncer

from penstock.broker.features.held_messages import delays_of, hold_run
from penstock.broker.vhost.companions import DEDUP
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, body_bytes
from penstock.queues.queue import Queue
from penstock.wire.properties import Properties, encode_properties

KEY = "x-deduplication-header"


def publish_run(queue: Queue, *texts: str) -> None:
    """Messages that share their envelope, as a client that repeats itself sends them."""
    queue.publish(
        Incoming(Envelope("", queue.name, b"\x10\x00\x02", True), [text.encode() + b"\xce" for text in texts]), None
    )


def texts_in(queue: Queue) -> list[str]:
    found: list[str] = []

    def visit(seq_id: int, entry: Entry, is_pending: bool) -> bool:
        found.append(body_bytes(entry[1]).decode())
        return True

    queue.backing.fold(visit)
    return found


def test_a_full_queue_drops_of_a_run_only_what_is_too_much() -> None:
    queue = House(True).declare("q", x_max_length=2)
    publish_run(queue, "1", "2", "3", "4", "5")
    assert texts_in(queue) == ["4", "5"]


def test_a_key_that_is_pushed_out_of_a_window_takes_no_other_along() -> None:
    house = House(True)
    house.declare("q", x_message_deduplication=True, x_cache_size=3, x_cache_ttl=60_000)
    for key in ("w", "x", "y", "z"):
        house.publish(key, headers={"x-deduplication-header": key})
    companion = house.vhost.companions.find(DEDUP, "q")
    assert companion is not None
    assert texts_in(companion) == ["Sx", "Sy", "Sz"]
    house.restart()
    queue = house.vhost.queues["q"]
    house.publish("y again", headers={"x-deduplication-header": "y"})
    house.publish("w again", headers={"x-deduplication-header": "w"})
    assert texts_in(queue) == ["w", "x", "y", "z", "w again"]


def test_a_message_that_a_drop_brings_to_the_head_expires_when_its_time_comes() -> None:
    house = House(True)
    queue = house.declare("q", x_max_length=2)
    house.publish("1")
    house.publish("2", expiration="50")
    house.publish("3")
    assert texts_in(queue) == ["2", "3"]
    house.clock.advance(0.05)
    house.broker.expiries.run_due(house.clock.wall_ms())
    assert texts_in(queue) == ["3"]


def test_a_queue_that_died_over_its_limit_makes_room_at_the_next_start(durable_house: House) -> None:
    house = durable_house
    house.declare("target")
    house.declare("q", x_max_length=1, x_dead_letter_exchange="", x_dead_letter_routing_key="target")
    house.publish("a")
    house.get()
    house.publish("b")
    house.end_turn()
    house.crash()
    house.pass_ms(1)
    assert house.bodies("q") == ["b"]
    assert house.bodies("target") == ["a"]


class Told(ConfirmToken):
    """Keeps what its publisher was told."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        super().__init__(1)
        self.answers: list[str] = []

    def complete(self) -> None:
        self.answers.append("ack")

    def refuse(self) -> None:
        self.answers.append("nack")


@pytest.mark.parametrize("is_written", [False, True], ids=["gathered", "in flight"])
@pytest.mark.parametrize("is_synced", [False, True], ids=["the sync fails", "the sync is done"])
def test_a_duplicate_is_answered_as_its_original_is_and_not_before(is_written: bool, is_synced: bool) -> None:
    syncer = StepSyncer(random.Random(0), 0.0)
    house = House(True, syncer)
    house.declare("q", x_message_deduplication=True, x_cache_size=10)
    house.end_turn()
    syncer.answer()
    tokens = [Told(), Told()]
    house.publish("original", headers={KEY: "k"}, confirm=tokens[0])
    if is_written:
        house.end_turn()
    house.publish("duplicate", headers={KEY: "k"}, confirm=tokens[1])
    house.end_turn()
    assert [token.answers for token in tokens] == [[], []]
    if not is_synced:
        house.disk.plan.fail(EIO, "fdatasync", forever=True)
    while syncer.under_way is not None:
        syncer.answer()
    answer = "ack" if is_synced else "nack"
    assert [token.answers for token in tokens] == [[answer], [answer]]


def hold(house: House, *delays_ms: int) -> None:
    """Messages that arrive together, each with its own x-delay and a header of its own."""
    companion = house.vhost.holding_queue("later")
    entries: list[Entry] = []
    for number, delay_ms in enumerate(delays_ms):
        raw = encode_properties(Properties(delivery_mode=2, headers={"n": ("I", number), "x-delay": ("I", delay_ms)}))
        entries.append((Envelope("later", "k", raw, True), b"%d\xce" % number, None))
    hold_run(companion, entries, delays_of(entries), None)


@pytest.fixture
def delaying(durable_house: House) -> House:
    durable_house.exchange("later", "x-delayed-message", x_delayed_type="direct")
    durable_house.declare("q")
    durable_house.bind("later", "q", "k")
    return durable_house


def test_messages_that_come_due_together_are_moved_with_few_rows(delaying: House) -> None:
    hold(delaying, *([50] * 20))
    delaying.end_turn()
    assert delaying.broker.node is not None
    journal = delaying.broker.node.journal
    assert journal.is_empty
    delaying.pass_ms(50)
    # Delivered, the names of the target and of its route, published; moved is the row that may go on.
    assert len(journal._rows) <= 4
    assert delaying.bodies() == [str(number) for number in range(20)]
    delaying.check()


def test_messages_held_together_are_due_each_at_its_own_time_before_and_after_a_crash(delaying: House) -> None:
    hold(delaying, 30, 10, 20, 10, 500, 40)
    delaying.end_turn()
    delaying.pass_ms(10)
    delaying.end_turn()
    delaying.crash()
    delaying.pass_ms(35)
    assert delaying.bodies() == ["1", "3", "2", "0", "5"]
    delaying.check()


def test_a_run_that_came_due_is_at_one_place_after_a_crash_and_marked_when_it_is_moved_again(delaying: House) -> None:
    hold(delaying, 10, 10, 10, 10)
    delaying.end_turn()
    delaying.pass_ms(10)
    assert len(delaying.vhost.queues["q"].backing) == 4
    # Before the batch of the journal was written.
    delaying.crash()
    assert len(delaying.vhost.queues["q"].backing) == 0
    assert len(delaying.vhost.holding_queue("later").backing) == 4
    delaying.pass_ms(10)
    delaying.end_turn()
    assert len(delaying.vhost.holding_queue("later").backing) == 0
    run = delaying.vhost.queues["q"].get(False)
    assert run is not None
    assert run.redelivered
    delaying.check()
