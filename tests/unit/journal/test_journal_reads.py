"""Reading batches back: checked, cached, and only as lossy as the damage."""

from __future__ import annotations

import errno

import pytest
from journal_house import House, bodies, envelope

from penstock.journal.entries import FOLD_AFTER
from penstock.journal.format.layout import BLOCK_BYTES, FIRST_BATCH_AT, HEADER_BYTES, decode_header
from penstock.journal.options import JournalOptions
from penstock.journal.reading.batch_cache import SEGMENTS_OPEN_MAX
from penstock.journal.reading.replay import RottenBatch
from penstock.message import Incoming

COLD = JournalOptions(cache_bytes=0)


def reads(house: House) -> int:
    return [name for name, _ in house.files.calls].count("pread")


def heap_at(house: House, pos: int) -> int:
    header = decode_header(house.bytes(), pos, 1, pos)
    assert header is not None
    return header.heap_at


def test_damage_in_a_block_costs_the_entries_that_touch_it() -> None:
    house = House(options=COLD)
    texts = [bytes([65 + number]) * 1000 for number in range(20)]
    first = house.publish(0, texts)
    place = house.commit()
    heap = heap_at(house, place[1])
    data = house.bytes()
    # Where each body begins in the heap.
    starts = [data.index(text) - heap for text in texts]
    for block in range(1, starts[-1] // BLOCK_BYTES):
        damaged = House(house.files.copy(), COLD, segment=2)
        damaged.files.flip(house.path(), heap + block * BLOCK_BYTES + 99, 3)
        found = damaged.journal.batches.read(*place)[first:]
        hit = [
            index
            for index, start in enumerate(starts)
            if start < (block + 1) * BLOCK_BYTES and start + 1001 > block * BLOCK_BYTES
        ]
        assert 4 <= len(hit) <= 6
        for index, entry in enumerate(found):
            if index in hit:
                assert entry is None
            else:
                assert entry is not None
                assert entry[1] == bodies(texts[index])[0]


def test_damaged_properties_cost_those_who_share_them() -> None:
    house = House(options=COLD)
    large = b"\x00\x00" + b"p" * 5000
    mine = house.journal.publish(1, 0, Incoming(envelope(properties=large), bodies(b"a", b"b")), -1)
    other = house.journal.publish(1, 2, Incoming(envelope(), bodies(b"c")), -1)
    place = house.commit()
    house.files.flip(house.path(), house.bytes().index(b"ppp") + 4500, 0)
    # The second block: properties of the first run, and everything that follows.
    found = house.journal.batches.read(*place)
    assert found[mine : mine + 2] == [None, None]
    assert found[other] is None
    again = House(options=COLD)
    again.journal.publish(1, 0, Incoming(envelope(), bodies(b"x" * BLOCK_BYTES * 2)), -1)
    last = again.journal.publish(1, 1, Incoming(envelope("other", large), bodies(b"c")), -1)
    place = again.commit()
    again.files.flip(again.path(), len(again.bytes()) - 5000, 0)
    assert again.journal.batches.read(*place)[last] is not None


def test_a_batch_of_very_many_is_put_together_as_it_comes_and_is_the_same() -> None:
    house = House(options=COLD)
    journal = house.journal
    texts = [b"%d" % number for number in range(3 * FOLD_AFTER)]
    runs = [bodies(*texts[at : at + 999]) for at in range(0, len(texts), 999)]
    made = envelope()
    firsts: list[int] = []
    seq_id = 0
    for run in runs:
        incoming = Incoming(made, run)
        first = journal.publish(1, seq_id, incoming, -1)
        # Fan-out: the bodies are there already, also when they were the last before others were put together.
        assert journal.publish(2, seq_id, incoming, -1) == first
        firsts.append(first)
        seq_id += len(run)
    place = house.commit()
    whole = journal.batches.read(*place)
    for first, run in zip(firsts, runs, strict=True):
        found = whole[first : first + len(run)]
        assert [entry[1] for entry in found if entry is not None] == run


def test_a_batch_with_a_damaged_header_or_rows_is_refused() -> None:
    house = House(options=COLD)
    place = house.commit_one(b"a")
    for offset in (0, 40, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 100):
        damaged = House(house.files.copy(), COLD, segment=2)
        damaged.files.flip(house.path(), place[1] + offset, 7)
        with pytest.raises(RottenBatch) as caught:
            damaged.journal.batches.read(*place)
        assert (caught.value.segment, caught.value.pos) == place


def test_a_place_where_no_batch_stands_is_refused() -> None:
    house = House(options=COLD)
    segment, pos = house.commit_one(b"a")
    for wrong in ((segment, pos + 8), (segment, 0), (segment, 10**9), (segment + 5, pos)):
        with pytest.raises(RottenBatch):
            house.journal.batches.read(*wrong)


def test_a_disk_that_cannot_read_says_nothing_about_the_batch() -> None:
    house = House(options=COLD)
    place = house.commit_one(b"a")
    house.files.plan.fail(errno.EIO, "pread", forever=True)
    with pytest.raises(OSError, match="EIO"):
        house.journal.batches.read(*place)
    house.files.plan.heal()
    assert house.journal.batches.read(*place)[-1] is not None


def test_a_file_that_became_shorter_loses_what_is_missing() -> None:
    house = House(options=COLD)
    first = house.publish(0, [b"x" * 3000, b"y" * 3000, b"z" * 3000])
    place = house.commit()
    house.files.truncate_durable(house.path(), len(house.bytes()) - 100)
    with pytest.raises(RottenBatch):
        house.journal.batches.read(*place)
    assert first > 0


def test_batches_are_read_while_others_are_appended() -> None:
    house = House(options=COLD)
    places = []
    for number in range(30):
        places.append(house.commit_one(b"text %d" % number))
        for index, place in enumerate(places):
            entry = house.journal.batches.read(*place)[-1]
            assert entry is not None
            assert entry[1] == bodies(b"text %d" % index)[0]


def test_a_batch_that_was_read_is_kept_until_others_need_the_room() -> None:
    house = House(options=JournalOptions(cache_bytes=3500))
    places = [house.commit_one(b"x" * 1000) for _ in range(3)]
    house.journal.batches.read(*places[0])
    count = reads(house)
    assert house.journal.batches.read(*places[0]) is house.journal.batches.read(*places[0])
    assert reads(house) == count
    # Two fit. The one that was not used goes.
    kept = house.journal.batches.read(*places[0])
    middle = house.journal.batches.read(*places[1])
    assert house.journal.batches.read(*places[0]) is kept
    house.journal.batches.read(*places[2])
    assert house.journal.batches.read(*places[0]) is kept
    assert house.journal.batches.read(*places[1]) is not middle


def test_a_batch_larger_than_the_cache_is_read_and_not_kept() -> None:
    house = House(options=JournalOptions(cache_bytes=500))
    large, small = house.commit_one(b"x" * 1000), house.commit_one(b"y")
    kept = house.journal.batches.read(*small)
    assert house.journal.batches.read(*large) is not house.journal.batches.read(*large)
    assert house.journal.batches.read(*small) is kept


def test_few_segments_are_open_at_a_time() -> None:
    house = House(options=COLD)
    places = []
    for number in range(SEGMENTS_OPEN_MAX * 2):
        places.append(house.commit_one(b"text %d" % number))
        house.journal.roll()
    for _ in range(2):
        for place in places:
            assert house.journal.batches.read(*place)[-1] is not None
    handles = [house.files.disk.file(house.path(number)).handles for number in house.journal.segments.numbers()]
    assert sum(handles) == SEGMENTS_OPEN_MAX + 1


def test_a_write_that_found_no_room_does_not_spoil_the_next_read() -> None:
    house = House(options=COLD)
    first = house.commit_one(b"a")
    house.files.plan.capacity_bytes = len(house.bytes()) + 150
    house.publish(1, [b"b" * 300])
    house.files.plan.fail(errno.ENOSPC, "truncate")
    house.journal.commit(urgent=True)
    house.journal.batches.read(*first)
    assert house.journal.failed is not None
    healthy = House(options=COLD)
    first = healthy.commit_one(b"a")
    healthy.files.plan.short_write(150, error=errno.ENOSPC)
    healthy.publish(1, [b"b" * 300])
    # The window of the reader holds the partial write.
    healthy.journal.disk_full = lambda: healthy.journal.batches.read(*first)[-1] is not None
    entry = healthy.journal.batches.read(*healthy.commit())[-1]
    assert entry is not None
    assert entry[1] == bodies(b"b" * 300)[0]


def test_the_first_batch_stands_behind_both_copies_of_the_head() -> None:
    house = House()
    assert house.commit_one(b"a") == (1, FIRST_BATCH_AT)
    assert house.bytes()[:64] == house.bytes()[4096:4160]
