"""Segments: when a new one is begun, what it repeats, and how one goes."""

from __future__ import annotations

import pytest
from journal_house import FOLDER, House, Salts, bodies, held_house, replayed
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.journal.format import rows
from penstock.journal.format.layout import FIRST_BATCH_AT, HEADER_BYTES, decode_header, segment_number, segment_path
from penstock.journal.options import NONE, OS, JournalOptions
from penstock.journal.reading.batch import view_at
from penstock.journal.reading.replay import RottenBatch, cut_torn_tail
from penstock.journal.reading.segment_reader import SegmentReader

TINY = JournalOptions(segment_bytes=FIRST_BATCH_AT + 1200, batch_bytes_max=400)


def test_a_segment_is_left_when_a_full_batch_would_no_longer_fit() -> None:
    house = House(options=TINY)
    for seq_id in range(12):
        house.publish(seq_id, [b"x" * 100])
        house.commit()
    numbers = house.journal.segments.numbers()
    assert len(numbers) > 2
    assert numbers == list(range(1, len(numbers) + 1))
    for number in numbers[:-1]:
        assert TINY.segment_bytes - TINY.batch_bytes_max < len(house.bytes(number)) <= TINY.segment_bytes
        assert house.journal.segments.size_bytes(number) == len(house.bytes(number))
    found = replayed(house.files)
    assert found.bodies == {(1, seq_id): bodies(b"x" * 100)[0] for seq_id in range(12)}
    assert found.damage() == ([], [])


def test_batches_beyond_the_soft_limit_do_not_overfill_a_segment() -> None:
    house = House(options=JournalOptions(segment_bytes=FIRST_BATCH_AT + 5000, batch_bytes_max=100))
    for _ in range(20):
        house.commit_one(b"x" * 1500)
    assert len(house.journal.segments.numbers()) > 5
    assert max(len(house.bytes(number)) for number in house.journal.segments.numbers()) <= FIRST_BATCH_AT + 5000


def test_a_batch_larger_than_a_segment_stands_in_one_all_the_same() -> None:
    house = House(options=TINY)
    house.publish(0, [b"x" * 5000, b"y"])
    house.commit()
    house.publish(2, [b"z"])
    house.commit()
    assert house.journal.segments.numbers() == [1, 2]
    assert len(replayed(house.files).bodies) == 3


def test_queues_are_named_again_in_each_segment() -> None:
    house = House()
    for seq_id in range(3):
        house.publish(seq_id, [b"a"])
        house.journal.settle(rows.ACKED, 2, seq_id, 1, 1)
        house.commit()
        house.journal.roll()
    house.publish(9, [b"a"])
    house.commit()
    assert house.journal.segments.numbers() == [1, 2, 3, 4]
    for number in (1, 2, 3):
        found = replayed(house.files, number, FIRST_BATCH_AT)
        named = [row[0] for row in found.rows if row[6] == rows.NAME and row[8] == rows.NAME_QUEUE]
        assert named[:2] == [1, 2]


def test_a_roll_with_rows_gathered_comes_behind_their_batch() -> None:
    house = House()
    house.publish(0, [b"a"])
    house.journal.roll()
    assert house.journal.segments.position() == (1, FIRST_BATCH_AT)
    assert house.commit() == (1, FIRST_BATCH_AT)
    assert house.journal.segments.position() == (2, FIRST_BATCH_AT)
    house.publish(1, [b"b"])
    assert house.commit() == (2, FIRST_BATCH_AT)


def test_an_empty_segment_is_not_left() -> None:
    house = House()
    house.journal.roll()
    house.journal.roll()
    assert house.journal.segments.position() == (1, FIRST_BATCH_AT)
    house.publish(0, [b"a"])
    house.commit()
    house.journal.roll()
    house.journal.roll()
    house.publish(1, [b"a"])
    assert house.commit() == (2, FIRST_BATCH_AT)


def test_a_roll_waits_for_the_sync_under_way() -> None:
    house = held_house()
    house.publish(0, [b"a"])
    house.journal.commit(urgent=True)
    house.journal.roll()
    house.publish(1, [b"b"])
    house.journal.commit(urgent=True)
    assert house.journal.segments.numbers() == [1]
    house.wait()
    house.held.answer()
    assert house.journal.segments.numbers() == [1, 2]
    assert house.held.answer() == ["journal", house.path(2)]


def test_the_first_batch_of_a_segment_vouches_for_the_last_of_the_one_before() -> None:
    house = House()
    _, pos = house.commit_one(b"a")
    house.journal.roll()
    lsn = house.journal.next_lsn
    house.commit_one(b"b")
    last = decode_header(house.bytes(1), pos, 1, pos)
    first = decode_header(house.bytes(2), FIRST_BATCH_AT, 2, FIRST_BATCH_AT)
    assert last is not None
    assert first is not None
    assert first.prev_crc == last.crc
    assert first.durable_lsn == first.first_lsn == lsn


def test_the_name_of_a_segment_is_durable_before_a_batch_in_it_counts() -> None:
    house = House(SimFiles(FaultPlan(Survival.NOTHING)))
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    house.journal.roll()
    house.publish(1, [b"b"])
    house.wait()
    house.journal.commit()
    assert house.answers == [True, True]
    after = house.files.crash(lambda _: 0)
    assert set(replayed(after).bodies) == {(1, 0), (1, 1)}


def test_each_segment_has_a_salt_of_its_own() -> None:
    house = House()
    house.commit_one(b"a")
    house.journal.roll()
    house.commit_one(b"b")
    salts = []
    for number in (1, 2):
        reader = SegmentReader(house.files, FOLDER, number)
        assert reader.head is not None
        salts.append(reader.head.salt)
        reader.close()
    source = Salts()
    assert salts == [source(), source()]


def test_a_restart_begins_a_segment_and_never_appends() -> None:
    house = House()
    house.commit_one(b"a")
    old = house.bytes(1)
    end = replayed(house.files).end
    cut_torn_tail(house.files, FOLDER, end)
    second = House(house.files, segment=end.next_segment, lsn=end.next_lsn)
    second.publish(1, [b"b"])
    assert second.commit() == (2, FIRST_BATCH_AT)
    assert second.bytes(1) == old
    found = replayed(house.files)
    assert found.damage() == ([], [])
    assert set(found.bodies) == {(1, 0), (1, 1)}


def test_a_removed_segment_is_gone_and_is_not_served_from_memory() -> None:
    house = House()
    place = house.commit_one(b"a")
    house.journal.roll()
    house.commit_one(b"b")
    house.journal.batches.read(*place)
    house.journal.remove_segment(1)
    assert house.journal.segments.numbers() == [2]
    with pytest.raises(RottenBatch):
        house.journal.batches.read(*place)


def test_the_newest_segment_is_not_removed() -> None:
    house = House()
    house.commit_one(b"a")
    with pytest.raises(AssertionError):
        house.journal.remove_segment(1)
    assert house.journal.segments.numbers() == [1]


def test_a_segment_goes_only_when_the_name_of_a_later_one_is_durable() -> None:
    house = held_house()
    house.commit_one(b"a")
    house.journal.roll()
    house.held.answer()
    house.commit_one(b"b")
    # Segment 2 is there, and a loss of power may still take its name.
    assert (house.journal.segments.numbers(), house.journal.named_segment()) == ([1, 2], 1)
    with pytest.raises(AssertionError):
        house.journal.remove_segment(1)
    house.held.answer()
    assert house.journal.named_segment() == 2
    house.journal.remove_segment(1)
    assert house.journal.segments.numbers() == [2]


@pytest.mark.parametrize("confirm_sync", [OS, NONE])
def test_where_commits_are_not_synced_names_are_before_a_segment_goes(confirm_sync: str) -> None:
    house = House(options=JournalOptions(confirm_sync=confirm_sync))
    house.commit_one(b"a")
    house.journal.roll()
    house.commit_one(b"b")
    assert house.journal.named_segment() == 2
    house.journal.remove_segment(1)
    assert house.path(2) in house.files.crash(lambda count: count - 1).contents()


def test_a_segment_knows_when_it_was_begun() -> None:
    house = House()
    begun = house.clock.wall_ms()
    assert house.journal.segments.begun_ms(1) == begun
    house.commit_one(b"a")
    house.clock.advance(60)
    house.journal.roll()
    house.commit_one(b"b")
    assert house.journal.segments.begun_ms(1) == begun
    assert house.journal.segments.begun_ms(2) == begun + 60_000
    house.files.zero_block(house.path(1), 0, FIRST_BATCH_AT + HEADER_BYTES)
    assert house.journal.segments.begun_ms(1) == -1


def test_bytes_written_counts_batches() -> None:
    house = House()
    house.commit_one(b"a")
    house.journal.roll()
    house.commit_one(b"b")
    batches = sum(len(house.bytes(number)) - FIRST_BATCH_AT for number in (1, 2))
    assert house.journal.bytes_written == batches


def test_file_names_and_numbers_agree() -> None:
    assert [segment_number(name) for name in ("00000012.pnj", "123456789.pnj")] == [12, 123456789]
    for name in ("12.pnj", "00000012", "0000001x.pnj", "00000012.pnj.tmp", "-0000012.pnj", "٠٠٠٠٠٠١٢.pnj"):
        assert segment_number(name) == -1
    assert segment_number(segment_path(FOLDER, 7).rpartition("/")[2]) == 7


def test_every_batch_of_a_segment_stands_where_the_one_before_ends() -> None:
    house = House()
    places = [house.commit_one(b"x" * size) for size in range(20)]
    reader = SegmentReader(house.files, FOLDER, 1)
    pos = FIRST_BATCH_AT
    for _, expected in places:
        assert pos == expected
        assert pos % 8 == 0
        view = view_at(reader, pos)
        assert view is not None
        pos = view.end
    reader.close()
    assert pos == len(house.bytes())
