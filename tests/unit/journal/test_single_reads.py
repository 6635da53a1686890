"""Single reads: the same entry as in the whole batch, checked, and cheap however the ids come."""

from __future__ import annotations

import errno
import random
import sys

import pytest
from journal_house import FOLDER, House, bodies, envelope, fields

from penstock.journal.format import rows
from penstock.journal.format.layout import BLOCK_BYTES, HEADER_BYTES, BatchHeader, decode_header
from penstock.journal.options import JournalOptions
from penstock.journal.reading.batch import Decoded, RottenBatch
from penstock.journal.reading.batch_cache import SEGMENTS_OPEN_MAX
from penstock.journal.reading.light_view import LightView, light_view_at
from penstock.journal.reading.segment_reader import SegmentReader
from penstock.message import Entry, Incoming, MessageProps, unlike

# Nothing is decoded whole and kept, so each single read goes through a view.
NO_BATCHES = JournalOptions(cache_bytes=0)
NOTHING_KEPT = JournalOptions(cache_bytes=0, view_bytes=0)
Plain = tuple[tuple[object, ...], bytes] | None


def plain(found: Decoded) -> Plain:
    return None if found is None else (fields(found[0]), found[1])


def header_of(house: House, place: tuple[int, int]) -> BatchHeader:
    header = decode_header(house.bytes(place[0]), place[1], *place)
    assert header is not None
    return header


def view_of(house: House, place: tuple[int, int]) -> tuple[SegmentReader, LightView]:
    """A view that nobody keeps, so that no count of reads leads to a whole batch."""
    reader = SegmentReader(house.files, FOLDER, place[0])
    view = light_view_at(reader, place[1])
    assert view is not None
    return reader, view


def preads(house: House) -> int:
    return [name for name, _ in house.files.calls].count("pread")


def random_entries(rng: random.Random, count: int) -> list[Entry]:
    """Neighbours share some things and not others."""
    keys = ["a", "b", "täst", "k" * 255]
    large = b"\x00\x00" + b"p" * rng.choice([10, 3000])
    properties = [b"", b"\x00\x00", b"\x10\x00\x02", b"\x01\x00\x0260", large]
    props = [None, MessageProps(5), MessageProps(7)]
    entries: list[Entry] = []
    for _ in range(count):
        made = envelope(rng.choice(keys), rng.choice(properties), rng.choice([0, 9, -1, 255]), rng.random() < 0.7)
        for _ in range(rng.choice([1, 1, 3])):
            body = rng.randbytes(rng.choice([0, 1, 40, 900, BLOCK_BYTES - 1, BLOCK_BYTES * 2]))
            entries.append((made, bodies(body)[0], rng.choice(props)))
    return entries


def gather(house: House, rng: random.Random) -> None:
    """Rows of every kind, in any order."""
    journal = house.journal
    seq_id = 0
    for _ in range(rng.randrange(1, 25)):
        choice = rng.randrange(7)
        queues = rng.sample(range(1, 10), rng.choice([1, 1, 3]))
        if choice == 0:
            run = bodies(*[rng.randbytes(rng.choice([0, 30, 700, 5000])) for _ in range(rng.choice([1, 2, 20]))])
            made = envelope(f"run {rng.randrange(3)}", rng.choice([b"", b"\x00\x00", b"\x00\x00" + b"q" * 5000]))
            for queue_no in queues:
                journal.publish(queue_no, seq_id, Incoming(made, run), -1)
        elif choice in (1, 2):
            mixed = random_entries(rng, rng.choice([1, 4]))
            for queue_no in queues:
                journal.publish(queue_no, seq_id, unlike(mixed), -1)
        elif choice == 3:
            journal.publish_references(1, seq_id, envelope("r"), [77, 2**40], [5000, 1], -1)
        elif choice == 4:
            journal.define(b"{definitions %d}" % seq_id)
        elif choice == 5:
            journal.settle(rng.choice([rows.ACKED, rows.DELIVERED]), queues[0], seq_id, 2, 60)
        else:
            # The next row about this queue names it anew.
            journal.names.name_queue(queues[0], b"named %d" % seq_id)
        seq_id += 100


def assert_single_reads_equal_whole(house: House, place: tuple[int, int], order: random.Random) -> list[Plain]:
    whole = [plain(found) for found in house.journal.batches.read(*place)]
    reader, view = view_of(house, place)
    entries = list(range(len(whole)))
    order.shuffle(entries)
    assert {entry: plain(view.read(reader, entry)) for entry in entries} == dict(enumerate(whole))
    for entry in (-1, len(whole), len(whole) + 1000):
        assert view.read(reader, entry) is None
        assert house.journal.batches.read_one(*place, entry) is None
    for _ in range(10):
        first, count = order.randrange(len(whole) + 1), order.randrange(1, len(whole) + 3)
        wanted = whole[first : first + count]
        assert [plain(found) for found in view.read_run(reader, first, count)] == wanted
        assert [plain(found) for found in house.journal.batches.read_run(*place, first, count)] == wanted
    # And through the cache, which may choose either way.
    assert {entry: plain(house.journal.batches.read_one(*place, entry)) for entry in entries} == dict(enumerate(whole))
    reader.close()
    return whole


@pytest.mark.parametrize("seed", range(40))
def test_every_entry_of_a_batch_reads_as_it_does_in_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    house = House(options=rng.choice([NO_BATCHES, NOTHING_KEPT, JournalOptions()]))
    house.journal.define(b"so that no batch is empty")
    gather(house, rng)
    found = assert_single_reads_equal_whole(house, house.commit(), rng)
    assert None not in found


def test_a_commit_mark_has_no_entries() -> None:
    house = House(options=JournalOptions(idle_s=1.0))
    house.commit_one(b"a")
    segment, pos = house.journal.segments.position()
    house.clock.advance(1)
    house.journal.commit()
    assert house.journal.segments.position() == (segment, pos + HEADER_BYTES)
    assert house.journal.batches.read_one(segment, pos, 0) is None
    assert list(house.journal.batches.read(segment, pos)) == []


def test_a_batch_of_settlements_has_no_entries() -> None:
    house = House(options=NO_BATCHES)
    house.commit_one(b"a")
    house.journal.settle(rows.ACKED, 1, 0, 1, 1)
    assert house.journal.batches.read_one(*house.commit(), 0) is None


# --- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_damage_in_each_block_costs_the_same_entries_either_way(seed: int) -> None:
    rng = random.Random(seed)
    house = House(options=NO_BATCHES)
    # Names and properties of more than one block, so that each kind of text is hit alone.
    large = [(envelope(f"k{number}" * 20, b"\x00\x00" + b"p" * 600), b"body\xce", None) for number in range(20)]
    house.journal.publish(1, 0, unlike(large), -1)
    gather(house, rng)
    place = house.commit()
    header = header_of(house, place)
    intact = [plain(found) for found in house.journal.batches.read(*place)]
    assert header.blocks > 3
    for block in range(header.blocks):
        size = min(BLOCK_BYTES, header.props_bytes + header.body_bytes - block * BLOCK_BYTES)
        damaged = House(house.files.copy(), NO_BATCHES, segment=2)
        damaged.files.flip(house.path(), header.heap_at + block * BLOCK_BYTES + rng.randrange(size), rng.randrange(8))
        found = assert_single_reads_equal_whole(damaged, place, rng)
        assert None in found
        assert all(entry is None or entry == intact[index] for index, entry in enumerate(found))


def test_damage_in_front_of_the_heap_is_a_rotten_batch() -> None:
    house = House(options=NO_BATCHES)
    house.publish(0, [b"a" * 5000, b"b"])
    place = house.commit()
    for byte in range(header_of(house, place).heap_at - place[1]):
        damaged = House(house.files.copy(), NO_BATCHES, segment=2)
        damaged.files.flip(house.path(), place[1] + byte, byte % 8)
        with pytest.raises(RottenBatch) as caught:
            damaged.journal.batches.read_one(*place, 0)
        assert (caught.value.segment, caught.value.pos) == place


def test_a_block_that_is_damaged_after_the_view_was_made_is_noticed() -> None:
    house = House(options=NO_BATCHES)
    first = house.publish(0, [b"a" * BLOCK_BYTES, b"b" * BLOCK_BYTES * 2, b"c"])
    place = house.commit()
    assert house.journal.batches.read_one(*place, first + 2) is not None
    at = house.bytes().index(b"b" * 99) + BLOCK_BYTES
    house.files.flip(house.path(), at, 1)
    assert house.journal.batches.read_one(*place, first + 1) is None
    assert house.journal.batches.read_one(*place, first) is not None
    # What was damaged is read anew, and may be well again.
    house.files.flip(house.path(), at, 1)
    assert house.journal.batches.read_one(*place, first + 1) is not None


def test_a_file_that_became_shorter_loses_what_is_missing() -> None:
    house = House(options=NO_BATCHES)
    first = house.publish(0, [b"x" * BLOCK_BYTES * 2, b"y" * BLOCK_BYTES * 2])
    place = house.commit()
    assert house.journal.batches.read_one(*place, first + 1) is not None
    house.files.truncate_durable(house.path(), len(house.bytes()) - 100)
    assert house.journal.batches.read_one(*place, first + 1) is None
    # The view has met damage; a new one finds that the batch is not there as a whole.
    house.journal.close()
    with pytest.raises(RottenBatch):
        House(house.files.copy(), NO_BATCHES, segment=2).journal.batches.read_one(*place, first)


def test_places_where_no_batch_stands_are_refused() -> None:
    house = House(options=NO_BATCHES)
    segment, pos = house.commit_one(b"a")
    for wrong in ((segment, pos + 8), (segment, 0), (segment, 10**9), (segment + 5, pos)):
        with pytest.raises(RottenBatch):
            house.journal.batches.read_one(*wrong, 0)


# --- errors that pass -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_disk_that_cannot_read_says_nothing_about_the_batch(is_warm: bool) -> None:
    house = House(options=NO_BATCHES)
    first = house.publish(0, [b"a", b"b"])
    place = house.commit()
    if is_warm:
        assert house.journal.batches.read_one(*place, first + 1) is not None
    house.files.plan.fail(errno.EIO, "pread", forever=True)
    with pytest.raises(OSError, match="EIO"):
        house.journal.batches.read_one(*place, first)
    house.files.plan.heal()
    assert house.journal.batches.read_one(*place, first) is not None


def test_too_many_open_files_say_nothing_about_the_batch() -> None:
    house = House(options=NO_BATCHES)
    place = house.commit_one(b"a")
    house.files.plan.fail(errno.EMFILE, "open")
    with pytest.raises(OSError, match="EMFILE"):
        house.journal.batches.read_one(*place, 0)
    assert house.journal.batches.read_one(*place, 0) is not None


def test_a_read_that_fails_for_another_reason_leaves_the_cache_in_order() -> None:
    house = House(options=NO_BATCHES)
    first = house.publish(0, [b"a", b"b"])
    place = house.commit()
    house.journal.batches.read_one(*place, first + 1)
    house.files.plan.fail(errno.ENOMEM, "pread")
    with pytest.raises(OSError, match="ENOMEM"):
        house.journal.batches.read_one(*place, first)
    assert house.journal.batches.read_one(*place, first) is not None
    house.journal.roll()
    house.commit_one(b"c")
    house.journal.remove_segment(1)
    with pytest.raises(RottenBatch):
        house.journal.batches.read_one(*place, first)


# --- while others write -----------------------------------------------------------------------------------


def test_single_entries_are_read_while_batches_are_appended() -> None:
    house = House(options=NO_BATCHES)
    places: list[tuple[int, int]] = []
    entries: list[int] = []
    for number in range(30):
        entries.append(house.publish(number, [b"text %d" % number]))
        places.append(house.commit())
        for index, place in enumerate(places):
            found = house.journal.batches.read_one(*place, entries[index])
            assert found is not None
            assert found[1] == bodies(b"text %d" % index)[0]


def test_few_segments_are_open_at_a_time() -> None:
    house = House(options=NO_BATCHES)
    places = []
    for number in range(SEGMENTS_OPEN_MAX * 2):
        places.append(house.commit_one(b"text %d" % number))
        house.journal.roll()
    for _ in range(2):
        for place in places:
            assert house.journal.batches.read_one(*place, 0) is not None
    handles = [house.files.disk.file(house.path(number)).handles for number in house.journal.segments.numbers()]
    assert sum(handles) == SEGMENTS_OPEN_MAX + 1


# --- what is kept -----------------------------------------------------------------------------------------


def many(house: House, batches: int, count: int) -> list[tuple[int, int, int]]:
    """Batches of messages that share nothing; (segment, pos, entry) of each."""
    found: list[tuple[int, int, int]] = []
    for batch in range(batches):
        entries: list[Entry] = [
            (envelope("key", b"\x00\x00%d" % number), b"%d %d\xce" % (batch, number) * 30, MessageProps(number))
            for number in range(count)
        ]
        first = house.journal.publish(1, batch * count, unlike(entries), -1)
        place = house.commit()
        found.extend([(*place, first + number) for number in range(count)])
    return found


def test_a_view_is_made_once_and_a_read_costs_its_blocks() -> None:
    house = House(options=NO_BATCHES)
    places = many(house, 3, 200)
    places.sort(key=lambda place: -place[2])
    for segment, pos in sorted({place[:2] for place in places}):
        house.journal.batches.read_one(segment, pos, 150)
    before = preads(house)
    for place in places:
        assert house.journal.batches.read_one(*place) is not None
    # One for the properties, one for the body; the address was read before.
    assert preads(house) - before == 2 * len(places)


def test_views_stay_within_their_bytes_and_the_oldest_go() -> None:
    probe = House(options=NO_BATCHES)
    _, view = view_of(probe, many(probe, 1, 50)[0][:2])
    house = House(options=JournalOptions(cache_bytes=0, view_bytes=view.size_bytes * 2 + 500))
    places = many(house, 3, 50)
    first, second, third = places[7], places[57], places[107]

    def cost(place: tuple[int, int, int]) -> int:
        before = preads(house)
        assert house.journal.batches.read_one(*place) is not None
        return preads(house) - before

    cold = cost(first)
    assert cold > 2
    cost(second)
    assert cost(first) == 2
    cost(third)
    # The second was not used for longest.
    assert cost(first) == 2
    assert cost(third) == 2
    assert cost(second) > 2


def test_a_view_larger_than_the_room_is_used_and_not_kept() -> None:
    house = House(options=JournalOptions(cache_bytes=0, view_bytes=2000))
    places = many(house, 1, 300)
    for place in (places[70], places[3], places[200]):
        before = preads(house)
        assert house.journal.batches.read_one(*place) is not None
        assert preads(house) - before > 2


def test_a_view_counts_all_that_it_holds() -> None:
    house = House(options=NO_BATCHES)
    for count in (1, 40, 900):
        place = many(house, 1, count)[0]
        reader, view = view_of(house, place[:2])
        view.read(reader, place[2])
        held = [getattr(view, name) for name in view.__slots__]
        taken = sum(map(sys.getsizeof, held)) + sys.getsizeof(view)
        assert taken <= view.size_bytes <= taken + 2000
        # About 24 bytes for each message that shares nothing.
        assert view.size_bytes <= 1700 + 30 * (count + 20)


def test_a_removed_segment_is_forgotten_with_its_views() -> None:
    house = House(options=NO_BATCHES)
    first = house.publish(0, [b"a"])
    place = house.commit()
    assert house.journal.batches.read_one(*place, first) is not None
    house.journal.roll()
    house.commit_one(b"b")
    house.journal.remove_segment(place[0])
    with pytest.raises(RottenBatch):
        house.journal.batches.read_one(*place, first)


# --- which way --------------------------------------------------------------------------------------------


def is_decoded(house: House, place: tuple[int, int]) -> bool:
    """Whether the batch is there whole: then both ways hand out the same object."""
    # Never in order, so it changes nothing.
    alone = house.journal.batches.read_one(*place, 0)
    assert alone is not None
    return house.journal.batches.read(*place)[0] is alone


def test_a_batch_that_is_there_whole_is_used() -> None:
    house = House()
    places = many(house, 1, 50)
    whole = house.journal.batches.read(*places[0][:2])
    before = preads(house)
    for segment, pos, entry in places:
        assert house.journal.batches.read_one(segment, pos, entry) is whole[entry]
    assert house.journal.batches.read_one(*places[0][:2], len(whole)) is None
    assert preads(house) == before


def test_reads_out_of_order_never_decode_a_batch() -> None:
    house = House()
    places = many(house, 4, 400)
    batches = sorted({place[:2] for place in places})
    order = random.Random(3)
    order.shuffle(places)
    for place in places:
        house.journal.batches.read_one(*place)
    assert [is_decoded(house, batch) for batch in batches] == [False] * 4


def test_reads_in_order_decode_the_batch_before_long() -> None:
    house = House()
    places = many(house, 1, 400)
    before = preads(house)
    for place in places:
        assert house.journal.batches.read_one(*place) is not None
    assert preads(house) - before < len(places) // 4
    assert is_decoded(house, places[0][:2])


def test_reads_in_order_of_a_batch_that_cannot_be_kept_are_still_mostly_single() -> None:
    house = House(options=NO_BATCHES)
    places = many(house, 1, 400)
    house.journal.batches.read_one(*places[0])
    before = preads(house)
    for place in places[1:]:
        assert house.journal.batches.read_one(*place) is not None
    # Two for each, and a few for each time that it was decoded in vain.
    assert preads(house) - before < 3 * len(places)


@pytest.mark.parametrize("options", [NO_BATCHES, NOTHING_KEPT, JournalOptions()])
def test_runs_in_order_of_a_batch_too_large_to_keep_cost_what_they_take(options: JournalOptions) -> None:
    house = House(options=options)
    house.publish(0, [b"0123456789"] * 20_000)
    place = house.commit()
    first = house.journal.batches.read_run(*place, 0, 1)
    assert first
    before = house.files.pread_bytes
    found = [entry for at in range(1, 20_001, 200) for entry in house.journal.batches.read_run(*place, at, 200)]
    assert len(found) == 20_000
    # A block at each end of each run, twice: bodies and properties.
    assert house.files.pread_bytes - before < 20_000 * 11 + 100 * 4 * BLOCK_BYTES


def test_one_entry_of_a_small_batch_is_no_reason_to_decode_it() -> None:
    house = House()
    place = house.commit_one(b"a")
    for _ in range(5):
        assert house.journal.batches.read_one(*place, 0) is not None
    assert not is_decoded(house, place)


def test_backwards_is_not_in_order() -> None:
    house = House()
    places = many(house, 1, 100)
    for place in reversed(places):
        house.journal.batches.read_one(*place)
    assert not is_decoded(house, places[0][:2])
