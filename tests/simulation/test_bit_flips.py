"""Damage to every file of a small store: the node starts or says why not, and never serves wrong bytes.

With PENSTOCK_FLIP_STEP=1 (and `--timeout 0`) a bit of every byte is flipped; without it one byte in eleven has to do.
"""

from __future__ import annotations

import os
import random
from functools import cache
from itertools import combinations, product

import pytest

from penstock.clock import ManualClock
from penstock.message import Envelope, Incoming, MessageProps
from tests.disk.sim_files import FaultPlan, SimFiles, Survival
from tests.effort import step
from tests.simulation.damage import SmallStore, worst_flips
from tests.simulation.machine import Node
from tests.simulation.publishing import Token
from tests.simulation.script import SEED, Script
from tests.simulation.simulation import small_buffers
from tests.simulation.verbs import MANY

pytestmark = pytest.mark.slow

STEP = int(os.environ.get("PENSTOCK_FLIP_STEP", step(11)))
# What takes a blow here and there, and not one at every byte, is tried with other histories as well.
SEEDS = (SEED, 133, 164, 210)
FIRST_SEGMENT = "journal/00000001.pnj"
# One flipped bit costs no more messages than this: those of a batch, or of one file of the index.
MESSAGES_MAX = 6


@cache
def small_store(seed: int, how: str) -> SmallStore:
    return SmallStore(how == "stopped", seed)


@pytest.fixture(params=["stopped", "killed"])
def store(request: pytest.FixtureRequest) -> SmallStore:
    return small_store(SEED, request.param)


@pytest.fixture(params=product(SEEDS, ["stopped", "killed"]), ids="{0[1]}-{0[0]}".format)
def any_store(request: pytest.FixtureRequest) -> SmallStore:
    return small_store(*request.param)


def test_an_undamaged_store_misses_nothing(store: SmallStore) -> None:
    assert store.kept_count() > 6
    assert store.check(store.files.copy(), "no damage") == 0


def test_a_flipped_bit_costs_few_messages_and_they_are_named(store: SmallStore) -> None:
    worst = worst_flips(store, STEP)
    assert max(worst.values()) <= MESSAGES_MAX, worst


def test_a_flipped_bit_of_the_format_is_the_only_one_that_stops_a_start(any_store: SmallStore) -> None:
    for path in any_store.paths():
        files = any_store.files.copy()
        files.flip(path, any_store.size(path) // 2, 3)
        assert (any_store.check(files, f"a bit of {path}") < 0) == (path == "format")


def test_a_file_may_end_anywhere(store: SmallStore) -> None:
    for path in store.paths():
        for size in range(0, store.size(path), STEP if store.size(path) > 200 else max(1, STEP // 3)):
            files = store.files.copy()
            files.truncate_durable(path, size)
            missing = store.check(files, f"{path} cut to {size} bytes", path == store.tail())
            assert missing <= store.kept_count()


def test_a_block_of_zeros_is_named_where_it_costs_something(any_store: SmallStore) -> None:
    for path in any_store.paths():
        for offset in range(0, any_store.size(path), 512):
            files = any_store.files.copy()
            files.zero_block(path, offset, 512)
            missing = any_store.check(files, f"zeros from {offset} on in {path}", path == any_store.tail())
            assert missing <= any_store.kept_count()


def test_a_file_may_be_gone(any_store: SmallStore) -> None:
    for path in any_store.paths():
        files = any_store.files.copy()
        files.delete(path)
        assert any_store.check(files, f"{path} is gone", path == any_store.tail()) <= any_store.kept_count()


def test_two_files_may_be_swapped(any_store: SmallStore) -> None:
    for one, other in combinations(any_store.paths(), 2):
        if one.rpartition(".")[2] == other.rpartition(".")[2]:
            files = any_store.files.copy()
            files.swap(one, other)
            missing = any_store.check(files, f"{one} and {other} are swapped", any_store.tail() in (one, other))
            assert missing <= any_store.kept_count()


def test_both_checkpoints_damaged_is_a_refusal_that_says_what_to_do(any_store: SmallStore) -> None:
    files = any_store.files.copy()
    for path in any_store.paths():
        if path.startswith("checkpoint/"):
            files.flip(path, 50, 0)
        elif path == FIRST_SEGMENT:
            # A journal that has its beginning needs no checkpoint.
            files.delete(path)
    assert any_store.check(files, "both checkpoints") == -1


def test_a_segment_may_end_anywhere_whatever_the_history(any_store: SmallStore) -> None:
    """The segment in which replay begins is one of them, and it may end in front of that place."""
    for path in any_store.paths():
        for size in range(0, any_store.size(path) if path.startswith("journal/") else 0, 16 * STEP):
            files = any_store.files.copy()
            files.truncate_durable(path, size)
            any_store.check(files, f"{path} cut to {size} bytes", path == any_store.tail())


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
    store = small_store(SEED, "killed")
    script = Script()
    files = SimFiles(FaultPlan(Survival.ANYTHING))
    with small_buffers(script.profile):
        node = Node(files, ManualClock(), script.profile, random.Random(1))
        node.open()
        node.declare("a", "0001", "5e", True, 0)
        bodies = [body + b"\xce" for body in hostile_bodies(store)]
        for body in bodies:
            envelope = Envelope("", "a", b"\x10\x00\x02", True)
            node.queues["a"].messages.publish(Incoming(envelope, [body]), MessageProps(-1, Token(1)))
            node.store.end_turn()
            node.syncer.answer()
            # What is on disk now as a body of a later message: its own journal, with its salt.
        own = files.contents()["journal/00000001.pnj"] + b"\xce"
        node.queues["a"].messages.publish(Incoming(Envelope("", "a", b"\x10\x00\x02", True), [own]), None)
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
