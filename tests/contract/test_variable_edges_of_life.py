"""More edge cases of the variable queue, one test each: targets, modes, files, lives, sharing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from penstock.message import Entry, Envelope, Incoming, MessageProps
from penstock.store.queue.places import JOURNAL, MSG_STORE, QUEUE_STORE
from tests.contract.noted_token import NotedToken, confirmed
from tests.contract.variable_house import MANY, VHOST, VariableHouse, fill_all_zones, plain_options
from tests.disk.sim_files import Survival


@pytest.fixture(params=[False, True], ids=["transient", "persistent"])
def house(request: pytest.FixtureRequest) -> VariableHouse:
    house = VariableHouse()
    house.persistent = request.param
    return house


def page_out(house: VariableHouse) -> None:
    house.push_alphas(1000)
    house.push_betas(1000)


def test_what_is_published_as_delivered_says_redelivered_at_its_first_fetch(house: VariableHouse) -> None:
    """From RAM, from disk, and after a restart."""
    for number in range(12):
        house.publish(b"%d" % number, delivered=number % 3 == 0)
        house.commit()
    assert house.fetched(1) == [(0, b"0", True)]
    page_out(house)
    assert [redelivered for _, _, redelivered in house.fetched(5)] == [False, False, True, False, False]
    if house.persistent:
        house.restart()
        assert house.queue.ack([]) == 0
        found = [(seq_id, redelivered) for seq_id, _, redelivered in house.fetched(12)]
        # 0 to 5 were pending, and are back.
        assert found == [(seq_id, seq_id < 6 or seq_id % 3 == 0) for seq_id in range(12)]
    else:
        found = [(seq_id, redelivered) for seq_id, _, redelivered in house.fetched(6)]
        assert found == [(seq_id, seq_id % 3 == 0) for seq_id in range(6, 12)]


def test_a_target_of_nothing_leaves_one_message_addressable_and_no_target_reads_nothing(house: VariableHouse) -> None:
    house.publish(b"a")
    house.commit()
    house.queue.set_ram_duration_target(0.0)
    house.queue.resume()
    assert sum(len(zone) for zone in house.zones().values()) == 1
    assert house.zones()["delta"] == []
    assert house.queue.head_props() is None
    house.queue.set_ram_duration_target(math.inf)
    house.queue.resume()
    house.queue.timeout()
    assert house.status("disk_reads") == 0
    assert house.drain() == [b"a"]


def test_messages_that_the_journal_has_not_written_stay_until_it_has() -> None:
    """What RabbitMQ waits for is credit from its store; here it is the batch that still gathers."""
    house = VariableHouse()
    house.publish(*[b"%d" % number for number in range(10)])
    house.queue.set_ram_duration_target(0.0)
    assert house.status("messages_ram") == 10
    house.check()
    house.commit()
    house.queue.resume()
    assert house.status("messages_ram") == 1
    house.publish(b"10", b"11")
    house.check()
    assert house.numbers() == list(range(12))


def test_lazy_mode_pages_everything_out_and_the_default_mode_reads_nothing_by_itself(house: VariableHouse) -> None:
    """With pending messages, there and back, repeatedly."""
    house.numbered(0, 19)
    house.fetch(4)
    for round_ in range(3):
        house.queue.set_queue_mode(True)
        while house.queue.needs_timeout():
            house.queue.timeout()
        zones = house.zones()
        assert (zones["q1"], zones["q4"]) == ([], [])
        assert len(zones["delta"]) + len(zones["q3"]) + len(zones["q2"]) == len(house.queue) == 16 + round_
        assert (house.status("messages_ram"), house.queue.status()["mode"]) == (0, "lazy")
        house.check()
        reads = house.status("disk_reads")
        house.queue.set_queue_mode(False)
        house.queue.resume()
        assert (house.status("disk_reads"), house.queue.status()["mode"]) == (reads, "default")
        house.numbered(20 + round_, 20 + round_)
    assert house.queue.requeue([0, 1, 2, 3]) == 4
    house.check()
    assert house.numbers() == list(range(23))


def test_publishing_to_a_lazy_queue_keeps_nothing_in_ram(house: VariableHouse) -> None:
    house.queue.set_queue_mode(True)
    for number in range(30):
        house.publish(b"%d" % number)
        house.commit()
        house.queue.resume()
        assert house.status("messages_ram") == 0
    assert house.zones()["delta"]
    house.check()
    assert house.numbers() == list(range(30))


@pytest.mark.parametrize("end", ["restart", "crash", "kill"])
@pytest.mark.parametrize("slices", [0, 1, 2, 4, 7, 100])
def test_messages_in_all_zones_and_pending_ones_survive_an_end_in_the_middle_of_moving(end: str, slices: int) -> None:
    """RabbitMQ converts between two layouts; penstock has one. What moves here is where bodies are."""
    house = VariableHouse(survival=Survival.ANYTHING)
    fill_all_zones(house)
    house.fetch(3)
    house.checkpoint()
    stored = house.stored()
    segment = house.node.journal.segments.position()[0]
    for _ in range(slices):
        if not stored.move_home(segment, 3):
            break
    house.check()
    if end == "restart":
        house.restart()
    elif end == "crash":
        house.crash(slices)
    else:
        house.kill()
    assert house.numbers() == list(range(21))
    assert house.queue.lost_count == 0


@pytest.mark.parametrize("count", [4, 5, 6, 9, 10, 11])
def test_files_end_and_go_where_segments_do(house: VariableHouse, count: int) -> None:
    """Exactly one segment, one more, one less."""
    house.numbered(0, count)
    page_out(house)
    house.queue.homes.give_back()
    segments = count // 5 + 1
    expected = {
        f"{house.queue.homes.folder}/idx/{number:08d}.qi"
        for number in range(segments)
        if set(house.zones()["delta"]) & set(range(number * 5, number * 5 + 5))
    }
    assert set(house.paths("idx")) == expected
    assert house.numbers() == list(range(count + 1))
    house.checkpoint()
    in_use = f"{(count + 1) // 5:08d}.qi"
    assert [path for path in house.paths("idx") if not path.endswith(in_use)] == []
    house.numbered(count + 1, 14)
    house.drain()
    house.checkpoint()
    assert house.paths("idx") == []


@pytest.mark.parametrize("kept", [5, 7, 9], ids=["first", "middle", "last"])
def test_a_file_goes_with_its_last_message_and_only_then(house: VariableHouse, kept: int) -> None:
    house.numbered(0, 14)
    page_out(house)
    house.queue.homes.give_back()
    path = f"{house.queue.homes.folder}/idx/00000001.qi"
    house.fetch(15)
    assert house.queue.ack([seq_id for seq_id in range(15) if seq_id != kept]) == 14
    house.checkpoint()
    assert path in house.paths("idx")
    assert house.queue.ack([kept]) == 1
    house.checkpoint()
    assert house.paths("idx") == []
    unlinks = [where for name, where in house.disk.calls if name == "unlink" and where == path]
    assert len(unlinks) == 1


def test_the_segment_that_is_in_use_is_written_again_after_all_its_messages_went(house: VariableHouse) -> None:
    """A queue that is empty in the middle of a segment."""
    house.numbered(0, 7)
    page_out(house)
    assert house.numbers() == list(range(8))
    house.checkpoint()
    house.numbered(8, 20)
    page_out(house)
    house.check()
    assert house.numbers() == list(range(8, 21))


def test_expiry_zero_is_an_expiry_and_none_is_none(house: VariableHouse) -> None:
    """In RAM, on disk, and after a restart."""
    for expiry_ms in (0, -1, 1, 0):
        house.publish(b"%d" % expiry_ms, expiry_ms=expiry_ms)
        house.commit()
    lives: list[Callable[[], None]] = [house.check, lambda: page_out(house)]
    if house.persistent:
        lives.append(house.restart)
    for live in lives:
        live()
        house.clock.advance(1_000_000.0)
        assert expiries(house) == [0, None, 1, 0]
    assert house.queue.dropwhile(lambda props: props is not None and props.expiry_ms == 0) == 1
    assert house.queue.head_props() is None


def look(house: VariableHouse) -> tuple[object, ...]:
    queue = house.queue
    return (
        house.zones(),
        queue.pending.seq_ids(),
        queue.ready_bytes(),
        queue.pending_bytes(),
        house.status("messages_ram"),
    )


def test_a_fold_sees_each_message_once_in_order_and_leaves_everything_as_it_was(house: VariableHouse) -> None:
    fill_all_zones(house)
    house.fetch(9)
    house.queue.pending.evict(4)
    house.queue.requeue([2, 7])
    before = look(house)
    everything = house.folded()
    assert [seq_id for seq_id, _, _ in everything] == list(range(21))
    assert [seq_id for seq_id, _, pending in everything if pending] == [0, 1, 3, 4, 5, 6, 8]
    assert [int(payload) for _, payload, _ in everything] == list(range(21))
    for stop in range(1, 22):
        seen: list[int] = []

        def visit(seq_id: int, entry: Entry, pending: bool, seen: list[int] = seen, stop: int = stop) -> bool:
            seen.append(seq_id)
            return len(seen) < stop

        house.queue.fold(visit)
        assert seen == list(range(stop))
    assert look(house) == before
    house.check()


def test_acks_in_any_order_and_twice_count_once(house: VariableHouse) -> None:
    fill_all_zones(house)
    house.fetch(21)
    house.queue.pending.evict(10)
    assert house.queue.ack([20, 3, 3, 4, 0, 20, 99, 3]) == 4
    house.check()
    assert house.queue.ack([20, 3, 4, 0]) == 0
    assert house.queue.ack(range(30)) == 17
    house.check()
    assert (house.queue.depth(), house.queue.pending_bytes()) == (0, 0)


def test_depth_is_ready_and_pending_after_every_call(house: VariableHouse) -> None:
    """`check` compares them."""
    fill_all_zones(house)
    depth = 21
    for seq_id in house.fetch(21):
        assert house.queue.requeue([seq_id]) == 1
        house.check()
        assert house.queue.depth() == depth
        assert house.fetch(1) == [seq_id]
        assert house.queue.depth() == depth
        house.queue.ack([seq_id])
        depth -= 1
        house.check()
        assert house.queue.depth() == depth


def expiries(house: VariableHouse) -> list[int | None]:
    found: list[int | None] = []

    def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
        found.append(None if entry[2] is None else entry[2].expiry_ms)
        return True

    house.queue.fold(visit)
    return found


ENVELOPE_BYTES = 2 + len(b"\x00\x03key")


@pytest.mark.parametrize(
    ("size", "properties", "expected"),
    [
        (0, b"\x00\x00", QUEUE_STORE),
        (60 - ENVELOPE_BYTES - 1, b"\x00\x00", QUEUE_STORE),
        (60 - ENVELOPE_BYTES, b"\x00\x00", MSG_STORE),
        (60 - ENVELOPE_BYTES - 1, b"\x00\x00\x01", MSG_STORE),
        (0, b"\x00\x00" + bytes(60), MSG_STORE),
    ],
    ids=["nothing", "below", "at", "by-a-header", "only-headers"],
)
def test_the_size_of_all_of_a_message_decides_where_it_goes(
    house: VariableHouse, size: int, properties: bytes, expected: int
) -> None:
    house = VariableHouse(plain_options(embed_below=60))
    for persistent in (False, True):
        envelope = Envelope("", "key", properties, persistent)
        house.queue.publish(Incoming(envelope, [b"x" * size + b"\xce"]), None)
        house.commit()
    house.push_alphas(2)
    found = [(status.is_persistent, status.msg_in_store) for status in house.queue.zones.q3]
    assert found == [(False, expected), (True, JOURNAL if expected == QUEUE_STORE else expected)]
    house.push_betas(2)
    assert house.drain() == [b"x" * size] * 2


def test_without_a_threshold_no_message_is_large() -> None:
    """0 = never."""
    house = VariableHouse(plain_options(embed_below=0))
    house.publish(b"x" * 100_000, persistent=False)
    house.push_alphas(1)
    assert [status.msg_in_store for status in house.queue.zones.q3] == [QUEUE_STORE]
    assert house.drain() == [b"x" * 100_000]


@pytest.mark.parametrize("size", [5, 500], ids=["small", "large"])
@pytest.mark.parametrize("acked", ["before-the-write", "after-the-write"])
def test_a_message_in_two_queues_stays_for_the_second_when_the_first_is_done(
    house: VariableHouse, size: int, acked: str
) -> None:
    other = house.open_queue("77")
    incoming = Incoming(house.envelope(), [b"x" * size + b"\xce"])
    for queue in (house.queue, other):
        queue.publish(incoming, None)
    if acked == "before-the-write":
        house.drain()
    house.commit()
    other.paging.push_alphas(10)
    if acked == "after-the-write":
        house.drain()
        house.commit()
    run = other.fetch(1, MANY, False)
    assert run is not None
    assert run.entries[0][1] == incoming.bodies[0]
    house.commit()
    assert house.node.message_store(VHOST, house.persistent).status()["bodies"] == 0
    other.check_invariants()


@pytest.mark.parametrize("size", [5, 500], ids=["small", "large"])
def test_deleting_a_queue_whose_writes_are_under_way_leaves_the_others_alone(house: VariableHouse, size: int) -> None:
    other = house.open_queue("77")
    bodies = [b"%d" % number + b"x" * size + b"\xce" for number in range(12)]
    incoming = Incoming(house.envelope(), bodies)
    token = NotedToken()
    for queue in (house.queue, other):
        queue.publish(incoming, MessageProps(confirm=token) if queue is other else None)
        queue.paging.push_alphas(5)
    other.delete_and_terminate()
    assert confirmed(other) == [token], "nothing can be lost any more"
    house.commit()
    house.push_alphas(100)
    assert house.drain() == [body[:-1] for body in bodies]
    house.commit()
    house.checkpoint()
    assert house.node.message_store(VHOST, house.persistent).status()["bodies"] == 0
    assert [path for path in house.disk.contents() if "/queues/77/" in path] == []


def test_delivery_counts_go_with_their_messages_and_come_back_after_a_clean_stop(house: VariableHouse) -> None:
    house.numbered(0, 5)
    for _ in range(3):
        house.queue.requeue(house.fetch(2))
    house.queue.requeue(house.fetch(3))
    counts = [house.queue.delivery_count(seq_id) for seq_id in range(6)]
    assert counts == [4, 4, 1, 0, 0, 0]
    house.queue.ack(house.fetch(1))
    assert house.queue.delivery_count(0) == 0
    if house.persistent:
        house.restart()
        assert [house.queue.delivery_count(seq_id) for seq_id in range(6)] == [0, 4, 1, 0, 0, 0]
    house.queue.ack(house.fetch(1))
    house.fetch(1, ack_required=False)
    house.queue.purge()
    assert house.queue.tail.delivery_counts == {}
