"""Compaction of the shared store: what it gives back, what it never touches, and what a crash leaves of it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_store_house import FOLDER, TINY, House, message, record_size, run_script
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival
from tests.effort import examples

from penstock.disk.files import File
from penstock.store.shared.body_map import FILE_HEAD_BYTES
from penstock.store.shared.message_store import BadBody, MessageStoreOptions

NO_ERROR = 0


def mostly_dead(house: House, files: int = 3) -> list[int]:
    """Some full files with one wanted body each, and a current one."""
    house.store.start({})
    survivors = []
    for number in range(files):
        addresses = [house.put(message(10 + number * 10 + index, 100)) for index in range(3)]
        survivors.append(addresses[1])
        house.release(addresses[0])
        house.commit()
        house.release(addresses[2])
    survivors.append(house.put(message(99, 300)))
    house.commit()
    return survivors


@pytest.fixture
def house() -> House:
    made = House()
    mostly_dead(made)
    return made


class SlowSync:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[File], Callable[[OSError | None], None]]] = []

    def __call__(self, files: list[File], done: Callable[[OSError | None], None]) -> None:
        self.asked.append((files, done))

    def answer(self, error: int = NO_ERROR) -> None:
        files, done = self.asked.pop(0)
        for file in files:
            file.fdatasync()
        done(OSError(error, "simulated") if error else None)


# --- what it does ---------------------------------------------------------------------------------


def test_wanted_bodies_of_mostly_dead_files_move_together_and_keep_their_addresses(house: House) -> None:
    before = house.names()
    live = house.live()
    house.compact()
    assert len(house.names()) < len(before)
    assert [name for name in house.names() if "-c" in name] == ["00000005-c.pms"]
    assert house.live() == live
    assert house.store.status()["moved"] == 3
    assert house.store.status()["compactions"] == 1
    house.check_all()


def test_compacted_bodies_are_found_again_after_a_start(house: House) -> None:
    house.compact()
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    assert again.store.status()["moved"] == 3
    again.check_all()


def test_a_compacted_file_is_compacted_again(house: House) -> None:
    house.compact()
    moved = sorted(house.live())[:2]
    for address in moved:
        house.release(address)
    house.commit()
    house.compact()
    assert [name for name in house.names() if "-c" in name] == ["00000006-c.pms"]
    house.check_all()
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    again.check_all()


def test_a_compacted_file_that_nobody_wants_goes(house: House) -> None:
    house.compact()
    for address in sorted(house.live()):
        house.release(address)
    house.commit()
    house.put(message(50, 500))
    house.commit()
    house.compact()
    assert [name for name in house.names() if "-c" in name] == []


def test_a_file_that_is_half_alive_is_left_alone() -> None:
    size = record_size(message(1))
    house = House(options=MessageStoreOptions(file_bytes=FILE_HEAD_BYTES + 4 * size, dead_share=0.5))
    addresses = [house.put(message(number)) for number in range(5)]
    house.release(addresses[0])
    house.commit()
    house.release(addresses[1])
    house.commit()
    house.compact()
    assert house.store.status()["compactions"] == 0
    house.release(addresses[2])
    house.commit()
    house.compact()
    assert house.store.status()["compactions"] == 1
    house.check_all()


def test_a_call_copies_no_more_than_it_was_allowed_to(house: House) -> None:
    size = record_size(message(11, 100))
    copied = []
    more = True
    while more:
        before = house.store.status()["copied_bytes"]
        more = house.store.compact_some(1)
        copied.append(house.store.status()["copied_bytes"] - before)
        house.check_all()
    # At least one record each time, or nothing would ever be done.
    assert copied == [size, size, size]


def test_the_current_file_gives_its_room_back_when_nobody_fills_it_up() -> None:
    house = House(options=MessageStoreOptions(file_bytes=1000, dead_share=0.5))
    for number in range(7):
        address = house.put(message(number, 40))
        house.commit()
        house.release(address)
        house.commit()
    assert house.disk_bytes() > 500
    house.compact()
    assert house.disk_bytes() == FILE_HEAD_BYTES
    last = house.put(message(8))
    house.commit()
    assert last >> 32 == 2
    house.compact()
    assert house.names() == ["00000002.pms"]
    house.check_all()


def test_a_file_of_which_nothing_was_written_is_forgotten_without_a_trace() -> None:
    house = House()
    for number in range(30):
        house.release(house.put(message(number, 100)))
    house.compact()
    assert house.machine.contents() == {}
    assert house.waiting == []
    assert house.store.status()["dead_bytes"] <= TINY.file_bytes


def test_a_transient_store_is_compacted_without_a_sync() -> None:
    house = House(persistent=False)
    mostly_dead(house)
    house.compact()
    assert house.store.status()["compactions"] == 1
    assert not [call for call in house.machine.calls if call[0] in ("sync_dir", "fdatasync")]
    house.check_all()


# --- what goes on meanwhile -----------------------------------------------------------------------


def test_bodies_are_read_and_put_while_a_copy_is_synced() -> None:
    sync = SlowSync()
    house = House(sync=sync)
    mostly_dead(house)
    assert not house.store.compact_some(1 << 30)
    assert len(sync.asked) == 1
    old = house.names()
    house.check_all()
    house.put(message(70, 100))
    house.commit()
    assert not house.store.compact_some(1 << 30)
    assert len(sync.asked) == 1
    sync.answer()
    house.check_all()
    assert house.store.status()["compactions"] == 0, "the new name is not durable yet"
    sync.answer()
    house.check_all()
    assert house.store.status()["compactions"] == 1
    assert "00000001.pms" in old
    assert "00000001.pms" not in house.names()


def test_what_is_released_while_it_is_copied_stays_dead() -> None:
    sync = SlowSync()
    house = House(sync=sync)
    survivors = mostly_dead(house)
    house.store.compact_some(1 << 30)
    house.release(survivors[0])
    house.commit()
    sync.answer()
    sync.answer()
    with pytest.raises(BadBody):
        house.store.read(survivors[0])
    assert house.store.status()["moved"] == 2
    house.check_all()


def test_a_copy_of_which_everything_was_released_is_dropped(house: House) -> None:
    assert house.store.compact_some(1)
    for address in sorted(house.live())[:3]:
        house.release(address)
    house.commit()
    house.compact()
    house.check_all()
    assert not [name for name in house.names() if name.endswith(".tmp")]
    assert house.store.status()["dead_bytes"] <= TINY.file_bytes


def test_old_files_stay_until_the_journal_knows_that_their_bodies_are_gone(house: House) -> None:
    survivors = sorted(house.live())
    durable = house.durable
    # Released, but a crash would bring it back.
    house.release(survivors[0])
    house.compact()
    assert house.durable == durable
    again, unreadable = house.restarted(house.machine.crash(lambda _: 0), durable)
    assert unreadable == []
    again.check_all()


def test_a_dead_file_stays_until_the_journal_knows_it(house: House) -> None:
    large = house.put(message(60, 700))
    house.put(message(61, 500))
    house.commit()
    house.release(large)
    name = f"{large >> 32:08d}.pms"
    house.compact()
    assert name in house.names()
    house.commit()
    assert name not in house.names()


def test_nothing_is_removed_as_long_as_the_journal_cannot_write(house: House) -> None:
    large = house.put(message(60, 700))
    house.put(message(61, 500))
    house.commit()
    house.release(large)
    name = f"{large >> 32:08d}.pms"
    for _ in range(3):
        house.compact()
        for done in house.waiting:
            done(False)
        house.waiting.clear()
        assert name in house.names()
    # There is room again.
    house.compact()
    house.commit()
    assert name not in house.names()


def test_a_removal_that_waited_for_the_journal_waits_for_a_backup_too(house: House) -> None:
    large = house.put(message(60, 700))
    house.put(message(61, 500))
    house.commit()
    house.release(large)
    name = f"{large >> 32:08d}.pms"
    house.compact()
    house.is_held = True
    house.commit()
    assert name in house.names()
    house.is_held = False
    house.compact()
    assert name not in house.names()


def test_closing_drops_a_copy_that_is_under_way(house: House) -> None:
    assert house.store.compact_some(1)
    assert [name for name in house.names() if name.endswith(".tmp")]
    house.store.close()
    assert not [name for name in house.names() if name.endswith(".tmp")]
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    again.check_all()


def test_an_answer_that_comes_after_the_close_changes_nothing() -> None:
    sync = SlowSync()
    house = House(sync=sync)
    mostly_dead(house)
    house.store.compact_some(1 << 30)
    _, done = sync.asked[0]
    house.store.close()
    before = house.names()
    done(None)
    assert house.names() == before


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["create", "pwrite", "fdatasync", "rename", "sync_dir", "unlink"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_compaction_that_fails_changes_nothing_and_is_done_later(call: str, error: int, nth: int) -> None:
    house = House(SimFiles(FaultPlan(survival=Survival.NOTHING)))
    mostly_dead(house)
    house.machine.plan.fail(error, call, nth=nth)
    house.compact(100)
    house.check_all()
    twin, unreadable = house.restarted(house.machine.copy(), house.durable)
    assert unreadable == []
    twin.check_all()
    house.machine.plan.heal()
    for _ in range(200):
        house.store.compact_some(1000)
    assert house.store.status()["compactions"] == 1
    assert not [name for name in house.names() if name.endswith(".tmp")]
    assert len(house.names()) == 2
    house.check_all()


def test_a_disk_that_stays_full_is_not_asked_all_the_time(house: House) -> None:
    house.machine.plan.fail(errno.ENOSPC, "pwrite", forever=True)
    for _ in range(1000):
        assert not house.store.compact_some(1000)
    assert 2 <= house.store.status()["failed_compactions"] <= 10
    house.check_all()


def test_a_full_disk_does_not_keep_dead_files_from_going(house: House) -> None:
    large = house.put(message(60, 700))
    house.put(message(61, 500))
    house.commit()
    house.machine.plan.fail(errno.ENOSPC, "pwrite", forever=True)
    house.store.compact_some(1000)
    house.release(large)
    house.durable = house.live()
    house.store.compact_some(1000)
    assert f"{large >> 32:08d}.pms" not in house.names()


def test_a_file_with_a_damaged_body_is_left_and_the_others_are_compacted(house: House) -> None:
    survivors = sorted(house.live())
    house.machine.flip(f"{FOLDER}/00000002.pms", (survivors[1] & 0xFFFF) + 90, 3)
    house.compact()
    for _ in range(20):
        house.store.compact_some(1000)
    assert "00000002.pms" in house.names()
    assert "00000001.pms" not in house.names()
    assert [address for address in survivors if not house.is_good(address)] == [survivors[1]]
    assert house.store.status()["damaged_files"] == 1


def test_a_body_that_another_file_has_under_its_address_is_not_copied(house: House) -> None:
    live = sorted(house.live())
    house.machine.swap(f"{FOLDER}/00000001.pms", f"{FOLDER}/00000002.pms")
    house.compact()
    for _ in range(50):
        house.store.compact_some(1000)
    assert [address for address in live if not house.is_good(address)] == live[:2]
    assert house.store.status()["moved"] == 1


def test_a_file_with_bodies_that_are_not_written_yet_is_not_compacted() -> None:
    house = House(options=MessageStoreOptions(file_bytes=800, buffer_bytes=10_000))
    addresses = [house.put(message(number, 100)) for number in range(3)]
    house.commit()
    late = house.put(message(3, 100))
    for address in addresses:
        house.release(address)
    rolled = house.put(message(4, 300))
    assert rolled >> 32 > late >> 32
    house.compact()
    assert house.store.status()["compactions"] == house.store.status()["failed_compactions"] == 0
    house.commit()
    house.compact()
    assert house.store.status()["compactions"] == 1
    house.check_all()


def test_leftover_bytes_that_look_like_a_record_are_never_looked_at() -> None:
    # What is dead in a file may be anything: here it is a whole file of the store with wanted addresses in it.
    house = House(options=MessageStoreOptions(file_bytes=3000))
    wanted = house.put(message(1))
    house.commit()
    copy = house.machine.contents()[f"{FOLDER}/00000001.pms"]
    envelope, _ = message(2)
    decoys = [house.put((envelope, copy * 3 + b"%d\xce" % number)) for number in range(3)]
    house.put(message(3, 3000))
    house.put(message(4, 2500))
    for address in decoys:
        house.release(address)
    house.commit()
    house.compact()
    assert house.store.status()["compactions"] == 1
    house.check_all()
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    assert again.is_good(wanted)


def test_without_its_table_a_compacted_file_is_found_by_the_heads_of_its_records(house: House) -> None:
    house.compact()
    name = next(name for name in house.names() if "-c" in name)
    size = len(house.machine.contents()[f"{FOLDER}/{name}"])
    house.machine.zero_block(f"{FOLDER}/{name}", size - 16, 16)
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    assert again.store.status()["moved"] == 3
    again.check_all()


def test_a_bad_copy_is_replaced_by_the_old_file_when_that_is_still_there(house: House) -> None:
    # The journal has not answered yet, so that old and new are both there.
    survivors = sorted(house.live())
    house.durable = {}
    house.compact()
    assert {"00000001.pms", "00000005-c.pms"} <= set(house.names())
    house.machine.zero_block(f"{FOLDER}/00000005-c.pms", FILE_HEAD_BYTES, 20)
    again, unreadable = house.restarted(house.machine.kill(), dict.fromkeys(survivors, 1))
    assert unreadable == []
    again.check_all()


# --- crashes --------------------------------------------------------------------------------------


def lives_after(house: House, outcomes: int, seed: int) -> list[SimFiles]:
    """What a crash may leave, in several ways."""
    machines = []
    for survival in (Survival.NOTHING, Survival.EVERYTHING):
        house.machine.plan.survival = survival
        machines.append(house.machine.crash(lambda _: 0))
    house.machine.plan.survival = Survival.ANYTHING
    for outcome in range(outcomes):
        machines.append(house.machine.crash(random.Random(seed * 100 + outcome).randrange))
    return machines


def check_life(before: House, machine: SimFiles) -> None:
    """Everything that was durable is there, now and after the next power cut; what was not is right or not there."""
    twin = machine.copy()
    again, unreadable = before.restarted(machine, before.durable)
    assert unreadable == []
    again.check_all()
    again.compact(200)
    again.put(message(1000, 50))
    again.commit()
    again.compact(200)
    last, unreadable = again.restarted(again.machine.crash(random.Random(5).randrange), again.durable)
    assert unreadable == []
    last.check_all()
    if before.maybe != before.durable:
        # The batch that was under way may have survived as well, with or without its bodies.
        again, unreadable = before.restarted(twin, before.maybe)
        lost = [address for address in again.live() if not again.is_good(address)]
        assert not before.durable.keys() & {*lost, *unreadable}


def crash_points(seed: int, steps: int) -> list[int]:
    house = House()
    run_script(house, seed, steps)
    assert house.store.status()["compactions"] >= 2
    assert house.store.status()["failed_compactions"] == 0
    return house.machine.crash_points()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3, 6, 7])
def test_a_crash_at_any_call_loses_nothing_that_was_durable(seed: int) -> None:
    steps = 40
    crashes = 0
    for point in crash_points(seed, steps):
        for after in (False, True):
            house = House(SimFiles(FaultPlan(crash_at=point, crash_after=after)))
            with pytest.raises(SimCrash):
                run_script(house, seed, steps)
            for machine in lives_after(house, 2, point):
                check_life(house, machine)
                crashes += 1
    assert crashes > 500


def test_a_kill_at_any_call_loses_nothing_even_if_the_power_fails_later() -> None:
    for point in crash_points(3, 40):
        house = House(SimFiles(FaultPlan(crash_at=point)))
        with pytest.raises(SimCrash):
            run_script(house, 3, 40)
        # The page cache stays. What recovery finds there, it relies on.
        machine = house.machine.kill()
        refs = {address: count for address, count in house.maybe.items() if is_whole(house, machine, address)}
        again, unreadable = house.restarted(machine, refs)
        assert unreadable == []
        for survivor in lives_after(again, 3, point):
            last, unreadable = again.restarted(survivor, refs)
            assert unreadable == []
            last.check_all()


def is_whole(house: House, machine: SimFiles, address: int) -> bool:
    twin, unreadable = house.restarted(machine.copy(), {address: 1})
    return unreadable == [] and twin.is_good(address)


def test_a_crash_during_a_start_is_followed_by_a_start() -> None:
    house = House()
    run_script(house, 4, 40)
    house.commit()
    refs = {address: 1 for number, address in enumerate(sorted(house.live())) if number % 2}
    probe = house.machine.copy()
    house.restarted(probe, refs)
    for point in probe.crash_points():
        machine = house.machine.copy()
        machine.plan = FaultPlan(crash_at=point, crash_after=True)
        with pytest.raises(SimCrash):
            House(machine).store.start(dict(refs))
        for seed in range(3):
            again, unreadable = house.restarted(machine.crash(random.Random(seed).randrange), refs)
            assert unreadable == []
            again.check_all()


# --- the room it takes ----------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 10_000),
    dead_share=st.sampled_from((0.2, 0.5, 0.8)),
    kept_of=st.sampled_from((2, 10, 50)),
    slice_bytes=st.sampled_from((1, 500, 10_000)),
)
def test_a_few_bodies_that_are_wanted_for_long_never_hold_the_room_of_many(
    seed: int, dead_share: float, kept_of: int, slice_bytes: int
) -> None:
    dice = random.Random(seed)
    house = House(options=MessageStoreOptions(file_bytes=2000, dead_share=dead_share, buffer_bytes=500))
    waiting: list[int] = []
    for number in range(150):
        address = house.put(message(number, dice.randrange(60, 300)))
        house.store.end_fanout()
        # One queue is slow: every so often a body stays for good.
        if dice.randrange(kept_of):
            waiting.append(address)
        if len(waiting) > 10:
            house.release(waiting.pop(dice.randrange(len(waiting))))
        house.commit()
    house.compact(slice_bytes)
    house.check_all()
    wanted = sum(record_size(house.messages[address]) for address in house.live())
    # What the format adds: a head per file, a line in the table per record.
    extra = FILE_HEAD_BYTES * len(house.names()) + 16 * len(house.live())
    assert house.disk_bytes() <= wanted / (1 - dead_share) + 2 * 2000 + extra
