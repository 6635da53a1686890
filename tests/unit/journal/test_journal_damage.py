"""Torn tails and rot: each is told from the other, nothing wrong is ever served, and little is lost.

The segment under test has four batches of different kinds. Damage is done to the bytes of the file, and a fresh replay
says what it makes of it.
"""

from __future__ import annotations

from functools import cache

import pytest
from journal_house import FOLDER, Found, House, bodies, envelope, replayed
from tests.disk.sim_files import SimFiles

from penstock.journal.format import rows
from penstock.journal.format.layout import (
    FIRST_BATCH_AT,
    HEAD_BYTES,
    HEAD_COPY_AT,
    HEADER_BYTES,
    decode_header,
    encode_head,
)
from penstock.journal.options import JournalOptions
from penstock.journal.reading.batch import RottenBatch
from penstock.journal.reading.replay import BatchView, cut_torn_tail, replay
from penstock.journal.reading.segment_reader import SegmentReader

IDLE = JournalOptions(idle_s=1.0)


class Whole:
    """An undamaged segment, and where its batches stand."""

    def __init__(self, mark: bool) -> None:
        house = House(options=IDLE)
        house.publish(0, [b"a" * 30, b"b" * 30])
        house.commit()
        house.journal.publish_references(2, 0, envelope("r"), [77], [5000], -1)
        house.journal.define(b"{definitions}")
        house.commit()
        house.journal.settle(rows.ACKED, 1, 0, 2, 60)
        house.commit()
        house.publish(2, [b"c" * 21], 3)
        house.commit()
        if mark:
            house.clock.advance(1)
            house.journal.commit()
        self.files = house.files
        self.path = house.path()
        self.data = house.bytes()
        found = replayed(self.files)
        assert found.damage() == ([], [])
        self.starts = [pos for _, pos in found.places]
        self.lsns = [*found.lsns, found.end.next_lsn]
        self.ends = [*self.starts[1:], len(self.data)]
        self.bodies = found.bodies

    def batch_at(self, byte: int) -> int:
        return next(index for index, end in enumerate(self.ends) if byte < end)

    def padding(self) -> set[int]:
        """Bytes that mean nothing: between the copies of the head, and behind each heap."""
        free = set(range(HEAD_BYTES, HEAD_COPY_AT))
        for start, end in zip(self.starts, self.ends, strict=True):
            header = decode_header(self.data, start, 1, start)
            assert header is not None
            free |= set(range(header.heap_at + header.props_bytes + header.body_bytes, end))
        return free


@cache
def whole(mark: bool = False) -> Whole:
    return Whole(mark)


def replay_readable(files: SimFiles) -> Found:
    """A replay whose visitor takes the bodies that it can get."""
    found = Found()

    def visit(view: BatchView) -> None:
        try:
            found.visit(view)
        except RottenBatch:
            found.lsns[-1] = view.first_lsn

    found.end = replay(files, FOLDER, 0, 0, visit)
    return found


def check_served(found: Found, intact: Whole) -> None:
    """Nothing is served that was not written."""
    for key, body in found.bodies.items():
        assert intact.bodies[key] == body


# --- torn tails -----------------------------------------------------------------------------------------


def test_a_last_batch_that_is_cut_at_any_byte_is_torn() -> None:
    intact = whole()
    start = intact.starts[-1]
    for size in range(start, len(intact.data)):
        files = intact.files.copy()
        files.truncate_durable(intact.path, size)
        found = replayed(files)
        torn = [(1, start, size - start, intact.lsns[-2])] if size > start else []
        assert found.damage() == (torn, []), size
        assert found.lsns == intact.lsns[:-2]
        assert found.end.next_lsn == intact.lsns[-2]


def test_a_last_batch_whose_end_is_zeros_is_torn() -> None:
    intact = whole()
    start = intact.starts[-1]
    ignored = intact.padding()
    for at in range(start, len(intact.data)):
        files = intact.files.copy()
        files.zero_block(intact.path, at, len(intact.data) - at)
        found = replayed(files)
        if set(range(at, len(intact.data))) - ignored:
            assert found.damage() == ([(1, start, len(intact.data) - start, intact.lsns[-2])], [])
        else:
            assert found.damage() == ([], [])


def test_a_torn_tail_is_cut_synced_and_the_next_life_goes_on_behind_it() -> None:
    intact = whole()
    files = intact.files.copy()
    files.truncate_durable(intact.path, len(intact.data) - 9)
    end = replayed(files).end
    cut_torn_tail(files, FOLDER, end)
    assert files.contents()[intact.path] == intact.data[: intact.starts[-1]]
    assert files.durable_bytes(intact.path) == intact.data[: intact.starts[-1]]
    house = House(files, segment=end.next_segment, lsn=end.next_lsn)
    house.publish(50, [b"after"])
    house.commit()
    found = replayed(files)
    assert found.damage() == ([], [])
    assert found.bodies[1, 50] == bodies(b"after")[0]
    assert found.end.next_lsn == house.journal.next_lsn


def test_a_tail_that_was_only_in_the_page_cache_is_synced() -> None:
    house = House(options=JournalOptions(confirm_sync="os"))
    house.commit_one(b"a")
    files = house.files.kill()
    assert files.durable_bytes(house.path()) != house.bytes()
    cut_torn_tail(files, FOLDER, replayed(files).end)
    assert files.durable_bytes(house.path()) == house.bytes()


@pytest.mark.parametrize("byte", [5, HEADER_BYTES + 8, -20])
def test_cut_off_bytes_that_come_back_are_torn_again_and_not_rot(byte: int) -> None:
    intact = whole()
    files = intact.files.copy()
    at = intact.starts[-1] + byte if byte >= 0 else len(intact.data) + byte
    files.flip(intact.path, at, 0)
    end = replayed(files).end
    # Not cut. The next life begins with the LSN of the torn batch, which proves that it never counted.
    House(files, segment=end.next_segment, lsn=end.next_lsn).commit_one(b"x")
    size = len(intact.data) - intact.starts[-1]
    expected = ([(1, intact.starts[-1], size, intact.lsns[-2])], [])
    found = replayed(files)
    assert found.damage() == expected
    assert found.lsns == [*intact.lsns[:-2], intact.lsns[-2]]
    # Not even if it can be read again.
    files.flip(intact.path, at, 0)
    again = replayed(files)
    assert (again.damage(), again.lsns) == (expected, found.lsns)


# --- rot --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [False, True])
def test_one_bit_anywhere_costs_its_batch_or_block_and_never_gives_wrong_bytes(mark: bool) -> None:
    intact = whole(mark)
    padding = intact.padding()
    last = len(intact.starts) - 1
    for byte in [*range(HEAD_BYTES + 2), *range(HEAD_COPY_AT - 2, len(intact.data))]:
        files = intact.files.copy()
        files.flip(intact.path, byte, byte % 8)
        found = replay_readable(files)
        check_served(found, intact)
        torn, rotten = found.damage()
        if byte in padding or byte < FIRST_BATCH_AT:
            assert (torn, rotten) == ([], []), byte
            assert found.bodies == intact.bodies
            continue
        batch = intact.batch_at(byte)
        header = decode_header(intact.data, intact.starts[batch], 1, intact.starts[batch])
        assert header is not None
        start, size = header.pos, header.end - header.pos
        if batch == last:
            assert (torn, rotten) == ([(1, start, size, intact.lsns[batch])], [])
            assert found.lsns == intact.lsns[:last]
        elif byte < header.heap_at:
            assert torn == []
            assert rotten == [(1, start, size, intact.lsns[batch], intact.lsns[batch + 1])]
            assert found.lsns == intact.lsns[:batch] + intact.lsns[batch + 1 : -1]
        else:
            # A body is checked when it is read.
            assert (torn, rotten) == ([], [])
            assert found.lsns == intact.lsns[:-1]


def test_a_commit_mark_makes_rot_of_damage_to_the_last_batch() -> None:
    plain, marked = whole(False), whole(True)
    assert marked.data[: len(plain.data)] == plain.data
    byte = plain.starts[-1] + 20
    files = marked.files.copy()
    files.flip(marked.path, byte, 0)
    size = len(plain.data) - plain.starts[-1]
    assert replayed(files).damage() == ([], [(1, plain.starts[-1], size, plain.lsns[-2], plain.lsns[-1])])


def test_zeroed_sectors_cost_the_batches_that_they_touch() -> None:
    house = House()
    for number in range(40):
        house.commit_one(b"%02d" % number * (number * 7))
    intact = replayed(house.files)
    data = house.bytes()
    starts = [pos for _, pos in intact.places]
    ends = [*starts[1:], len(data)]
    for sector in range(0, len(data), 512):
        files = house.files.copy()
        files.zero_block(house.path(), sector, 512)
        found = replay_readable(files)
        torn, _ = found.damage()
        touched = [index for index in range(40) if starts[index] < sector + 512 and ends[index] > sector]
        lost = [lsn for lsn in intact.lsns if lsn not in found.lsns]
        assert set(lost) <= {intact.lsns[index] for index in touched}
        assert bool(torn) == (39 in touched)
        for key, body in found.bodies.items():
            assert intact.bodies[key] == body
        for index in range(40):
            if index not in touched:
                assert (1, index) in found.bodies


def test_a_4_kib_block_takes_only_one_copy_of_the_head() -> None:
    house = House()
    for number in range(20):
        house.commit_one(b"%02d" % number * 200)
    for block in range(0, len(house.bytes()), 4096):
        files = house.files.copy()
        files.zero_block(house.path(), block, 4096)
        found = replay_readable(files)
        outside = [
            index
            for index, (_, pos) in enumerate(replayed(house.files).places)
            if pos + 1000 <= block or pos >= block + 4096
        ]
        assert {(1, index) for index in outside} <= set(found.bodies)


def test_the_copy_of_the_head_helps_when_head_and_first_batch_are_damaged() -> None:
    house = House()
    for number in range(3):
        house.commit_one(b"%d" % number)
    files = house.files.copy()
    files.flip(house.path(), 9, 0)
    files.flip(house.path(), FIRST_BATCH_AT + 9, 0)
    found = replayed(files)
    assert set(found.bodies) == {(1, 1), (1, 2)}
    assert len(found.end.rotten) == 1


# --- bytes that only look like a batch --------------------------------------------------------------------


def test_a_body_with_earlier_batches_in_it_does_not_fool_the_search() -> None:
    house = House()
    house.commit_one(b"one")
    house.commit_one(b"two")
    copies = house.bytes()[FIRST_BATCH_AT:]
    # Where the copies would have to stand is nowhere near: any alignment of them is tried.
    hostile = b"".join([b"\0" * shift + copies for shift in range(8)])
    _, pos = house.commit_one(hostile)
    lsn = house.journal.next_lsn
    house.commit_one(b"last")
    before = replayed(house.files)
    assert before.bodies[1, 2] == bodies(hostile)[0]
    for damage in (pos, pos + 50, pos + HEADER_BYTES):
        files = house.files.copy()
        files.flip(house.path(), damage, 1)
        found = replayed(files)
        assert found.damage()[1] == [(1, pos, before.places[3][1] - pos, before.lsns[2], lsn)]
        assert set(found.bodies) == {(1, 0), (1, 1), (1, 3)}
    # As the last one it is torn, and nothing in it counts.
    files = house.files.copy()
    files.truncate_durable(house.path(), before.places[3][1] - 8)
    found = replayed(files)
    assert found.damage() == ([(1, pos, before.places[3][1] - 8 - pos, before.lsns[2])], [])


def test_a_body_with_a_perfect_batch_but_another_salt_does_not_fool_the_search() -> None:
    house = House()
    _, pos = house.commit_one(b"x" * 400)
    # The forger knows position, segment, LSN and format. The salt is all that is missing.
    header = decode_header(house.bytes(), pos, 1, pos)
    assert header is not None
    target = header.heap_at + 200 - header.heap_at % 8
    forger = House(SimFiles(), JournalOptions())
    forger.journal.segments.writer().pos = target
    forger.journal.segments.writer().salt ^= 1
    forger.journal.segments.writer().seed ^= 1
    forger.journal.next_lsn = forger.journal.durable_lsn = 100
    forger.journal.begin_batch()
    forger.commit_one(b"forged")
    forged = forger.bytes()[target:]
    data = house.bytes()
    evil = data[:target] + forged + data[target + len(forged) :]
    files = SimFiles()
    files.make_dir(FOLDER)
    file = files.create(house.path())
    file.pwrite([evil], 0)
    file.fdatasync()
    files.flip(house.path(), pos + 3, 0)
    found = replayed(files)
    assert found.bodies == {}
    assert found.damage() == ([(1, pos, len(evil) - pos, 0)], [])


def test_a_header_counts_only_where_it_stands_and_with_the_salt_of_its_segment() -> None:
    house = House()
    _, pos = house.commit_one(b"one")
    data = house.bytes()
    assert decode_header(data, pos, 1, pos) is not None
    assert decode_header(data, pos, 1, pos + 8) is None
    assert decode_header(data, pos, 2, pos) is None
    assert decode_header(data, pos + 1, 1, pos) is None
    assert decode_header(data[:-1], len(data) - HEADER_BYTES, 1, pos) is None
    # The same batches behind the head of a segment with another salt.
    files = house.files.copy()
    file = files.open(house.path())
    file.pwrite([encode_head(99, 1, 0, 0)], 0)
    file.close()
    reader = SegmentReader(files, FOLDER, 1)
    assert reader.header_at(pos) is None
    reader.close()
    found = replayed(files)
    assert found.lsns == []
    assert found.damage() == ([(1, pos, len(data) - pos, 0)], [])


def test_a_search_accepts_no_batch_that_came_before_what_is_damaged() -> None:
    house = House()
    house.commit_one(b"one")
    _, pos = house.commit_one(b"two")
    reader = SegmentReader(house.files, FOLDER, 1)
    assert reader.head is not None
    first_lsn = house.journal.next_lsn - 2
    found = reader.find_header(FIRST_BATCH_AT, first_lsn)
    assert found is not None
    assert found.pos == pos
    assert reader.find_header(FIRST_BATCH_AT, first_lsn + 1) is None
    assert reader.find_header(pos, 0) is None
    reader.close()


def test_a_batch_that_does_not_follow_the_one_before_it_is_not_taken() -> None:
    houses = []
    for text in (b"one", b"two"):
        # The same salts, so that only the checksum of the header before tells them apart.
        house = House()
        house.commit_one(text)
        houses.append((house, house.commit_one(b"end")[1]))
    (left, pos), (right, _) = houses
    files = left.files.copy()
    file = files.open(left.path())
    file.pwrite([right.bytes()[pos:]], pos)
    file.close()
    found = replayed(files)
    assert found.bodies == {(1, 0): bodies(b"one")[0]}
    assert len(found.end.torn) == 1


def test_batches_of_another_segment_are_not_taken() -> None:
    house = House()
    house.commit_one(b"one")
    house.journal.roll()
    house.commit_one(b"two")
    files = house.files.copy()
    files.swap(house.path(1), house.path(2))
    found = replayed(files)
    assert found.bodies == {}
    assert len(found.end.torn) + len(found.end.rotten) == 2


# --- over several segments --------------------------------------------------------------------------------


def three_segments() -> tuple[House, Found]:
    house = House()
    for number in range(6):
        house.commit_one(b"%d" % number * 20)
        if number % 2:
            house.journal.roll()
    found = replayed(house.files)
    assert [segment for segment, _ in found.places] == [1, 1, 2, 2, 3, 3]
    return house, found


def test_damage_to_the_last_batch_of_an_older_segment_is_rot() -> None:
    house, intact = three_segments()
    for byte in (0, 30, HEADER_BYTES + 10):
        files = house.files.copy()
        pos = intact.places[3][1]
        files.flip(house.path(2), pos + byte, 4)
        found = replayed(files)
        size = len(house.bytes(2)) - pos
        assert found.damage() == ([], [(2, pos, size, intact.lsns[3], intact.lsns[4])])
        assert found.lsns == intact.lsns[:3] + intact.lsns[4:]


def test_an_older_segment_that_became_shorter_is_rot() -> None:
    house, intact = three_segments()
    pos = intact.places[3][1]
    for size in (pos, pos + 1, pos + 100):
        files = house.files.copy()
        files.truncate_durable(house.path(2), size)
        found = replayed(files)
        assert found.damage() == ([], [(2, pos, size - pos, intact.lsns[3], intact.lsns[4])])


def test_damage_to_the_heap_of_a_batch_in_an_older_segment_is_left_to_its_readers() -> None:
    house, intact = three_segments()
    files = house.files.copy()
    files.flip(house.path(2), len(house.bytes(2)) - 20, 4)
    found = replay_readable(files)
    assert found.damage() == ([], [])
    assert found.lsns == intact.lsns
    assert (1, 3) not in found.bodies


def test_a_missing_segment_is_a_rotten_range() -> None:
    house, intact = three_segments()
    files = house.files.copy()
    files.delete(house.path(2))
    found = replayed(files)
    assert found.damage() == ([], [(2, 0, 0, intact.lsns[2], intact.lsns[4])])
    assert found.lsns == intact.lsns[:2] + intact.lsns[4:]


def test_a_missing_segment_to_begin_with_is_rotten_too() -> None:
    house, intact = three_segments()
    files = house.files.copy()
    files.delete(house.path(2))
    found = replayed(files, 2, intact.places[3][1])
    assert found.lsns == intact.lsns[4:]
    assert [bad[:3] + bad[4:] for bad in found.damage()[1]] == [(2, intact.places[3][1], 0, intact.lsns[4])]
    assert found.end.next_segment == 4


def test_a_newest_segment_without_a_batch_is_fine() -> None:
    house = House()
    house.commit_one(b"a")
    house.journal.close()
    House(house.files, segment=2, lsn=house.journal.next_lsn).journal.close()
    for size in (FIRST_BATCH_AT, 4096, 64, 10, 0):
        files = house.files.copy()
        files.truncate_durable(house.path(2), size)
        found = replayed(files)
        assert found.end.rotten == []
        assert found.end.next_lsn == house.journal.next_lsn
        assert found.end.next_segment == 3
        assert [tail.bytes for tail in found.end.torn] in ([], [size])
        # An older segment is durable, whatever the newest one looks like.
        files.flip(house.path(1), len(house.bytes(1)) - 12, 2)
        assert replay_readable(files).lsns == found.lsns


def test_a_segment_without_head_and_first_batch_is_rotten_if_it_has_held_more() -> None:
    house, intact = three_segments()
    files = house.files.copy()
    files.zero_block(house.path(3), 0, intact.places[4][1] + HEADER_BYTES)
    found = replayed(files)
    assert found.lsns == intact.lsns[:4]
    assert found.damage() == ([], [(3, 0, len(house.bytes(3)), intact.lsns[4], intact.end.next_lsn)])
    assert found.end.next_lsn == intact.end.next_lsn
    files = house.files.copy()
    files.zero_block(house.path(2), 0, intact.places[4][1] + HEADER_BYTES)
    found = replayed(files)
    assert found.lsns == intact.lsns[:2] + intact.lsns[4:]
    assert found.damage() == ([], [(2, 0, len(house.bytes(2)), intact.lsns[2], intact.lsns[4])])


# --- where a replay begins --------------------------------------------------------------------------------


def test_a_replay_begins_at_its_position() -> None:
    house, intact = three_segments()
    for index, (segment, pos) in enumerate(intact.places):
        found = replayed(house.files, segment, pos)
        assert found.lsns == intact.lsns[index:]
        assert found.damage() == ([], [])
        assert found.end.next_lsn == intact.end.next_lsn


def test_a_replay_from_the_end_knows_the_next_lsn() -> None:
    house, intact = three_segments()
    found = replayed(house.files, 3, len(house.bytes(3)))
    assert found.lsns == []
    assert found.end.next_lsn == intact.end.next_lsn
    assert (found.end.next_segment, found.end.tail_segment) == (4, 3)


def test_damage_before_the_position_is_not_the_business_of_the_replay() -> None:
    house, intact = three_segments()
    files = house.files.copy()
    files.flip(house.path(2), intact.places[2][1] + 9, 0)
    found = replayed(files, 2, intact.places[3][1])
    assert found.damage() == ([], [])
    assert found.lsns == intact.lsns[3:]
    files.flip(house.path(2), intact.places[3][1] + 9, 0)
    found = replayed(files, 2, intact.places[3][1])
    assert len(found.end.rotten) == 1
    assert found.lsns == intact.lsns[4:]


def test_an_empty_folder_has_nothing_and_begins_with_a_number_never_used() -> None:
    files = SimFiles()
    found = replayed(files, 1, 0)
    assert found.damage() == ([], [])
    assert (found.end.next_lsn, found.end.tail_segment) == (0, -1)
    cut_torn_tail(files, FOLDER, found.end)
    House(files, segment=found.end.next_segment)
    assert replayed(files).end.next_segment == found.end.next_segment + 1
