"""Every call that a verb makes to the disk fails once, or from then on: no message gets out of reach.

A queue with tiny limits holds messages of all kinds in all zones, and as many are pending. Each verb is tried once
without an error, to see which calls it makes; then again with each of these calls failing. Afterwards the disk works
again, and everything must be there: in the queue, by fetching, and after a restart.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from tests.contract.noted_token import NotedToken
from tests.contract.variable_house import MANY, VariableHouse, plain_options
from tests.disk.sim_files import CHANGING_CALLS, SimFiles
from tests.effort import some

from penstock.backing.backing_queue import TIMEOUT_NONE
from penstock.backing.priority.priority import PriorityBackingQueues
from penstock.backing.variable.paging import PagingOptions
from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.clock import ManualClock
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, unlike
from penstock.store.queue import queue_index, queue_store

LARGE = 80
BOTH = (False, True)
# Pending: among them some that stand at both sides of the border between two files.
HELD = (2, 6, 7, 8, 9, 13, 16, 18, 19, 22, 24)
# Durable or not; what is pending is on disk only, as far as possible, or in RAM.
Kind = tuple[bool, bool]
KINDS: list[Kind] = [(durable, evicted) for durable in BOTH for evicted in BOTH]
# (seq_id, payload, is pending) of each message.
Contents = list[tuple[int, bytes, bool]]


class Scene:
    """A queue in the middle of its life: messages in every zone, and pending ones whose places are between them."""

    def __init__(self, kind: Kind) -> None:
        durable, evicted = kind
        paging = PagingOptions(cap=MANY, slack=MANY, bytes_max=MANY, io_batch=1, slice_count=MANY, read_ahead_count=3)
        self.house = VariableHouse(plain_options(slots=4, embed_below=60, handles_max=1), paging, durable)
        self.queue = self.house.queue
        self.tokens: list[ConfirmToken] = []
        self._number = 0
        self.publish(True, 0, 5)
        self.publish(False, 0, 7)
        self.publish(True, LARGE, 3)
        self.publish(False, LARGE, 3)
        self.house.commit()
        # Of these the persistent ones are in the journal's open batch, and nowhere else.
        self.publish(True, 0, 2)
        self.publish(False, 0, 4)
        self.publish(True, 0, 1)
        self.publish(False, 0, 1)
        seq_ids = self.house.fetch(26)
        self.queue.requeue([seq_id for seq_id in seq_ids if seq_id not in HELD])
        self.house.push_alphas(MANY)
        self.house.push_betas(MANY)
        self.publish(False, 0, 6)
        self.house.push_alphas(4)
        self.house.fetch(1)
        assert all(self.house.zones().values()), "something is in each zone"
        if evicted:
            self.queue.pending.evict(MANY)
        # From now on too much is in RAM.
        self.queue.paging.bytes_target = 300

    def bodies(self, persistent: bool, sizes: Sequence[int]) -> list[bytes]:
        """Each different from all others; the first letter says whether it is to last."""
        found: list[bytes] = []
        for size in sizes:
            self._number += 1
            found.append((b"%s%d." % (b"p" if persistent else b"t", self._number)).ljust(size, b"o") + b"\xce")
        return found

    def publish(self, persistent: bool, size: int, count: int) -> None:
        self.queue.publish(Incoming(self.house.envelope(persistent), self.bodies(persistent, [size] * count)), None)

    def entry(self, persistent: bool, size: int, expiry_ms: int = -1) -> Entry:
        props = None if expiry_ms < 0 else MessageProps(expiry_ms)
        return (self.house.envelope(persistent), self.bodies(persistent, [size])[0], props)

    def token(self) -> ConfirmToken:
        self.tokens.append(NotedToken())
        return self.tokens[-1]

    def contents(self) -> Contents:
        return self.house.folded()

    # --- the end ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Everything can be fetched, in order, and acked; every token comes once."""
        queue = self.queue
        expected = [one for one in self.contents() if not one[2]]
        taken = [(seq_id, payload, False) for seq_id, payload, _ in self.house.fetched(len(queue))]
        assert taken == expected
        assert queue.is_empty()
        pending = queue.pending.seq_ids()
        assert queue.ack(pending) == len(pending)
        assert queue.depth() == 0
        assert (queue.ready_bytes(), queue.pending_bytes(), queue.ram_bytes()) == (0, 0, 0)
        self.house.check()
        if self.house.node.failed is None:
            assert self.house.commit() == self.tokens

    def restart(self, kill: bool) -> None:
        """What is persistent is there after a restart, and nothing else."""
        expected = [(seq_id, payload) for seq_id, payload, _ in self.contents() if payload.startswith(b"p")]
        self.house.commit()
        if kill:
            self.house.checkpoint()
            self.house.kill()
        else:
            self.house.restart()
        self.queue = self.house.queue
        assert [(seq_id, payload) for seq_id, payload, _ in self.contents()] == expected
        assert self.queue.lost_count == 0
        self.house.check()


# --- the verbs ----------------------------------------------------------------------------------------

Verb = Callable[[Scene], object]


def publish(scene: Scene) -> None:
    bodies = scene.bodies(True, (0, LARGE, 5, LARGE, LARGE))
    scene.queue.publish(Incoming(scene.house.envelope(True), bodies), MessageProps(-1, scene.token()), True)


def publish_transient(scene: Scene) -> None:
    bodies = scene.bodies(False, (0, LARGE, 5, LARGE, LARGE))
    scene.queue.publish(Incoming(scene.house.envelope(False), bodies), MessageProps(-1, scene.token()))


def publish_entries(scene: Scene) -> None:
    entries = [scene.entry(True, 0), scene.entry(False, 0), scene.entry(True, LARGE), scene.entry(False, LARGE, 50)]
    scene.queue.publish(unlike(entries * 2), MessageProps(confirm=scene.token()))


def requeue(scene: Scene) -> None:
    pending = scene.queue.pending.seq_ids()
    assert scene.queue.requeue(pending) == len(pending)


def requeue_one_by_one(scene: Scene) -> None:
    for seq_id in scene.queue.pending.seq_ids()[::-1]:
        assert scene.queue.requeue([seq_id]) == 1


def ack(scene: Scene) -> None:
    pending = scene.queue.pending.seq_ids()
    assert scene.queue.ack(pending) == len(pending)


def fetch(scene: Scene) -> None:
    scene.queue.fetch(3, MANY, True)


def fetch_at(scene: Scene) -> None:
    scene.queue.fetch_at(range(scene.queue.tail.next_seq_id - 1, -1, -2))


def fetch_all_at(scene: Scene) -> None:
    ready = len(scene.queue)
    assert len(scene.queue.fetch_at(range(scene.queue.tail.next_seq_id))) == ready


def fetch_without_ack(scene: Scene) -> None:
    scene.queue.fetch(3, MANY, False)


def consume(scene: Scene) -> None:
    ack(scene)
    while scene.queue.fetch(3, MANY, False) is not None:
        scene.house.check()


def drop_all(scene: Scene) -> None:
    """Bodies are not read; the index is."""
    while scene.queue.drop(False) is not None:
        scene.house.check()


def dropwhile(scene: Scene) -> None:
    scene.queue.dropwhile(lambda props: True)


def fetchwhile(scene: Scene) -> None:
    scene.queue.fetchwhile(lambda props: True, lambda seq_id, entry: None)


def purge(scene: Scene) -> None:
    scene.queue.purge()


def purge_all(scene: Scene) -> None:
    scene.queue.ack(scene.queue.pending.seq_ids())
    scene.queue.purge()


def look(scene: Scene) -> None:
    seq_id = 0
    while (run := scene.queue.browse(seq_id, 3, MANY)) is not None:
        seq_id = run.first_seq_id + len(run.entries)
    scene.queue.ackfold(lambda seq_id, entry: None, scene.queue.pending.seq_ids())
    scene.contents()


def page(scene: Scene) -> None:
    scene.queue.set_queue_mode(True)
    scene.queue.set_ram_bytes_target(0)
    scene.queue.set_ram_duration_target(0.0)
    scene.queue.timeout()


def delete(scene: Scene) -> None:
    scene.queue.delete_and_terminate()
    scene.house.node.journal.commit(urgent=True)


PUBLISHING: list[Verb] = [publish, publish_transient, publish_entries]
QUIET: list[Verb] = [*PUBLISHING, requeue, requeue_one_by_one, ack, page, delete]
READING: list[Verb] = [
    fetch,
    fetch_at,
    fetch_all_at,
    fetch_without_ack,
    consume,
    drop_all,
    dropwhile,
    fetchwhile,
    purge,
    purge_all,
    look,
]
# After an error everything is as before.
ALL_OR_NOTHING: list[Verb] = [fetch, fetch_at, fetch_all_at, fetch_without_ack, purge, look]


def scene_for(verb: Verb, kind: Kind) -> Scene:
    scene = Scene(kind)
    if verb in (fetch, fetch_without_ack):
        # What is next is on disk.
        scene.house.fetch(1)
    return scene


# --- the errors ---------------------------------------------------------------------------------------

Check = Callable[[Scene, Contents, bool], None]


def errors_of(call: str) -> Sequence[tuple[int, bool]]:
    """How a call may fail, and whether from then on."""
    if call in CHANGING_CALLS - {"open"}:
        return ((errno.EIO, False), (errno.ENOSPC, True))
    # An EIO of a read sets messages aside: tests/contract/test_variable_unreadable.py.
    return ((errno.EMFILE, False), (errno.EMFILE, True))


def check_each_failure(verb: Verb, kind: Kind, check: Check) -> None:
    """Make the verb fail in every way; check the scene, with what was there before, and whether an error came out."""
    scene = scene_for(verb, kind)
    first = len(scene.house.disk.calls)
    verb(scene)
    calls = scene.house.disk.calls[first:]
    for index, (name, path) in some(list(enumerate(calls))):
        nth = [call for call, _ in calls[: index + 1]].count(name)
        for error, forever in errors_of(name):
            scene = scene_for(verb, kind)
            before = scene.contents()
            scene.house.disk.plan.fail(error, name, nth=nth, forever=forever)
            try:
                raised = fails(verb, scene)
                scene.house.disk.plan.heal()
                scene.queue.check_invariants()
                check(scene, before, raised)
            except Exception as failed:
                failed.add_note(f"{errno.errorcode[error]} at {name} of {path}, number {nth}, forever: {forever}")
                raise


def fails(verb: Verb, scene: Scene) -> bool:
    try:
        verb(scene)
    except OSError:
        return True
    return False


def changes(before: Contents, after: Contents) -> dict[int, tuple[str, str]]:
    """What became of each message: (state before, state after)."""
    old = {seq_id: "pending" if pending else "ready" for seq_id, _, pending in before}
    new = {seq_id: "pending" if pending else "ready" for seq_id, _, pending in after}
    return {seq_id: (old.get(seq_id, "gone"), new.get(seq_id, "gone")) for seq_id in {**old, **new}}


def changes_without_errors(verb: Verb, kind: Kind) -> dict[int, tuple[str, str]]:
    scene = scene_for(verb, kind)
    before = scene.contents()
    verb(scene)
    return changes(before, scene.contents())


@pytest.fixture(autouse=True)
def no_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be written is written at once."""
    monkeypatch.setattr(queue_index, "BUFFER_BYTES_MAX", 1)
    monkeypatch.setattr(queue_store, "BUFFER_BYTES_MAX", 1)


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_index, "BUFFER_BYTES_MAX", 500)
    monkeypatch.setattr(queue_store, "BUFFER_BYTES_MAX", 500)


each_kind = pytest.mark.parametrize("kind", KINDS, ids=["transient", "transient-evicted", "durable", "durable-evicted"])


@each_kind
@pytest.mark.parametrize("verb", QUIET)
def test_a_verb_that_need_not_read_does_its_work_and_raises_nothing(verb: Verb, kind: Kind) -> None:
    expected = changes_without_errors(verb, kind)

    def check(scene: Scene, before: Contents, raised: bool) -> None:
        assert not raised
        assert changes(before, scene.contents()) == expected
        if verb is not delete:
            scene.drain()

    check_each_failure(verb, kind, check)


@pytest.mark.parametrize("verb", [publish_entries, requeue, page])
def test_what_waits_in_buffers_when_an_error_comes_is_not_lost(verb: Verb, small_buffers: None) -> None:
    for kind in KINDS:
        check_each_failure(verb, kind, lambda scene, before, raised: scene.drain())


@each_kind
@pytest.mark.parametrize("verb", READING)
def test_a_verb_that_cannot_read_leaves_what_it_has_not_reached_as_it_was(verb: Verb, kind: Kind) -> None:
    expected = changes_without_errors(verb, kind)
    raised_count = 0

    def check(scene: Scene, before: Contents, raised: bool) -> None:
        nonlocal raised_count
        raised_count += raised
        after = scene.contents()
        found = changes(before, after)
        if not raised:
            assert found == expected
        elif verb in ALL_OR_NOTHING:
            assert after == before
        else:
            assert found.keys() == {seq_id for seq_id, _, _ in before}
            assert all(new == old or (old, new) == expected[seq_id] for seq_id, (old, new) in found.items())
        scene.drain()

    check_each_failure(verb, kind, check)
    assert raised_count


@pytest.mark.parametrize("kill", BOTH, ids=["clean", "kill"])
@pytest.mark.parametrize("verb", [publish_entries, requeue, page, consume, dropwhile])
def test_what_is_persistent_is_there_after_a_restart(verb: Verb, kill: bool) -> None:
    for evicted in BOTH:
        check_each_failure(verb, (True, evicted), lambda scene, before, raised: scene.restart(kill))


# --- strays -------------------------------------------------------------------------------------------


def scene_with_strays(kind: Kind) -> Scene:
    """Everything that was pending is ready, and some of it has no place."""
    scene = Scene(kind)
    plan = scene.house.disk.plan
    for call in ("open", "pwrite"):
        plan.fail(errno.EMFILE if call == "open" else errno.ENOSPC, call, forever=True)
    requeue(scene)
    plan.heal()
    assert scene.queue.pending.count == 0
    assert stray_ids(scene)
    return scene


def stray_ids(scene: Scene) -> list[int]:
    return scene.queue.zones.strays.seq_ids()


@each_kind
@pytest.mark.parametrize("verb", [*READING, publish, requeue, page, delete])
def test_strays_are_messages_like_others(verb: Verb, kind: Kind) -> None:
    plain = Scene(kind)
    requeue(plain)
    scene = scene_with_strays(kind)
    assert scene.contents() == plain.contents()
    for one in (plain, scene):
        verb(one)
    assert scene.contents() == plain.contents()
    numbers = [(len(one.queue), one.queue.ready_bytes(), one.queue.pending_bytes()) for one in (plain, scene)]
    assert numbers[0] == numbers[1]
    scene.house.check()
    if verb is not delete:
        scene.drain()


def test_what_is_in_ram_can_be_fetched_while_nothing_can_be_written() -> None:
    scene = Scene((False, False))
    scene.house.disk.plan.fail(errno.ENOSPC, "pwrite", forever=True)
    requeue(scene)
    expected = [(seq_id, payload) for seq_id, payload, _ in scene.contents()]
    assert [(seq_id, payload) for seq_id, payload, _ in scene.house.fetched(len(scene.queue))] == expected


def test_strays_go_where_they_belong_when_the_disk_works_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = scene_with_strays((True, False))
    before = scene.contents()
    assert stray_ids(scene)
    assert caplog.text.count("have to wait for the disk") == 1
    assert scene.queue.needs_timeout() != TIMEOUT_NONE
    scene.queue.timeout()
    assert not stray_ids(scene)
    assert scene.contents() == before
    scene.drain()


def test_strays_survive_a_restart_and_leave_old_journal_segments() -> None:
    scene = scene_with_strays((True, False))
    stored = scene.house.stored()
    scene.house.commit()
    scene.house.node.journal.roll()
    while stored.move_home(scene.house.node.journal.segments.numbers()[0], 3):
        scene.house.check()
    assert stored.journal_segment_needed() > scene.house.node.journal.segments.numbers()[0]
    scene.restart(True)


# --- opening ------------------------------------------------------------------------------------------


def test_a_queue_that_cannot_have_its_shared_store_is_not_opened() -> None:
    scene = Scene((True, False))
    other = VariableBackingQueues(scene.house.node, "6f", scene.house.clock)
    scene.house.disk.plan.fail(errno.EMFILE, "list_dir")
    with pytest.raises(OSError, match="EMFILE"):
        other.open("0a", True, None, lambda kind, work: None)
    queue = other.open("0a", True, None, lambda kind, work: None)
    scene.house.disk.plan.fail(errno.EMFILE, forever=True)
    queue.publish(Incoming(scene.house.envelope(True), scene.bodies(True, (0, LARGE))), None)
    assert len(queue) == 2


def test_messages_of_several_levels_are_published_all_or_none() -> None:
    node = Scene((True, False)).house.node
    plain = VariableBackingQueues(node, "6f", ManualClock())
    queue = PriorityBackingQueues(plain, 2, lambda queue_id: False).open("0a", True, None, lambda kind, work: None)
    entries: list[Entry] = [
        (Envelope("", "key", b"\x00\x00", True, priority), b"o" * size + b"\xce", None)
        for priority, size in ((0, 1), (1, LARGE), (2, 1), (1, 1))
    ]
    disk = node.files
    assert isinstance(disk, SimFiles)
    token = NotedToken()
    disk.plan.fail(errno.EMFILE, "list_dir")
    with pytest.raises(OSError, match="EMFILE"):
        queue.publish(unlike(entries), MessageProps(confirm=token))
    assert queue.depth() == 0
    queue.publish(unlike(entries), MessageProps(confirm=token))
    assert len(queue) == 4
    node.journal.commit(urgent=True)
    queue.check_invariants()


# --- a disk that comes and goes -----------------------------------------------------------------------

FAULTS = (
    (errno.EMFILE, "open", "vhosts/"),
    (errno.EMFILE, "", "vhosts/"),
    (errno.ENOSPC, "pwrite", "vhosts/5e/queues/"),
    (errno.EIO, "pwrite", "vhosts/"),
)


def step(scene: Scene, rng: random.Random, model: dict[int, bool]) -> None:
    """Something, while the disk may fail; the model says of each message whether it is pending."""
    queue = scene.queue
    chosen = [seq_id for seq_id, pending in model.items() if pending and rng.random() < 0.5]
    ways = ("publish", "requeue", "requeue", "ack", "fetch", "fetch", "fetch", "fetch_at", "drop", "page", "timeout")
    way = rng.choice(ways)
    if way == "publish":
        first = queue.tail.next_seq_id
        scene.publish(rng.random() < 0.5, rng.choice((0, LARGE)), rng.randint(1, 5))
        model.update(dict.fromkeys(range(first, queue.tail.next_seq_id), False))
    elif way == "requeue":
        assert queue.requeue(chosen) == len(chosen)
        model.update(dict.fromkeys(chosen, False))
    elif way == "ack":
        assert queue.ack(chosen[:3]) == len(chosen[:3])
        for seq_id in chosen[:3]:
            del model[seq_id]
    elif way == "fetch":
        run = queue.fetch(rng.randint(1, 6), MANY, True)
        if run is not None:
            model.update(dict.fromkeys(range(run.first_seq_id, run.first_seq_id + len(run.entries)), True))
    elif way == "fetch_at":
        wanted = [seq_id for seq_id, pending in model.items() if not pending and rng.random() < 0.3]
        rng.shuffle(wanted)
        assert [seq_id for seq_id, _ in queue.fetch_at(wanted)] == wanted
        model.update(dict.fromkeys(wanted, True))
    elif way == "drop":
        dropped = queue.drop(False)
        if dropped is not None:
            del model[dropped]
    elif way == "page":
        queue.set_ram_bytes_target(rng.choice((0, 200, 200, 600, 5000)))
    else:
        queue.timeout()


@pytest.mark.parametrize("seed", range(20))
def test_with_a_disk_that_comes_and_goes_messages_are_where_the_verbs_left_them(seed: int) -> None:
    rng = random.Random(seed)
    scene = Scene((seed % 3 > 0, seed % 2 > 0))
    payloads: dict[int, bytes] = {}
    model = {seq_id: pending for seq_id, _, pending in scene.contents()}
    for _ in range(80):
        if rng.random() < 0.7:
            error, call, path = rng.choice(FAULTS)
            scene.house.disk.plan.fail(error, call, path, rng.randint(1, 3), rng.random() < 0.5)
        with suppress(OSError):
            step(scene, rng, model)
        scene.house.disk.plan.heal()
        scene.house.check()
        assert {seq_id: pending for seq_id, _, pending in scene.contents()} == model
        for seq_id, payload, _ in scene.contents():
            assert payloads.setdefault(seq_id, payload) == payload
    scene.drain()
