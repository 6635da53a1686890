"""Bytes on disk go bad: what is lost is named, everything else is served, and the books are right afterwards."""

from __future__ import annotations

import errno
import logging

import pytest

from penstock.message import MessageProps
from penstock.store.queue.queue_index import SLOT_BYTES
from penstock.store.queue.segment_files import FILE_HEAD_BYTES
from tests.contract.variable_house import VHOST, VariableHouse, plain_options
from tests.disk.sim_files import SimFiles


def flip_text(disk: SimFiles, where: str, text: bytes) -> None:
    """Damage the one place in the files of a folder where a text stands."""
    found = [(path, data.index(text)) for path, data in disk.contents().items() if where in path and text in data]
    assert len(found) == 1
    disk.flip(*found[0], 3)


def damage_slot(house: VariableHouse, seq_id: int) -> None:
    house.queue.homes.give_back()
    path = f"{house.queue.homes.folder}/idx/{seq_id // 5:08d}.qi"
    house.disk.flip(path, FILE_HEAD_BYTES + seq_id % 5 * SLOT_BYTES + 9, 0)


def expect_lost(house: VariableHouse, caplog: pytest.LogCaptureFixture, *seq_ids: int) -> None:
    """Each is named in the log of the store, and counted; nothing is left over in any account."""
    named: list[int] = []
    for record in caplog.records:
        assert (record.name, record.levelno) == ("penstock.store", logging.ERROR)
        assert isinstance(record.args, tuple)
        count, first, folder = record.args
        assert folder == house.queue.homes.folder
        assert isinstance(first, int)
        assert isinstance(count, int)
        named.extend(range(first, first + count))
    assert sorted(named) == sorted(seq_ids)
    assert house.status("lost") == len(seq_ids)
    house.check()
    queue = house.queue
    assert (len(queue), queue.depth(), queue.ready_bytes(), queue.pending_bytes()) == (0, 0, 0, 0)
    assert (house.status("messages_persistent"), queue.tail.persistent_bytes) == (0, 0)
    assert (queue.live.low, queue.live.masks()) == (queue.tail.next_seq_id, {})


def published(house: VariableHouse, count: int, size: int = 4) -> None:
    house.publish_each(*[b"<%02d>" % number + b"x" * size for number in range(count)])


def numbers_of(payloads: list[bytes]) -> list[int]:
    return [int(payload[1:3]) for payload in payloads]


def test_a_damaged_body_in_the_journal_costs_its_message_only(caplog: pytest.LogCaptureFixture) -> None:
    house = VariableHouse()
    published(house, 12)
    house.push_alphas(100)
    flip_text(house.disk, "journal/", b"<07>")
    assert numbers_of(house.drain()) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    expect_lost(house, caplog, 7)


@pytest.mark.parametrize("paged", ["q3", "delta"])
def test_a_damaged_record_of_the_queues_store_costs_its_message_only(
    caplog: pytest.LogCaptureFixture, paged: str
) -> None:
    house = VariableHouse()
    house.persistent = False
    published(house, 12)
    house.push_alphas(100)
    if paged == "delta":
        house.push_betas(100)
    house.queue.homes.give_back()
    flip_text(house.disk, "/qs/", b"<07>")
    assert numbers_of(house.drain()) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    expect_lost(house, caplog, 7)


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_a_damaged_record_of_the_shared_store_costs_its_message_and_gives_its_room_back(
    caplog: pytest.LogCaptureFixture, persistent: bool
) -> None:
    house = VariableHouse(plain_options(embed_below=50))
    house.persistent = persistent
    published(house, 12, size=100)
    house.push_alphas(100)
    house.push_betas(100)
    store = house.node.message_store(VHOST, persistent)
    store.flush()
    flip_text(house.disk, "/shared/", b"<07>")
    assert numbers_of(house.drain()) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    expect_lost(house, caplog, 7)
    assert store.status()["bodies"] == 0


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("seq_ids", [[7], [5, 9], [10, 11, 12, 13, 14], [19], [5, 12, 19]])
def test_damaged_slots_cost_their_messages_only(
    caplog: pytest.LogCaptureFixture, persistent: bool, seq_ids: list[int]
) -> None:
    house = VariableHouse()
    house.persistent = persistent
    published(house, 20)
    house.push_alphas(100)
    house.push_betas(100)
    for seq_id in seq_ids:
        damage_slot(house, seq_id)
    assert numbers_of(house.drain()) == [number for number in range(20) if number not in seq_ids]
    expect_lost(house, caplog, *seq_ids)


def test_damaged_slots_of_transient_and_persistent_neighbours_confuse_no_account(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = VariableHouse()
    for number in range(20):
        house.publish_each(b"<%02d>" % number, persistent=number % 2 == 1)
    house.push_alphas(100)
    house.push_betas(100)
    damage_slot(house, 8)
    damage_slot(house, 13)
    assert numbers_of([payload for _, payload, _ in house.fetched(7)]) == list(range(7))
    house.queue.ack(range(7))
    house.check()
    assert numbers_of(house.drain()) == [7, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19]
    expect_lost(house, caplog, 8, 13)


def test_a_damaged_slot_is_still_counted_right_after_a_restart_in_between(caplog: pytest.LogCaptureFixture) -> None:
    """Half of the delta was read, with the damage; the other half comes in the next life."""
    house = VariableHouse()
    published(house, 20)
    house.push_alphas(100)
    house.push_betas(100)
    damage_slot(house, 7)
    assert numbers_of([payload for _, payload, _ in house.fetched(6, ack_required=False)]) == list(range(6))
    house.restart()
    house.check()
    assert len(house.queue) == 13
    assert numbers_of(house.drain()) == [6, *range(8, 20)]
    assert house.queue.depth() == 0
    assert (house.status("messages_persistent"), house.queue.tail.persistent_bytes) == (0, 0)
    assert [record.args for record in caplog.records] == [(1, 7, house.queue.homes.folder)]


def test_a_damaged_slot_with_pending_neighbours_in_the_range(caplog: pytest.LogCaptureFixture) -> None:
    house = VariableHouse()
    published(house, 20)
    taken = house.fetch(20)
    house.queue.requeue([0, 1, 2, 3, 4, 10, 11, 12, 18, 19])
    house.push_alphas(100)
    house.push_betas(100)
    damage_slot(house, 11)
    assert numbers_of(house.drain()) == [0, 1, 2, 3, 4, 10, 12, 18, 19]
    house.check()
    assert house.queue.ack(taken) == 10
    expect_lost(house, caplog, 11)


def test_an_index_file_without_a_head_costs_its_messages_and_can_be_written_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = VariableHouse()
    published(house, 13)
    house.push_alphas(100)
    house.push_betas(100)
    house.queue.homes.give_back()
    house.disk.flip(f"{house.queue.homes.folder}/idx/00000002.qi", 3, 1)
    for number in range(13, 20):
        house.publish_each(b"<%02d>" % number)
    house.push_alphas(100)
    house.push_betas(100)
    house.check()
    assert numbers_of(house.drain()) == [*range(10), *range(13, 20)]
    expect_lost(house, caplog, 10, 11, 12)


def test_a_store_file_without_a_head_costs_its_messages_and_can_be_written_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = VariableHouse()
    house.persistent = False
    published(house, 13)
    house.push_alphas(100)
    house.queue.homes.give_back()
    house.disk.flip(f"{house.queue.homes.folder}/qs/00000002.qs", 3, 1)
    for number in range(13, 20):
        house.publish_each(b"<%02d>" % number)
    house.push_alphas(100)
    house.check()
    assert numbers_of(house.drain()) == [*range(10), *range(13, 20)]
    expect_lost(house, caplog, 10, 11, 12)


def test_a_damaged_message_that_has_expired_does_not_take_the_next_one_with_it() -> None:
    """fetchwhile judges each message by its own props."""
    house = VariableHouse()
    house.publish(b"old", expiry_ms=10)
    house.commit()
    house.publish(b"new")
    house.commit()
    house.push_alphas(2)
    flip_text(house.disk, "journal/", b"old\xce")
    seen: list[int] = []

    def is_expired(props: MessageProps | None) -> bool:
        return props is not None and props.expiry_ms <= 10

    assert house.queue.fetchwhile(is_expired, lambda seq_id, entry: seen.append(seq_id)) == 0
    assert seen == []
    assert house.drain() == [b"new"]


def test_looking_at_damaged_messages_leaves_them_out_and_changes_nothing() -> None:
    house = VariableHouse()
    published(house, 20)
    house.fetch(3)
    house.queue.pending.evict(3)
    house.push_alphas(100)
    house.push_betas(100)
    damage_slot(house, 16)
    flip_text(house.disk, "journal/", b"<01>")
    flip_text(house.disk, "journal/", b"<05>")
    good = [number for number in range(20) if number not in (1, 5, 16)]
    for _ in range(2):
        assert numbers_of([payload for _, payload, _ in house.folded()]) == good
    browsed: list[int] = []
    at = 0
    while (run := house.queue.browse(at, 4, 1000)) is not None:
        browsed.extend(range(run.first_seq_id, run.first_seq_id + len(run.entries)))
        at = browsed[-1] + 1
    assert browsed == good[2:]
    assert (len(house.queue), house.status("lost")) == (17, 0)


def test_a_damaged_pending_message_can_be_acked_and_is_named_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = VariableHouse()
    published(house, 6)
    house.fetch(6)
    house.queue.pending.evict(6)
    flip_text(house.disk, "journal/", b"<02>")
    flip_text(house.disk, "journal/", b"<04>")
    seen: list[int] = []
    house.queue.ackfold(lambda seq_id, entry: seen.append(seq_id), range(6))
    assert seen == [0, 1, 3, 5]
    assert house.queue.ack([4]) == 1
    assert house.queue.requeue([0, 1, 2, 3, 5]) == 5
    house.check()
    assert numbers_of(house.drain()) == [0, 1, 3, 5]
    expect_lost(house, caplog, 2)


def test_purging_what_is_damaged_leaves_no_trace_of_it() -> None:
    house = VariableHouse()
    published(house, 20)
    house.fetch(2)
    house.push_alphas(100)
    house.push_betas(100)
    damage_slot(house, 12)
    assert house.queue.purge() == 18
    house.check()
    assert house.status("messages_persistent") == 2
    assert house.queue.ack([0, 1]) == 2
    assert (house.queue.live.low, house.queue.live.masks()) == (20, {})
    assert (house.status("messages_persistent"), house.queue.tail.persistent_bytes) == (0, 0)


def test_a_lost_message_does_not_come_back_after_a_crash() -> None:
    house = VariableHouse()
    published(house, 6)
    house.push_alphas(100)
    flip_text(house.disk, "journal/", b"<02>")
    house.fetch(6 - 1)
    house.commit()
    house.crash()
    assert (len(house.queue), house.queue.lost_count) == (5, 0)
    assert numbers_of(house.drain()) == [0, 1, 3, 4, 5]


# --- a disk that cannot be written ----------------------------------------------------------------


@pytest.mark.parametrize("where", ["/qs", "/idx"])
@pytest.mark.parametrize("pending", [0, 30], ids=["ready", "pending"])
def test_a_full_disk_costs_memory_and_no_message(caplog: pytest.LogCaptureFixture, where: str, pending: int) -> None:
    """Transient messages that should leave RAM stay there, each once, until there is room again."""
    house = VariableHouse(plain_options(embed_below=0))
    house.persistent = False
    for number in range(60):
        house.publish(b"<%02d>" % number + b"x" * 20_000, expiry_ms=1000 + number)
    house.fetch(pending)
    house.disk.plan.fail(errno.ENOSPC, "pwrite", house.queue.homes.folder + where, forever=True)
    for _ in range(3):
        house.queue.set_queue_mode(True)
        house.queue.resume()
        house.check()
    assert (len(house.queue), house.queue.pending.count) == (60 - pending, pending)
    if where == "/qs":
        assert house.status("messages_ram") > 0
        assert [record.levelno for record in caplog.records] == [logging.ERROR], "said once"
    house.disk.plan.heal()
    while house.queue.needs_timeout() or house.status("messages_ram"):
        house.queue.resume()
        house.check()
    assert house.queue.requeue(range(pending)) == pending
    house.check()
    assert numbers_of(house.drain()) == list(range(60))
    assert house.status("lost") == 0
