"""Very large bodies in the shared store: written a slice at a time, and whole before anybody relies on them."""

from __future__ import annotations

import pytest
from message_store_house import House, message

from penstock.store.shared.message_store import MessageStoreOptions

SLICED = MessageStoreOptions(file_bytes=600, own_file_bytes=500, buffer_bytes=300, slice_bytes=100)


def test_a_body_with_a_file_of_its_own_is_written_slice_by_slice() -> None:
    house = House(options=SLICED)
    house.store.start({})
    address = house.put(message(1, 620))
    sizes = [house.disk_bytes()]
    while house.store.is_behind():
        house.store.write_slice()
        sizes.append(house.disk_bytes())
        assert house.is_good(address)
        house.store.check_invariants()
    assert len(sizes) == 1 + 7
    assert house.store.is_written(address)
    house.commit()
    again, unreadable = house.restarted(house.machine, house.durable)
    assert not unreadable
    again.check_all()


@pytest.mark.parametrize("slices", [0, 1, 3])
def test_a_flush_writes_what_is_left_of_a_body(slices: int) -> None:
    house = House(options=SLICED)
    house.store.start({})
    house.put(message(1, 620))
    for _ in range(slices):
        house.store.write_slice()
    house.put(message(2, 40))
    house.commit()
    assert not house.store.is_behind()
    house.check_all()
    again, unreadable = house.restarted(house.machine, house.durable)
    assert not unreadable
    again.check_all()


def test_a_body_that_is_released_between_two_slices_is_written_no_further() -> None:
    house = House(options=SLICED)
    house.store.start({})
    address = house.put(message(1, 620))
    house.store.write_slice()
    house.release(address)
    assert not house.store.is_behind()
    before = house.disk_bytes()
    house.commit()
    assert house.disk_bytes() <= before
    house.put(message(2, 620))
    house.commit()
    house.check_all()
