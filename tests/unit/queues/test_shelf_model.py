"""Any sequence of calls leaves a selection where the list model says it must be, for each order and on each backing.

HYPOTHESIS_PROFILE=deep searches much longer.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from queue_house import Inbox
from shelf_house import MANY, NO_EXPIRY, ShelfHouse, bodies_of, ids_of, picky, read_key
from shelf_model import DELIVERED, MODELS, READY, Message
from tests.contract.backings import BACKINGS, Backing, OpenBacking
from tests.effort import DEEP, examples

from penstock.message import Entry, Envelope, Run
from penstock.queues.selection.fifo_order import FifoOrder
from penstock.queues.selection.group_order import SharedGroupOrder, StandardGroupOrder
from penstock.queues.selection.last_value_order import LastValueOrder
from penstock.queues.selection.order import Order
from penstock.queues.selection.sorted_order import SortedOrder

FEW, MANY_EXAMPLES, STEPS = examples(25, deep=3_000), examples(40, deep=3_000), 100 if DEEP else 50

ORDERS: dict[str, Callable[[], Order]] = {
    "fifo": FifoOrder,
    "sorted": lambda: SortedOrder(read_key),
    "last-value": lambda: LastValueOrder(read_key),
    "shared": lambda: SharedGroupOrder(read_key),
    "standard": lambda: StandardGroupOrder(read_key),
}
# Consumers: the first two take everything.
FILTERS: list[str | None] = [None, None, "x", "xy", "z"]
KEYS = st.sampled_from(["", "a", "b", "b", "7", "12"])
COLOURS = st.sampled_from("xyz")
RUNS = st.lists(st.tuples(KEYS, COLOURS, st.sampled_from([0, 3, 12])), min_size=1, max_size=8)
EXPIRIES = st.sampled_from([NO_EXPIRY, NO_EXPIRY, NO_EXPIRY, 5, 10])
WHO = st.sampled_from([0, 0, 1, 2, 3, 4, None])
PICKS = st.lists(st.integers(0, 99), min_size=1, max_size=6)
BYTES = st.sampled_from([0, 12, 30, MANY])
ACK_REQUIRED = st.sampled_from([True, True, True, False])


@dataclass(frozen=True)
class Setting:
    order: str
    backing: str = "volatile"
    expire_anywhere: bool = False
    looks_max: int = MANY
    # With few, nobody knows what lies behind: then the order is that of what is on the shelf.
    messages_max: int = MANY


some_ready = precondition(lambda self: self.model.in_state(READY))
some_delivered = precondition(lambda self: self.model.in_state(DELIVERED))
many_ready = precondition(lambda self: len(self.model.in_state(READY)) >= 15)


class ShelfMachine(RuleBasedStateMachine):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-shelf-")
        self.setting = setting
        spec: Backing = next(spec for spec in BACKINGS if spec.name == setting.backing)
        self.open = OpenBacking(spec, Path(self.folder.name), persistent=True)
        self.house = ShelfHouse(
            ORDERS[setting.order](),
            self.open.queue,
            expire_anywhere=setting.expire_anywhere,
            has_priorities=setting.backing.startswith("priority"),
            looks_max=setting.looks_max,
            messages_max=setting.messages_max,
        )
        self.selection = self.house.selection
        self.host = self.house.host
        self.model = MODELS[setting.order]()
        self.consumers = [self.new_consumer(index) for index in range(len(FILTERS))]
        self.generation = 0
        self.names = [f"consumer {index}" for index in range(len(FILTERS))]
        self.published = 0

    def new_consumer(self, index: int) -> Inbox:
        colours = FILTERS[index]
        return Inbox() if colours is None else picky(colours)

    def teardown(self) -> None:
        self.drain_everything()
        self.folder.cleanup()

    # --- publishing -----------------------------------------------------------------------------------

    @rule(run=RUNS, expires_in_ms=EXPIRIES)
    def publish(self, run: list[tuple[str, str, int]], expires_in_ms: int) -> None:
        expiry_ms = NO_EXPIRY if expires_in_ms == NO_EXPIRY else self.host.now_ms + expires_in_ms
        for key, colour, padding in run:
            self.published += 1
            body = b"%d " % self.published + b"." * padding
            text = f"{key}:{colour}"
            priority = {"x": 0, "y": 1, "z": 3}[colour]
            seq_id = self.house.publish_one(text, body, expiry_ms, priority)
            found = read_key(Envelope("", text, b""))
            self.model.publish(Message(seq_id, found, colour, body, expiry_ms))
        self.follow_burials()

    # --- handing out ----------------------------------------------------------------------------------

    @some_ready
    @rule(who=WHO, count_max=st.integers(1, 6), bytes_max=BYTES, ack_required=ACK_REQUIRED)
    def fetch(self, who: int | None, count_max: int, bytes_max: int, ack_required: bool) -> None:
        with self.nobody_sleeps_on(who):
            self.fetch_once(who, count_max, bytes_max, ack_required)

    def fetch_once(self, who: int | None, count_max: int, bytes_max: int, ack_required: bool) -> list[int]:
        name = None if who is None else self.names[who]
        colours = None if who is None else FILTERS[who]
        consumer = None if who is None else self.consumers[who]
        first = self.model.expected(name, colours, self.host.now_ms)
        if consumer is not None and first is not None and self.is_exact():
            assert self.selection.has_for(consumer), f"there is {first}"
        run = self.selection.fetch(consumer, count_max, bytes_max, ack_required)
        patience = 200
        while run is None and consumer is not None and self.selection.has_for(consumer):
            patience -= 1
            assert patience, "it gives up for ever"
            run = self.selection.fetch(consumer, count_max, bytes_max, ack_required)
        self.follow_burials()
        if consumer is None and self.setting.looks_max < MANY and run is None:
            # Nobody is asked again for basic.get.
            return []
        self.check_run(run, name, colours, count_max, bytes_max, ack_required)
        if consumer is not None and run is None:
            assert not self.selection.has_for(consumer)
        return ids_of(run)

    def is_exact(self) -> bool:
        """Whether the whole queue has a place on the shelf."""
        return self.setting.messages_max == MANY

    def check_run(
        self, run: Run | None, name: str | None, colours: str | None, count_max: int, bytes_max: int, ack_required: bool
    ) -> None:
        if run is None:
            if self.is_exact():
                assert self.model.expected(name, colours, self.host.now_ms) is None
            return
        bodies = bodies_of(run)
        assert 1 <= len(bodies) <= count_max
        assert len(bodies) == 1 or sum(map(len, bodies)) <= bytes_max
        for seq_id, body in zip(ids_of(run), bodies, strict=True):
            candidates = self.model.candidates(name, colours, self.host.now_ms)
            message = self.model.messages[seq_id]
            assert message in candidates, "the consumer may have it"
            if self.is_exact():
                assert message is min(candidates, key=self.model.rank), "each is the next one"
            assert message.body == body
            assert message.redelivered == run.redelivered, "a message keeps its flag"
            # Within one run nothing is settled: what binds a group binds it for all of the run.
            self.model.deliver(name, message, True)
        if not ack_required:
            for seq_id in ids_of(run):
                self.model.forget(seq_id)

    # --- settling -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def nobody_sleeps_on(self, who: int | None = None) -> Iterator[None]:
        """Whoever knew that there was nothing for it, and can have something now, was told; `who` needs not be."""
        in_vain = [
            consumer
            for index, consumer in enumerate(self.consumers)
            if index != who and not self.selection.has_for(consumer)
        ]
        available = self.host.available
        yield
        if any(self.selection.has_for(consumer) for consumer in in_vain):
            assert self.host.available > available, "messages became available, and nobody was told"

    def picked(self, picks: list[int]) -> list[int]:
        delivered = sorted(self.model.delivered_ids())
        return list(dict.fromkeys([delivered[pick % len(delivered)] for pick in picks]))

    @some_delivered
    @rule(picks=PICKS)
    def ack(self, picks: list[int]) -> None:
        seq_ids = self.picked(picks)
        with self.nobody_sleeps_on():
            assert self.open.queue.ack(seq_ids) == len(seq_ids)
            self.selection.settled([*seq_ids, 999_999])
        for seq_id in seq_ids:
            self.model.forget(seq_id)

    @some_delivered
    @rule(picks=PICKS)
    def requeue(self, picks: list[int]) -> None:
        seq_ids = self.picked(picks)
        unwanted = self.selection.returned([*seq_ids, 999_999])
        expected = [seq_id for seq_id in seq_ids if not self.model.give_back(self.model.messages[seq_id])]
        assert unwanted == expected
        assert self.open.queue.ack(unwanted) == len(unwanted)

    @rule(who=st.integers(0, len(FILTERS) - 1), requeues=st.booleans())
    def consumer_leaves(self, who: int, requeues: bool) -> None:
        name = self.names[who]
        with self.nobody_sleeps_on(who):
            self.selection.consumer_gone(self.consumers[who])
            self.selection.consumer_gone(self.consumers[who])
        self.model.consumer_gone(name)
        self.generation += 1
        self.names[who] = f"consumer {who}, {self.generation}"
        self.consumers[who] = self.new_consumer(who)
        if requeues:
            held = [message.seq_id for message in self.model.in_state(DELIVERED) if message.owner == name]
            unwanted = self.selection.returned(held)
            assert unwanted == [seq_id for seq_id in held if not self.model.give_back(self.model.messages[seq_id])]
            self.open.queue.ack(unwanted)

    # --- by number ------------------------------------------------------------------------------------

    @some_ready
    @rule(picks=PICKS, comes_back=st.booleans())
    def take(self, picks: list[int], comes_back: bool) -> None:
        known = sorted(self.model.messages)
        wanted = list(dict.fromkeys([known[pick % len(known)] for pick in picks]))
        ready = self.model.ready_ids()
        with self.nobody_sleeps_on():
            taken = self.selection.take([*wanted, 999_999])
        if self.is_exact():
            assert taken == [seq_id for seq_id in wanted if seq_id in ready]
        assert set(taken) <= ready
        if comes_back and self.setting.order != "last-value":
            # As if they had been delivered before there was a selection.
            assert self.selection.returned(taken) == []
            for seq_id in taken:
                self.model.messages[seq_id].redelivered = True
        else:
            assert self.open.queue.ack(taken) == len(taken)
            for seq_id in taken:
                self.model.forget(seq_id)

    @rule(ms=st.sampled_from([1, 5, 20]))
    def expire(self, ms: int) -> None:
        self.host.now_ms += ms
        now_ms = self.host.now_ms
        shelved = sorted(self.selection.shelved_ids())
        due: list[int] = []
        for seq_id in shelved:
            if self.model.messages[seq_id].has_expired(now_ms):
                due.append(seq_id)
            elif not self.setting.expire_anywhere:
                break
        if due:
            assert 0 <= self.selection.next_expiry_ms() <= now_ms
        before = len(self.host.handed_over)
        with self.nobody_sleeps_on():
            for _ in range(len(due) // self.setting.looks_max + 1):
                self.selection.expire(now_ms)
        assert sorted(self.host.handed_over[before:]) == due
        self.follow_burials()
        next_ms = self.selection.next_expiry_ms()
        assert next_ms == -1 or next_ms > now_ms

    @many_ready
    @rule()
    def purge(self) -> None:
        shelved = self.selection.ready_count()
        with self.nobody_sleeps_on():
            assert self.selection.purge() == shelved
        self.open.queue.purge()
        for seq_id in self.model.ready_ids():
            self.model.forget(seq_id)

    @rule()
    def let_the_backing_work(self) -> None:
        self.open.settle()

    def follow_burials(self) -> None:
        for seq_id in self.host.handed_over:
            message = self.model.messages[seq_id]
            if message.state == READY:
                assert message.has_expired(self.host.now_ms), "only what has expired is handed_over"
                self.model.forget(seq_id)
        assert len(set(self.host.handed_over)) == len(self.host.handed_over), "nothing is handed_over twice"

    # --- always ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.selection.check_invariants()
        ready: list[int] = []
        pending: list[int] = []

        def visit(seq_id: int, entry: Entry, is_pending: bool) -> bool:
            (pending if is_pending else ready).append(seq_id)
            return True

        self.open.queue.fold(visit)
        shelved = self.selection.shelved_ids()
        assert sorted([*ready, *shelved]) == sorted(self.model.ready_ids())
        assert sorted(pending) == sorted([*shelved, *self.model.delivered_ids()])
        assert self.selection.ready_count() == len(shelved)
        assert self.selection.ready_bytes() == sum(len(self.model.messages[seq_id].body) for seq_id in shelved)
        assert shelved == sorted(shelved, key=lambda seq_id: self.model.rank(self.model.messages[seq_id]))

    def drain_everything(self) -> None:
        """Everything that is left can be had, in order."""
        for message in self.model.in_state(DELIVERED):
            self.open.queue.ack([message.seq_id])
            self.selection.settled([message.seq_id])
            self.model.forget(message.seq_id)
        for who in range(1, len(FILTERS)):
            self.selection.consumer_gone(self.consumers[who])
            self.model.consumer_gone(self.names[who])
        while seq_ids := self.fetch_once(0, 6, MANY, True):
            self.nothing_is_lost_or_doubled()
            self.open.queue.ack(seq_ids)
            self.selection.settled(seq_ids)
            for seq_id in seq_ids:
                self.model.forget(seq_id)
        left = self.model.in_state(READY)
        assert not left, f"nobody gets {left}"


SETTINGS = [
    *[Setting(order) for order in ORDERS],
    Setting("fifo", "tiny-variable"),
    Setting("shared", messages_max=3),
]
MORE_SETTINGS = [
    *[Setting(order) for order in ORDERS],
    *[Setting(order, "tiny-variable") for order in ORDERS],
    *[Setting(order, looks_max=2) for order in ORDERS],
    *[Setting(order, expire_anywhere=True) for order in ORDERS],
    # The model of last values would have to know which messages are still hidden behind the shelf.
    *[Setting(order, messages_max=3) for order in ORDERS if order != "last-value"],
    Setting("fifo", "priority-of-volatile"),
    Setting("shared", "priority-of-volatile"),
    Setting("sorted", "priority-of-variable", expire_anywhere=True),
]


def named(setting: Setting) -> str:
    return "-".join(map(str, vars(setting).values()))


@pytest.mark.parametrize("setting", SETTINGS, ids=named)
def test_a_selection_does_what_the_model_says(setting: Setting) -> None:
    check_with_model(setting, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("setting", MORE_SETTINGS, ids=named)
def test_it_does_so_on_all_backings_and_with_tight_limits(setting: Setting) -> None:
    check_with_model(setting, MANY_EXAMPLES)


def check_with_model(setting: Setting, examples: int) -> None:
    def machine() -> ShelfMachine:
        return ShelfMachine(setting)

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
