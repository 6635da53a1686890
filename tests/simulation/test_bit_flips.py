"""Damage to every file of a small store: the node starts or says why not, and never serves wrong bytes.

With PENSTOCK_FLIP_STEP=1 (and `--timeout 0`) a bit of every byte is flipped; without it one byte in eleven has to do.
"""

from __future__ import annotations

import os
import random
from itertools import combinations

import pytest

from penstock.clock import ManualClock
from penstock.message import Envelope, MessageProps
from penstock.sim_files import FaultPlan, SimFiles, Survival
from tests.simulation.damage import SmallStore, worst_flips
from tests.simulation.machine import Node
from tests.simulation.publishing import Token
from tests.simulation.script import Script
from tests.simulation.simulation import small_buffers
from tests.simulation.verbs import MANY

pytestmark = pytest.mark.slow

STEP = int(os.environ.get("PENSTOCK_FLIP_STEP", "11"))
STORES = {"stopped": SmallStore(True), "killed": SmallStore(False)}
# One flipped bit costs no more messages than this: those of a batch, or of one file of the index.
MESSAGES_MAX = 6


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> SmallStore:
    return STORES[request.param]


def test_an_undamaged_store_misses_nothing(store: SmallStore) -> None:
    assert store.kept_count() > 6
    assert store.check(store.files.copy(), "no damage") == 0


def test_a_flipped_bit_costs_few_messages_and_they_are_named(store: SmallStore) -> None:
    worst = worst_flips(store, STEP)
    assert max(worst.values()) <= MESSAGES_MAX, worst


def test_a_flipped_bit_of_the_format_is_the_only_one_that_stops_a_start(store: SmallStore) -> None:
    for path in store.paths():
        files = store.files.copy()
        files.flip(path, store.size(path) // 2, 3)
        assert (store.check(files, f"a bit of {path}") < 0) == (path == "format")


def test_a_file_may_end_anywhere(store: SmallStore) -> None:
    for path in store.paths():
        for size in range(0, store.size(path), STEP if store.size(path) > 200 else max(1, STEP // 3)):
            files = store.files.copy()
            files.truncate_durable(path, size)
            missing = store.check(files, f"{path} cut to {size} bytes", path == store.tail())
            assert missing <= store.kept_count()


def test_a_block_of_zeros_is_named_where_it_costs_something(store: SmallStore) -> None:
    for path in store.paths():
        for offset in range(0, store.size(path), 512):
            files = store.files.copy()
            files.zero_block(path, offset, 512)
            missing = store.check(files, f"zeros from {offset} on in {path}", path == store.tail())
            assert missing <= store.kept_count()


def test_a_file_may_be_gone(store: SmallStore) -> None:
    for path in store.paths():
        files = store.files.copy()
        files.delete(path)
        assert store.check(files, f"{path} is gone", path == store.tail()) <= store.kept_count()


def test_two_files_may_be_swapped(store: SmallStore) -> None:
    for one, other in combinations(store.paths(), 2):
        if one.rpartition(".")[2] == other.rpartition(".")[2]:
            files = store.files.copy()
            files.swap(one, other)
            missing = store.check(files, f"{one} and {other} are swapped", store.tail() in (one, other))
            assert missing <= store.kept_count()


def test_both_checkpoints_damaged_is_a_refusal_that_says_what_to_do(store: SmallStore) -> None:
    files = store.files.copy()
    for path in store.paths():
        if path.startswith("checkpoint/"):
            files.flip(path, 50, 0)
    assert store.check(files, "both checkpoints") == -1


# --- bodies that look like something else ---------------------------------------------------------------


def hostile_bodies(store: SmallStore) -> list[bytes]:
    """Whole files and their pieces, as bodies of messages: heads, batches, slots, records."""
    bodies: list[bytes] = []
    for path, data in store.files.contents().items():
        if data and "transient" not in path:
            bodies += [data, data[:64], data[64:], data[4160:], data[-96:]]
    return [body for body in bodies if body]


def test_a_body_may_look_like_anything() -> None:
    """Even like a batch of this very journal: nothing but its place makes a batch of it."""
    store = STORES["killed"]
    script = Script()
    files = SimFiles(FaultPlan(Survival.ANYTHING))
    with small_buffers(script.profile):
        node = Node(files, ManualClock(), script.profile, random.Random(1))
        node.open()
        node.declare("a", "0001", "5e", True, 0)
        bodies = [body + b"\xce" for body in hostile_bodies(store)]
        for body in bodies:
            envelope = Envelope("", "a", b"\x10\x00\x02", True)
            node.queues["a"].messages.publish(envelope, [body], MessageProps(-1, Token(1)))
            node.store.end_turn()
            node.syncer.answer()
            # What is on disk now as a body of a later message: its own journal, with its salt.
        own = files.contents()["journal/00000001.pnj"] + b"\xce"
        node.queues["a"].messages.publish(Envelope("", "a", b"\x10\x00\x02", True), [own], None)
        node.journal.commit(True)
        for torn_at in (None, 100, 3000, 5000):
            files.plan.torn_at = torn_at
            found = _bodies_after(files.crash(random.Random(0).randrange), script)
            assert found[: len(bodies)] == bodies
            assert found[len(bodies) :] in ([], [own])
            files.is_dead = False


def _bodies_after(files: SimFiles, script: Script) -> list[bytes]:
    node = Node(files, ManualClock(), script.profile, random.Random(2))
    node.open()
    assert [line for line in node.report if "never completed" not in line] == []
    found: list[bytes] = []
    run = node.queues["a"].messages.fetch(9, MANY, True)
    while run is not None:
        found += [entry[1] for entry in run.entries]
        run = node.queues["a"].messages.fetch(9, MANY, True)
    return found
