"""The shared store: addresses, references, the write buffer, restarts, damage."""

from __future__ import annotations

import errno
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from message_store_house import FOLDER, TINY, House, message, record_size, same
from tests.disk.sim_files import FaultPlan, SimFiles, Survival
from tests.effort import examples

from penstock.disk.os_files import OsFiles
from penstock.journal.syncer import InlineSyncer
from penstock.message import FRAME_END, Envelope
from penstock.store.queue.places import UnknownVersion
from penstock.store.shared.body_map import FILE_HEAD_BYTES
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.message_store import BadBody, MessageStore, MessageStoreOptions
from penstock.store.shared.records import encode_record
from penstock.store.shared.store_files import encode_table, file_head


@pytest.fixture
def house() -> House:
    made = House()
    assert made.store.start({}) == []
    return made


def first_file(house: House) -> str:
    return f"{FOLDER}/{house.names()[0]}"


# --- references -----------------------------------------------------------------------------------


def test_a_body_comes_back_before_and_after_it_was_written(house: House) -> None:
    address = house.put(message(1))
    assert not house.store.is_written(address)
    house.check_all()
    house.store.flush()
    assert house.store.is_written(address)
    house.check_all()


def test_an_address_is_a_file_and_an_offset(house: House) -> None:
    first, second = house.put(message(1)), house.put(message(2))
    assert first >> 32 == second >> 32 == 1
    assert first & 0xFFFFFFFF == FILE_HEAD_BYTES
    assert second - first == record_size(message(1))


def test_a_fan_out_is_stored_once_and_lives_until_its_last_reference(house: House) -> None:
    made = message(1)
    addresses = {house.put(made) for _ in range(3)}
    assert len(addresses) == 1
    address = addresses.pop()
    house.store.flush()
    assert house.store.status()["writes"] == 1
    house.release(address)
    house.release(address)
    house.check_all()
    house.release(address)
    assert house.store.status()["bodies"] == 0


def test_after_the_fan_out_the_same_object_is_another_message(house: House) -> None:
    made = message(1)
    first = house.put(made)
    house.store.end_fanout()
    assert house.put(made) != first


def test_the_same_body_with_another_envelope_is_another_message(house: House) -> None:
    body = b"shared" + FRAME_END
    first = house.put((Envelope("x", "a", b""), body))
    second = house.put((Envelope("x", "b", b""), body))
    assert first != second
    house.check_all()


def test_a_fan_out_whose_first_queue_acks_before_the_second_puts_has_its_body(house: House) -> None:
    made = message(1)
    house.release(house.put(made))
    second = house.put(made)
    assert same(house.store.read(second), made)


def test_a_queue_that_leaves_takes_only_its_own_references(house: House) -> None:
    shared, own = message(1), message(2)
    address = house.put(shared)
    house.put(shared)
    left = house.put(own)
    house.release(address)
    house.release(left)
    house.commit()
    assert house.live() == {address: 1}
    house.check_all()


def test_add_reference_counts(house: House) -> None:
    address = house.put(message(1))
    house.store.add_reference(address)
    house.release(address)
    assert same(house.store.read(address), message(1))
    house.store.release(address)
    with pytest.raises(BadBody):
        house.store.read(address)


def test_a_body_that_nobody_wants_cannot_be_referred_to(house: House) -> None:
    address = house.put(message(1))
    house.release(address)
    with pytest.raises(KeyError):
        house.store.add_reference(address)
    with pytest.raises(KeyError):
        house.store.release(address)


# --- the write buffer -----------------------------------------------------------------------------


def test_a_body_that_is_released_before_the_flush_is_never_written(house: House) -> None:
    for number in range(3):
        house.release(house.put(message(number)))
    house.store.flush()
    assert house.store.status()["writes"] == 0
    assert house.store.status()["elided"] == 3
    assert house.machine.contents() == {}


def test_what_is_left_around_a_released_body_is_written_in_its_place(house: House) -> None:
    addresses = [house.put(message(number, 20)) for number in range(3)]
    house.release(addresses[1])
    house.commit()
    assert house.store.status()["writes"] == 2
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    again.check_all()


def test_what_was_put_is_written_with_one_call(house: House) -> None:
    house.put(message(1, 10))
    house.put(message(2, 10))
    before = len(house.machine.calls)
    house.store.flush()
    written = [path for name, path in house.machine.calls[before:] if name == "pwrite"]
    # One for the head of the new file, one for the records.
    assert written == [first_file(house)] * 2
    house.put(message(3, 10))
    before = len(house.machine.calls)
    house.store.flush()
    assert [name for name, _ in house.machine.calls[before:]] == ["pwrite"]


def test_the_buffer_is_written_when_it_is_full(house: House) -> None:
    house.put(message(1, 100))
    assert house.store.status()["writes"] == 0
    house.put(message(2, 100))
    assert house.store.status()["writes"] == 2
    assert house.store.status()["buffered_bytes"] == 0


def test_the_names_of_a_new_file_and_of_the_folders_above_are_synced_with_its_first_records(house: House) -> None:
    house.put(message(1))
    house.store.flush()
    assert "sync_dir" not in [name for name, _ in house.machine.calls], "nothing is synced while it is written"
    above = ["", "vhosts", "vhosts/v1", "vhosts/v1/shared"]
    assert [file.path for file in house.store.current_file_to_sync()] == [*above, FOLDER, first_file(house)]
    house.put(message(2))
    house.store.flush()
    assert [file.path for file in house.store.current_file_to_sync()] == [first_file(house)]
    house.put(message(3, 500))
    house.store.flush()
    assert house.store.current_file_to_sync()[0].path == FOLDER


def test_a_folder_that_was_handed_out_is_closed_when_the_journal_is_durable(house: House) -> None:
    house.put(message(1))
    house.store.flush()
    folder = house.store.current_file_to_sync()[0]
    house.commit()
    with pytest.raises(OSError, match="closed"):
        folder.fdatasync()


def test_files_to_sync_are_given_out_once_for_each_write(house: House) -> None:
    house.put(message(1))
    house.store.flush()
    assert [file.path for file in house.store.current_file_to_sync()][-1] == first_file(house)
    assert house.store.current_file_to_sync() == []
    house.put(message(2))
    house.store.flush()
    assert len(house.store.current_file_to_sync()) == 1


def test_a_file_that_is_to_be_synced_stays_open_until_the_journal_is_durable(house: House) -> None:
    house.put(message(1, 400))
    house.store.flush()
    handles = house.store.current_file_to_sync()[-1:]
    # Rolls: the first file is complete.
    house.put(message(2, 400))
    house.store.flush()
    handles += house.store.current_file_to_sync()[-1:]
    # The disk was full, and the journal tries again.
    for done in house.waiting:
        done(False)
    house.waiting.clear()
    handles += house.store.current_file_to_sync()
    for file in handles:
        file.fdatasync()
    for done in house.waiting:
        done(True)
    with pytest.raises(OSError, match="closed"):
        handles[0].fdatasync()
    handles[1].fdatasync()


def test_a_full_disk_in_a_flush_is_reported_and_nothing_is_lost(house: House) -> None:
    house.machine.plan.fail(errno.ENOSPC, "pwrite", forever=True)
    addresses = [house.put(message(number, 100)) for number in range(5)]
    with pytest.raises(OSError, match="ENOSPC"):
        house.store.flush()
    house.check_all()
    assert house.store.status()["writes"] == 0
    house.machine.plan.heal()
    house.commit()
    assert house.store.status()["writes"] == 5
    again, unreadable = house.restarted(house.machine.crash(lambda _: 0), house.durable)
    assert unreadable == []
    assert sorted(again.live()) == addresses
    again.check_all()


@pytest.mark.parametrize("call", ["create", "pwrite", "make_dir"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_flush_that_failed_anywhere_succeeds_later(call: str, nth: int) -> None:
    house = House(SimFiles(FaultPlan(survival=Survival.NOTHING)))
    house.store.start({})
    house.machine.plan.fail(errno.ENOSPC, call, nth=nth)
    for number in range(4):
        house.put(message(number, 90))
        # With or without an error: what matters is that a later one succeeds.
        try_to_flush(house)
    house.commit()
    again, unreadable = house.restarted(house.machine.crash(lambda _: 0), house.durable)
    assert unreadable == []
    assert len(again.live()) == 4
    again.check_all()


def try_to_flush(house: House) -> None:
    try:
        house.store.flush()
    except OSError:
        house.check_all()


def test_short_writes_are_finished(house: House) -> None:
    house.machine.plan.short_write(7, forever=True)
    house.put(message(1))
    house.put(message(2))
    house.commit()
    again, unreadable = house.restarted(house.machine.crash(lambda _: 0), house.durable)
    assert unreadable == []
    again.check_all()


# --- files ----------------------------------------------------------------------------------------


def test_files_roll_at_their_limit_and_not_before() -> None:
    size = record_size(message(1))
    exact = MessageStoreOptions(file_bytes=FILE_HEAD_BYTES + 2 * size)
    house = House(options=exact)
    addresses = [house.put(message(number % 10)) for number in range(5)]
    assert [address >> 32 for address in addresses] == [1, 1, 2, 2, 3]
    house.commit()
    assert [len(data) for data in house.machine.contents().values()] == [exact.file_bytes] * 2 + [
        FILE_HEAD_BYTES + size
    ]


@pytest.mark.parametrize(("size", "has_its_own"), [(499, False), (500, True), (501, True)])
def test_a_body_of_the_limit_has_a_file_to_itself(house: House, size: int, has_its_own: bool) -> None:
    small = house.put(message(1, 0))
    large = house.put(message(2, size))
    after = house.put(message(3, 0))
    assert (small >> 32, large >> 32) == (1, 2)
    # 499 bytes do not fit behind the first and begin the next file, which goes on; 500 stand apart.
    assert after >> 32 == (1 if has_its_own else 3)
    house.commit()
    house.check_all()


def test_a_file_with_one_large_body_goes_as_soon_as_the_body_does(house: House) -> None:
    large = house.put(message(1, 5000))
    house.put(message(2))
    house.put(message(3, 500))
    house.commit()
    assert house.names() == ["00000001.pms", "00000002.pms", "00000003.pms"]
    house.release(large)
    house.commit()
    house.compact()
    assert house.names() == ["00000002.pms", "00000003.pms"]
    assert house.store.status()["compactions"] == 0


def test_an_empty_body_is_a_body(house: House) -> None:
    address = house.put((Envelope("", "", b""), FRAME_END))
    house.commit()
    assert house.store.read(address)[1] == FRAME_END


def test_handles_are_few_whatever_the_number_of_files(house: House) -> None:
    for number in range(40):
        house.put(message(number, 500))
        house.commit()
    house.check_all()
    assert len(house.handles) <= 4
    house.store.close()
    assert len(house.handles) == 0


def test_real_files_do_the_same(tmp_path: object) -> None:
    files = OsFiles(str(tmp_path))
    store = MessageStore(files, FOLDER, HandleCache(files), TINY, True, InlineSyncer().submit, lambda done: done(True))
    assert store.start({}) == []
    made = {store.put(*message(number)): message(number) for number in range(20)}
    store.flush()
    for file in store.current_file_to_sync():
        file.fdatasync()
    for address in list(made)[::3]:
        store.release(address)
        del made[address]
    while store.compact_some(200):
        pass
    store.close()
    store = MessageStore(files, FOLDER, HandleCache(files), TINY, True, InlineSyncer().submit, lambda done: done(True))
    assert store.start(dict.fromkeys(made, 1)) == []
    assert all(same(store.read(address), made[address]) for address in made)
    store.close()


# --- start ----------------------------------------------------------------------------------------


def test_a_start_removes_the_files_that_nobody_refers_to(house: House) -> None:
    addresses = [house.put(message(number, 500)) for number in range(4)]
    house.commit()
    again, unreadable = house.restarted(house.machine.kill(), {addresses[1]: 1})
    assert unreadable == []
    # The newest keeps its name, and nothing else.
    assert again.names() == ["00000002.pms", "00000004.pms"]
    assert len(again.machine.contents()[f"{FOLDER}/00000004.pms"]) == FILE_HEAD_BYTES
    again.check_all()


def test_a_start_does_not_read_what_nobody_refers_to(house: House) -> None:
    addresses = [house.put(message(number, 30)) for number in range(20)]
    house.commit()
    again, _ = house.restarted(house.machine.kill(), {addresses[2]: 1})
    reads = [path for name, path in again.machine.calls if name == "pread"]
    files = len(set(reads))
    # The head of each file, and the head of one record.
    assert len(reads) == files + 1


def test_no_address_is_given_again_after_everything_was_removed(house: House) -> None:
    given = {house.put(message(number, 500)) for number in range(3)}
    house.commit()
    machine = house.machine
    for _ in range(3):
        house, _ = house.restarted(machine.kill(), {})
        machine = house.machine
    address = house.put(message(9, 500))
    assert address not in given
    assert address >> 32 == 4


def test_references_are_counted_as_recovery_says(house: House) -> None:
    address = house.put(message(1))
    house.commit()
    again, _ = house.restarted(house.machine.kill(), {address: 3})
    for _ in range(3):
        assert again.is_good(address)
        again.release(address)
    assert again.store.status()["bodies"] == 0


def test_a_missing_file_is_named_by_the_addresses_in_it(house: House) -> None:
    addresses = [house.put(message(number, 200)) for number in range(6)]
    house.commit()
    house.machine.delete(first_file(house))
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == [address for address in addresses if address >> 32 == 1]
    assert unreadable
    again.check_all()


def test_an_address_behind_every_file_is_named_and_never_given(house: House) -> None:
    far = 77 << 32 | FILE_HEAD_BYTES
    again, unreadable = house.restarted(house.machine.kill(), {far: 1})
    assert unreadable == [far]
    assert again.put(message(1)) >> 32 == 78


def test_a_file_that_disappears_is_reported_when_it_is_read(house: House) -> None:
    address = house.put(message(1, 500))
    house.commit()
    house.store.current_file_to_sync()
    house.machine.delete(first_file(house))
    with pytest.raises(BadBody, match=f"{address:#x}") as caught:
        house.store.read(address)
    assert caught.value.address == address


def test_a_cut_file_is_named_by_the_addresses_that_are_gone(house: House) -> None:
    addresses = [house.put(message(number, 20)) for number in range(3)]
    house.commit()
    house.machine.truncate_durable(first_file(house), (addresses[2] & 0xFFFF) - 1)
    _, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == addresses[1:]


def test_a_sector_that_cannot_be_read_once_is_read_again(house: House) -> None:
    house.put(message(1))
    house.commit()
    house.machine.plan.fail(errno.EIO, "pread")
    house.check_all()


def test_too_many_open_files_are_not_a_lost_body(house: House) -> None:
    address = house.put(message(1, 500))
    house.commit()
    house.store.current_file_to_sync()
    house.machine.plan.fail(errno.EMFILE, "open")
    with pytest.raises(OSError, match="EMFILE"):
        house.store.read(address)
    house.check_all()


def test_a_file_with_a_damaged_body_is_kept_for_whoever_looks_at_it(house: House) -> None:
    address = house.put(message(1, 500))
    house.put(message(2))
    house.commit()
    house.machine.flip(first_file(house), FILE_HEAD_BYTES + 1, 0)
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == [address]
    again.compact()
    assert "00000001.pms" in again.names()
    assert again.store.status()["damaged_files"] == 1
    # The next start is not asked for the body any more.
    last, unreadable = again.restarted(again.machine.kill(), again.durable)
    assert unreadable == []
    assert "00000001.pms" not in last.names()


def test_a_damaged_file_head_costs_nothing(house: House) -> None:
    house.put(message(1))
    house.commit()
    house.machine.zero_block(first_file(house), 0, FILE_HEAD_BYTES)
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    again.check_all()


def test_a_file_of_a_later_version_stops_the_start_and_says_what_to_do(house: House) -> None:
    house.put(message(1))
    house.commit()
    machine = house.machine.kill()
    path = f"{FOLDER}/{house.names()[0]}"
    head = bytearray(file_head(1, False, FOLDER))
    head[4] = 2
    file = machine.open(path)
    file.pwrite([bytes(head[:-4]), crc32(head[:-4]).to_bytes(4, "little")], 0)
    with pytest.raises(UnknownVersion, match="version 2"):
        House(machine).store.start(house.durable)


def test_other_names_in_the_folder_are_left_alone(house: House) -> None:
    house.put(message(1))
    house.commit()
    house.machine.create(f"{FOLDER}/notes.txt").close()
    house.machine.create(f"{FOLDER}/00000009-c.tmp").close()
    again, _ = house.restarted(house.machine.kill(), house.durable)
    assert again.names() == ["00000001.pms", "notes.txt"]


def test_a_transient_store_is_empty_after_a_start() -> None:
    house = House(persistent=False)
    house.put(message(1))
    house.store.flush()
    assert house.names()
    assert house.store.current_file_to_sync() == []
    assert not [call for call in house.machine.calls if call[0] in ("sync_dir", "fdatasync")]
    again = House(house.machine.kill(), persistent=False)
    assert again.store.start({}) == []
    assert again.names() == []
    address = again.put(message(2))
    again.store.flush()
    again.check_all()
    assert address


def test_a_transient_store_closes_the_files_that_are_complete() -> None:
    house = House(persistent=False)
    for number in range(10):
        house.put(message(number, 500))
        house.store.flush()
    house.check_all()
    open_handles = [house.machine.disk.file(path).handles for path in house.machine.contents()]
    assert sum(open_handles) <= house.handles.limit


# --- damage ---------------------------------------------------------------------------------------


def hostile_messages() -> list[tuple[Envelope, bytes]]:
    """Bodies that look like what the store writes itself."""
    envelope, body = message(7)
    inner = encode_record(-1, envelope, body, -1, 1 << 32 | FILE_HEAD_BYTES)
    other = encode_record(-1, envelope, body, -1, 2 << 32 | FILE_HEAD_BYTES)
    return [
        (envelope, inner + FRAME_END),
        (envelope, file_head(1, True, FOLDER) + other + FRAME_END),
        (envelope, other + encode_table([1 << 32 | 64], [64], len(other)) + FRAME_END),
        (Envelope("x", "y", inner[:200]), other * 2 + FRAME_END),
    ]


def test_bodies_that_are_records_and_files_themselves_come_back() -> None:
    house = House(options=MessageStoreOptions(file_bytes=1500, buffer_bytes=1))
    dead = [house.put(message(number, 100)) for number in range(4)]
    addresses = [house.put(made) for made in hostile_messages()]
    house.put(message(8, 600))
    for address in dead:
        house.release(address)
    house.release(addresses[1])
    house.commit()
    house.compact()
    assert house.store.status()["compactions"] >= 1
    house.check_all()
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    again.check_all()


def test_a_bad_bit_costs_the_body_that_it_is_in_and_nothing_else() -> None:
    house = House(options=MessageStoreOptions(file_bytes=500))
    addresses = [house.put(message(number, 30)) for number in range(8)]
    for address in addresses[:5]:
        if address != addresses[2]:
            house.release(address)
    house.put(hostile_messages()[0])
    house.commit()
    house.compact()
    assert any("-c" in name for name in house.names())
    pristine = house.machine.copy()
    costly = 0
    for path, data in pristine.contents().items():
        for at in range(len(data)):
            machine = pristine.copy()
            machine.flip(path, at, at % 8)
            again, unreadable = house.restarted(machine, house.durable)
            # Wrong bytes would be noticed here.
            lost = [address for address in again.live() if not again.is_good(address)]
            assert len(lost) + len(unreadable) <= 1, f"{path} byte {at}"
            costly += len(lost) + len(unreadable)
    # Each byte of a wanted record, and no byte of a head, a table or a dead record.
    assert costly == house.store.status()["live_bytes"]


def test_files_that_changed_places_are_not_believed(house: House) -> None:
    addresses = [house.put(message(number, 500)) for number in range(2)]
    house.commit()
    house.machine.swap(f"{FOLDER}/00000001.pms", f"{FOLDER}/00000002.pms")
    for address in addresses:
        with pytest.raises(BadBody, match="another"):
            house.store.read(address)
    _, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == addresses


# --- a model --------------------------------------------------------------------------------------


class StoreModel(RuleBasedStateMachine):
    """Any order of calls: references are counted right, and bodies are there exactly as long as they are wanted."""

    addresses = Bundle("addresses")

    def __init__(self) -> None:
        super().__init__()
        self.house = House(SimFiles(FaultPlan(survival=Survival.NOTHING)))
        self.house.store.start({})
        self.number = 0
        self.last = message(0)

    @rule(target=addresses, size=st.sampled_from((0, 1, 60, 430, 499, 500, 900)))
    def put(self, size: int) -> int:
        self.number += 1
        self.last = message(self.number, size)
        return self.house.put(self.last)

    @rule(target=addresses)
    def put_the_same_again(self) -> int:
        return self.house.put(self.last)

    @rule(address=consumes(addresses))
    def release(self, address: int) -> None:
        if self.house.refs[address] > 0:
            self.house.release(address)

    @rule()
    def end_fanout(self) -> None:
        self.house.store.end_fanout()

    @rule()
    def flush(self) -> None:
        self.house.store.flush()

    @rule()
    def commit(self) -> None:
        self.house.commit()

    @rule(bytes_max=st.sampled_from((1, 300, 10_000)))
    def compact(self, bytes_max: int) -> None:
        self.house.store.compact_some(bytes_max)

    @rule()
    def lose_power(self) -> None:
        self.house, unreadable = self.house.restarted(self.house.machine.crash(lambda _: 0), self.house.durable)
        assert unreadable == []

    @rule()
    def restart_cleanly(self) -> None:
        self.house.commit()
        self.house.store.close()
        self.house, unreadable = self.house.restarted(self.house.machine.copy(), self.house.durable)
        assert unreadable == []

    @invariant()
    def everything_is_there(self) -> None:
        self.house.check_all()
        assert self.house.store.status()["bodies"] == len(self.house.live())


def test_any_order_of_calls_keeps_the_count() -> None:
    run_state_machine_as_test(
        StoreModel, settings=settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
    )


@given(sizes=st.lists(st.integers(0, 700), min_size=1, max_size=12), buffer_bytes=st.integers(1, 2000))
def test_bodies_of_any_size_come_back_from_any_buffer(sizes: list[int], buffer_bytes: int) -> None:
    house = House(options=MessageStoreOptions(file_bytes=700, own_file_bytes=500, buffer_bytes=buffer_bytes))
    for number, size in enumerate(sizes):
        house.put(message(number, size))
    house.check_all()
    house.commit()
    again, unreadable = house.restarted(house.machine.kill(), house.durable)
    assert unreadable == []
    again.check_all()


# --- the format -----------------------------------------------------------------------------------


def test_the_format_is_the_documented_one() -> None:
    numbers = [1, 7, 1, crc32(b"vhosts/5e/shared/persistent")]
    head = b"PnMs" + b"".join([number.to_bytes(4, "little") for number in numbers]) + bytes(40)
    assert file_head(7, True, "vhosts/5e/shared/persistent") == head + crc32(head).to_bytes(4, "little")
    addresses = (3 << 32 | 64).to_bytes(8, "little") + (9 << 32 | 80).to_bytes(8, "little")
    entries = addresses + (64).to_bytes(4, "little") + (164).to_bytes(4, "little")
    end = b"PnMt" + (2).to_bytes(4, "little") + (200).to_bytes(4, "little")
    table = entries + end + crc32(entries + end + bytes(4)).to_bytes(4, "little")
    assert encode_table([3 << 32 | 64, 9 << 32 | 80], [64, 164], 200) == table
