"""A queue that changes in place: its messages, deliveries, counts and times stay, also over a crash at any moment."""

from __future__ import annotations

import random
from typing import Any

import pytest
from at_hand_house import House
from tests.disk.sim_faults import FaultPlan, SimCrash, Survival
from tests.disk.sim_files import SimFiles

from penstock.backing.renumbered import GENERATIONS_MAX
from penstock.broker.migration.migration import Migration, redefine
from penstock.broker.migration.redefinition import plan
from penstock.broker.operations.call_errors import BadRequest, CallError
from penstock.broker.policies.policy import Policy
from penstock.errors import ChannelException
from penstock.message import ConfirmToken, Run, body_bytes
from penstock.queues.queue import Queue
from penstock.wire.property_edits import headers_of


def begin(house: House, at_once: int = 500, unset: tuple[str, ...] = (), **set_to: Any) -> list[CallError | None]:
    """Begin a change; x_max_priority is x-max-priority. Returns where its end is noted."""
    queue = house.vhost.queues["q"]
    named = {key if key == "auto_delete" else key.replace("_", "-"): value for key, value in set_to.items()}
    wanted = plan(house.vhost, queue, named, [each.replace("_", "-") for each in unset])
    ended: list[CallError | None] = []
    if wanted.moves:
        Migration(house.vhost, queue, wanted, house.broker.expiries, ended.append, at_once)
    else:
        redefine(house.vhost, queue, wanted)
        ended.append(None)
    return ended


def migrate(house: House, unset: tuple[str, ...] = (), **set_to: Any) -> Queue:
    ended = begin(house, 3, unset, **set_to)
    for _ in range(1000):
        if ended:
            break
        house.pass_ms(1)
    assert ended == [None]
    house.check()
    house.end_turn()
    return house.vhost.queues["q"]


def get(house: House) -> Run:
    run = house.vhost.queues["q"].get(False)
    assert run is not None
    return run


def text_of(run: Run) -> str:
    return body_bytes(run.entries[0][1]).decode()


@pytest.fixture(params=[False, True], ids=["memory", "disk"])
def house(request: pytest.FixtureRequest) -> House:
    return House(request.param)


def fill(house: House) -> None:
    """Six messages whose names say their priorities."""
    for text in ("a0", "b5", "c0", "d9", "e5", "f1"):
        house.publish(text, priority=int(text[1]))


def test_messages_that_are_there_get_priorities(house: House) -> None:
    house.declare("q")
    fill(house)
    queue = migrate(house, x_max_priority=5)
    assert queue.arguments == {"x-max-priority": ("l", 5)}
    house.publish("g9", priority=9)
    assert house.bodies() == ["b5", "d9", "e5", "g9", "f1", "a0", "c0"]


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        (5, 2, ["b5", "d9", "e5", "f1", "a0", "c0"]),
        (2, 9, ["d9", "b5", "e5", "f1", "a0", "c0"]),
    ],
)
def test_the_number_of_priorities_changes(house: House, before: int, after: int, order: list[str]) -> None:
    house.declare("q", x_max_priority=before)
    fill(house)
    migrate(house, x_max_priority=after)
    assert house.bodies() == order


def test_priorities_go_and_messages_stay_in_the_order_in_which_they_stood(house: House) -> None:
    house.declare("q", x_max_priority=5)
    fill(house)
    migrate(house, unset=("x_max_priority",))
    assert house.bodies() == ["b5", "d9", "e5", "f1", "a0", "c0"]


def test_deliveries_are_settled_under_the_numbers_that_clients_know(house: House) -> None:
    house.declare("q")
    fill(house)
    queue = house.vhost.queues["q"]
    numbers = [get(house).first_seq_id for _ in range(4)]
    assert migrate(house, x_max_priority=5) is queue
    assert (queue.ready_count(), queue.backing.depth()) == (2, 6)
    queue.ack(numbers[:1])
    queue.requeue(numbers[1:3])
    # Again, under numbers that mean nothing any more.
    queue.ack(numbers[:3])
    queue.reject(numbers[3:])
    house.check()
    assert queue.backing.depth() == 4
    first = get(house)
    assert (text_of(first), first.redelivered) == ("b5", True)
    second = get(house)
    assert (text_of(second), second.redelivered) == ("e5", False)
    assert house.bodies() == ["f1", "c0"]
    queue.requeue([first.first_seq_id, second.first_seq_id])
    assert house.bodies() == ["b5", "e5"]
    assert queue.backing.depth() == 0


def test_what_comes_and_goes_meanwhile_counts(house: House) -> None:
    house.declare("q")
    fill(house)
    queue = house.vhost.queues["q"]
    numbers = [get(house).first_seq_id for _ in range(3)]
    ended = begin(house, 1, x_max_priority=5)
    house.pass_ms(1)
    house.publish("g5", priority=5)
    queue.ack(numbers[:1])
    queue.requeue(numbers[1:2])
    house.publish("h0")
    for _ in range(20):
        house.pass_ms(1)
    assert ended == [None]
    house.check()
    assert queue.backing.depth() == 7
    first = get(house)
    assert (text_of(first), first.redelivered) == ("b5", True)
    assert house.bodies() == ["d9", "e5", "g5", "f1", "h0"]
    queue.requeue(numbers[2:])
    assert house.bodies() == ["c0"]


def test_nothing_is_handed_out_until_it_is_over_and_it_can_be_finished_at_once(house: House) -> None:
    house.declare("q")
    fill(house)
    queue = house.vhost.queues["q"]
    ended = begin(house, 1, x_max_priority=5)
    assert ended == []
    assert queue.available_count() == 0
    queue.settling[0].finish()
    assert ended == [None]
    assert queue.available_count() == 6


def test_counts_times_and_flags_are_kept_also_over_a_restart(house: House) -> None:
    house.declare("q", x_delivery_limit=10)
    house.publish("poison", "fresh")
    house.publish("timed", expiration="1000")
    queue = house.vhost.queues["q"]
    for _ in range(3):
        queue.requeue([house.get()])
    held = house.get()
    queue = migrate(house, x_max_priority=3)
    queue.requeue([held])
    run = get(house)
    assert headers_of(run.entries[0][0])["x-delivery-count"] == ("l", 4)
    queue.requeue([run.first_seq_id])
    # Something that waits for the disk, which has the returns before it.
    house.declare("other")
    house.end_turn()
    if house.has_disk:
        house.crash()
        queue = house.vhost.queues["q"]
        assert queue.arguments["x-max-priority"] == ("l", 3)
        run = get(house)
        assert (text_of(run), headers_of(run.entries[0][0])["x-delivery-count"]) == ("poison", ("l", 5))
    else:
        run = get(house)
        assert (text_of(run), run.redelivered) == ("poison", True)
    house.pass_ms(1001)
    assert house.bodies() == ["fresh"]


def test_bindings_and_companions_stay(house: House) -> None:
    house.declare("q", x_message_deduplication=True, x_cache_size=10, x_hold_on_publish=True)
    house.exchange("x", "fanout")
    house.bind("x", "q", "")
    house.publish("one", exchange="x", key="", headers={"x-deduplication-header": "k"})
    house.publish("late", headers={"x-not-valid-before": house.clock.wall_ms() + 1000})
    migrate(house, x_max_priority=3)
    house.publish("two", exchange="x", key="", headers={"x-deduplication-header": "k"})
    house.publish("three", exchange="x", key="", headers={"x-deduplication-header": "l"})
    assert house.bodies() == ["one", "three"]
    house.pass_ms(1001)
    assert house.bodies() == ["late"]


def test_orders_change_with_shelved_messages_in_them(house: House) -> None:
    house.declare("q", x_sort_header="k")
    for number in (3, 1, 2):
        house.publish(f"{number}{number}", headers={"k": number}, priority=number)
    first = get(house)
    assert text_of(first) == "11"
    queue = migrate(house, unset=("x_sort_header",), x_max_priority=2)
    queue.requeue([first.first_seq_id])
    assert house.bodies() == ["33", "22", "11"]


def test_arguments_change_without_a_move_where_the_backing_stays(house: House) -> None:
    queue = house.declare("q")
    house.publish("a", "b", "c")
    number = house.get()
    queue_id = queue.queue_id
    migrate(house, x_max_length=1, auto_delete=True)
    assert (queue.queue_id, queue.auto_delete, queue.ready_count()) == (queue_id, True, 1)
    queue.requeue([number])
    assert house.bodies() == ["c"]
    if house.has_disk:
        house.crash()
        queue = house.vhost.queues["q"]
        assert (queue.arguments, queue.auto_delete) == ({"x-max-length": ("l", 1)}, True)


def test_a_policy_goes_on_after_a_migration(house: House) -> None:
    house.declare("q")
    house.vhost.policies.put(Policy("p", "q", "all", 0, {"max-length": 2}), False, lambda: None)
    fill(house)
    queue = migrate(house, x_max_priority=5, x_max_length=3)
    assert queue.effective_arguments == {"x-max-priority": ("l", 5), "x-max-length": ("l", 2)}
    assert house.bodies() == ["e5", "f1"]


def test_a_queue_is_migrated_often_and_then_no_more(house: House) -> None:
    house.declare("q")
    fill(house)
    number = house.get()
    for each in range(GENERATIONS_MAX):
        migrate(house, x_max_priority=each + 1)
    with pytest.raises(BadRequest, match="restart the broker first"):
        begin(house, x_max_priority=100)
    house.vhost.queues["q"].requeue([number])
    assert sorted(house.bodies()) == ["a0", "b5", "c0", "d9", "e5", "f1"]


def test_a_deletion_meanwhile_ends_it(house: House) -> None:
    queue = house.declare("q")
    fill(house)
    ended = begin(house, 1, x_max_priority=5)
    with pytest.raises(BadRequest, match="is being migrated already"):
        begin(house, 1, x_max_priority=6)
    house.vhost.delete_queue(queue, False, False)
    assert isinstance(ended[0], CallError)
    assert house.vhost.migrations == {}


def test_a_stop_meanwhile_leaves_the_queue_as_it_was() -> None:
    house = House(True)
    house.declare("q")
    fill(house)
    number = house.get()
    assert number == 0
    begin(house, 1, x_max_priority=5)
    house.restart()
    assert house.vhost.queues["q"].arguments == {}
    assert house.bodies() == ["a0", "b5", "c0", "d9", "e5", "f1"]


@pytest.mark.parametrize(
    ("set_to", "unset", "complaint"),
    [
        ({"durable": False}, (), "durable cannot be changed in place"),
        ({"x-backing": "postgres"}, (), "x-backing cannot be changed in place"),
        ({"x-max-priority": 5}, ("x-max-priority",), "is to be set and unset at once"),
        ({"x-max-length": 1.5}, (), "'x-max-length' must be a text, a whole number, true or false"),
        ({"auto_delete": 1}, (), "auto_delete must be true or false"),
        ({"x-max-priority": 256}, (), "max_value_exceeded"),
        ({"x-max-length": -1}, (), "value_negative"),
        ({"x-sort-header": "a", "x-group-header": "b"}, (), "both order the queue"),
        ({"x-dead-letter-routing-key": "k"}, (), "routing_key_but_no_dlx_defined"),
    ],
)
def test_what_cannot_be_is_said(house: House, set_to: dict[str, Any], unset: tuple[str, ...], complaint: str) -> None:
    queue = house.declare("q")
    with pytest.raises((BadRequest, ChannelException)) as refusal:
        plan(house.vhost, queue, set_to, unset)
    said = refusal.value.reply_text if isinstance(refusal.value, ChannelException) else str(refusal.value)
    assert complaint in said
    assert queue.arguments == {}


# --- crashes ----------------------------------------------------------------------------------------------


class Noted(ConfirmToken):
    """Remembers that it was settled."""

    def __init__(self, text: str, settled: set[str]) -> None:
        super().__init__(1)
        self._text = text
        self._settled = settled

    def settle(self) -> None:
        super().settle()
        self._settled.add(self._text)


TEXTS = [f"{number:02d}-{number % 4}" for number in range(20)]


def life(disk: SimFiles, safe: set[str], gone: set[str]) -> None:
    """A queue is migrated in slices, with publishes and acknowledgements in between, and a checkpoint."""
    house = CrashHouse(disk)
    house.declare("q")
    for text in TEXTS:
        house.publish(text, priority=int(text[-1]), confirm=Noted(text, safe))
    queue = house.vhost.queues["q"]
    numbers = [house.get() for _ in range(4)]
    queue.requeue(numbers[:1])
    numbers[0] = house.get()
    house.end_turn()
    ended = begin(house, 4, x_max_priority=3)
    step = 0
    while not ended:
        house.end_turn()
        step += 1
        if step < 4:
            text = f"new{step}-{step}"
            house.publish(text, priority=step, confirm=Noted(text, safe))
        if step == 2:
            gone.add(TEXTS[1])
            queue.ack(numbers[1:2])
        if step == 3:
            queue.requeue(numbers[2:3])
            assert house.broker.node is not None
            house.broker.node.checkpoint_now()
        house.pass_ms(1)
    house.end_turn()
    gone.add(TEXTS[3])
    queue.ack(numbers[3:4])
    house.end_turn()
    assert house.broker.node is not None
    house.broker.node.checkpoint_now()
    house.end_turn()


class CrashHouse(House):
    def __init__(self, disk: SimFiles) -> None:
        super().__init__(False)
        self.has_disk = True
        self.disk = disk
        self._start()


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_call_leaves_every_message_once_in_the_old_queue_or_in_the_new_one(
    survival: Survival, after: bool
) -> None:
    rehearsal = SimFiles(FaultPlan(survival))
    everything: set[str] = set()
    life(rehearsal, everything, set())
    assert len(everything) == len(TEXTS) + 3, "all was confirmed"
    points = rehearsal.crash_points()
    assert len(points) > 30
    found_new = found_old = 0
    for point in points:
        safe: set[str] = set()
        gone: set[str] = set()
        disk = SimFiles(FaultPlan(survival, crash_at=point, crash_after=after))
        with pytest.raises(SimCrash):
            life(disk, safe, gone)
        house = CrashHouse(disk.crash(random.Random(point).randrange))
        if "q" not in house.vhost.queues:
            assert not safe
            continue
        queue = house.vhost.queues["q"]
        house.check()
        is_new = "x-max-priority" in queue.arguments
        found_new += is_new
        found_old += not is_new
        left = house.bodies()
        assert len(left) == len(set(left)), f"twice after a crash at call {point}"
        assert safe - gone <= set(left), f"lost after a crash at call {point}: {safe - gone - set(left)}"
        ordered = sorted(left, key=lambda text: (0 if text[0] != "n" else 1, text))
        if is_new:
            ordered.sort(key=lambda text: -int(text[-1]))
        assert left == ordered, f"out of order after a crash at call {point}"
        # What the other id has left is removed.
        house.restart()
        assert house.bodies() == []
    assert found_new
    assert found_old
