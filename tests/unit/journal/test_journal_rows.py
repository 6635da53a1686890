"""What is gathered comes back as it was."""

from __future__ import annotations

import pytest
from journal_house import House, bodies, envelope, fields, replayed

from penstock.journal.format import rows
from penstock.journal.format.envelopes import NO_ENVELOPE
from penstock.journal.format.layout import REFERENCE_BODY
from penstock.message import Entry, Envelope, Incoming, unlike
from penstock.wire.properties import Properties, encode_properties

SETTLED = [
    rows.DELIVERED,
    rows.ACKED,
    rows.REJECTED,
    rows.REQUEUED,
    rows.EXPIRED,
    rows.DEAD_LETTERED,
    rows.DROPPED,
    rows.PURGED,
    rows.FETCHED,
    rows.LOST,
    rows.MOVED,
    rows.GIVEN,
    rows.RETURNED,
]


def test_a_published_run_comes_back_with_envelope_and_bodies() -> None:
    house = House()
    sent = envelope("k", priority=7)
    first = house.journal.publish(3, 40, Incoming(sent, bodies(b"one", b"", b"three")), 1234)
    found = house.journal.batches.read(*house.commit())
    entries = [entry for entry in found[first : first + 3] if entry is not None]
    assert [fields(entry[0]) for entry in entries] == [fields(sent)] * 3
    assert [entry[1] for entry in entries] == bodies(b"one", b"", b"three")
    row = replayed(house.files).rows[-1]
    assert row == (40, 3, 0, 3, 0, first, rows.PUBLISHED, rows.PERSISTENT | rows.SHARED_PROPS, 7, 1234)


@pytest.mark.parametrize("kind", SETTLED)
def test_every_kind_of_settlement_is_one_row_for_its_run(kind: int) -> None:
    house = House()
    house.journal.settle(kind, 2, 10, 5, 500)
    house.commit()
    found = replayed(house.files)
    assert found.rows[-1] == (10, 2, 0, 5, -1, -1, kind, 0, 0, 500)
    assert found.end.next_lsn == house.journal.next_lsn == 1 + 5


def test_settlements_that_go_on_are_one_row_and_others_are_not() -> None:
    house = House()
    for kind, queue_no, seq_id in ((3, 1, 5), (3, 1, 6), (3, 1, 7), (3, 1, 9), (4, 1, 10), (4, 2, 11)):
        house.journal.settle(kind, queue_no, seq_id, 1, 10)
    house.publish(0, [b"a"], 2)
    house.journal.settle(4, 2, 12, 1, 10)
    house.commit()
    found = [(row[6], row[1], row[0], row[3], row[9]) for row in replayed(house.files).rows if row[6] != rows.NAME]
    assert found == [
        (3, 1, 5, 3, 30),
        (3, 1, 9, 1, 10),
        (4, 1, 10, 1, 10),
        (4, 2, 11, 1, 10),
        (rows.PUBLISHED, 2, 0, 1, -1),
        (4, 2, 12, 1, 10),
    ]


def test_settlements_that_go_on_beyond_what_a_row_can_count_are_two_rows() -> None:
    house = House()
    most = 2**31 - 1
    house.journal.settle(rows.PURGED, 1, 7, most - 1, 10)
    house.journal.settle(rows.PURGED, 1, 7 + most - 1, 1, 10)
    house.journal.settle(rows.PURGED, 1, 7 + most, 1, 10)
    house.commit()
    found = [(row[0], row[3], row[9]) for row in replayed(house.files).rows if row[6] == rows.PURGED]
    assert found == [(7, most, 20), (7 + most, 1, 10)]


def test_definitions_and_names_come_back_as_texts() -> None:
    house = House()
    house.journal.define(b'{"queue": "q"}')
    house.publish(0, [b"a"], 4)
    house.journal.forget_queue(4)
    found = house.journal.batches.read(*house.commit())
    assert (NO_ENVELOPE, b'{"queue": "q"}') in found
    assert (NO_ENVELOPE, b"queue 4") in found
    seen = replayed(house.files)
    assert seen.kinds() == [rows.DEFINE, rows.NAME, rows.NAME, rows.PUBLISHED, rows.FORGET]
    assert seen.rows[-1][1] == 4


def test_a_fan_out_stores_its_bodies_once() -> None:
    house = House()
    shared = bodies(b"body" * 100)
    incoming = Incoming(envelope(), shared)
    places = {house.journal.publish(number, 0, incoming, -1) for number in (1, 2, 3)}
    house.commit()
    assert len(places) == 1
    assert house.bytes().count(b"body" * 100) == 1
    assert replayed(house.files).bodies == {(number, 0): shared[0] for number in (1, 2, 3)}


def test_a_fan_out_over_two_batches_is_stored_in_each() -> None:
    house = House()
    incoming = Incoming(envelope(), bodies(b"body"))
    house.journal.publish(1, 0, incoming, -1)
    house.commit()
    house.journal.publish(2, 0, incoming, -1)
    assert house.journal.batches.read(*house.commit())[-1] is not None
    assert house.bytes().count(b"body") == 2


def test_shared_properties_are_stored_once_for_a_run() -> None:
    house = House()
    properties = b"\x80\x00\x0atext/plain"
    first = house.journal.publish(1, 0, Incoming(envelope(properties=properties), bodies(b"a", b"b", b"c")), -1)
    found = house.journal.batches.read(*house.commit())
    assert house.bytes().count(b"text/plain") == 1
    assert [entry[0].properties for entry in found[first:] if entry is not None] == [properties] * 3


def test_the_expiration_of_an_envelope_comes_back() -> None:
    house = House()
    everything = Properties(
        content_type="a/b",
        content_encoding="gzip",
        headers={"x": ("I", 1)},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
    )
    sent = [
        Envelope("x", "k", encode_properties(everything), True, 3, 60000),
        Envelope("x", "k", encode_properties(Properties(expiration="0")), True, 0, 0),
        Envelope("x", "k", encode_properties(Properties(reply_to="r")), True, 0, -1),
        # No properties that a publisher could have sent: not worth an error when they are read.
        Envelope("x", "k", b"\x01\x00\x09", True, 0, -1),
        Envelope("", "k\udcff", b"", True, 0, -1),
    ]
    for seq_id, one in enumerate(sent):
        house.journal.publish(1, seq_id, Incoming(one, bodies(b"b")), -1)
    found = house.journal.batches.read(*house.commit())
    published = [entry[0] for entry in found if entry is not None and entry[0] is not NO_ENVELOPE]
    assert [fields(one) for one in published] == [fields(one) for one in sent]


def mixed_entries() -> list[Entry]:
    same, other = envelope("a"), envelope("a", b"\x10\x00\x01")
    return [
        (same, bodies(b"0")[0], None),
        (same, bodies(b"1")[0], None),
        (other, bodies(b"2")[0], None),
        (envelope("b"), bodies(b"3")[0], None),
        (envelope("b", priority=5), bodies(b"4")[0], None),
        (same, bodies(b"5")[0], None),
        (same, bodies(b"6")[0], None),
        (envelope("a", persistent=False), bodies(b"7")[0], None),
    ]


def test_messages_with_envelopes_of_their_own_are_rows_by_address_and_priority_over_consecutive_entries() -> None:
    house = House()
    entries = mixed_entries()
    incoming = unlike(entries)
    first = house.journal.publish(1, 20, incoming, 99)
    assert house.journal.publish(2, 0, incoming, -1) == first
    found = house.journal.batches.read(*house.commit())[first : first + len(entries)]
    assert [(fields(entry[0]), entry[1]) for entry in found if entry is not None] == [
        (fields(entry[0]), entry[1]) for entry in entries
    ]
    published = [row for row in replayed(house.files).rows if row[6] == rows.PUBLISHED]
    stretches = [(row[0], row[3], row[5] - first, row[7], row[8], row[9]) for row in published if row[1] == 1]
    assert stretches == [
        (20, 3, 0, rows.PERSISTENT, 0, 99),
        (23, 1, 3, rows.PERSISTENT | rows.SHARED_PROPS, 0, 99),
        (24, 1, 4, rows.PERSISTENT | rows.SHARED_PROPS, 5, 99),
        (25, 2, 5, rows.PERSISTENT | rows.SHARED_PROPS, 0, 99),
        (27, 1, 7, rows.SHARED_PROPS, 0, 99),
    ]
    assert [row[5] for row in published if row[1] == 2] == [row[5] for row in published if row[1] == 1]


def test_the_same_entries_published_anew_are_stored_again() -> None:
    house = House()
    entries = mixed_entries()
    first = house.journal.publish(1, 0, unlike(entries), -1)
    entries[0] = (entries[0][0], bodies(b"new")[0], None)
    assert house.journal.publish(2, 0, unlike(entries), -1) != first
    house.commit()
    assert replayed(house.files).bodies[2, 0] == bodies(b"new")[0]


def test_references_are_addresses_and_sizes() -> None:
    house = House()
    first = house.journal.publish_references(1, 8, envelope(), [2**40, 17], [70_000, 5_000], 55)
    found = house.journal.batches.read(*house.commit())
    entries = [entry for entry in found[first:] if entry is not None]
    assert [REFERENCE_BODY.unpack(entry[1]) for entry in entries] == [(2**40, 70_000), (17, 5_000)]
    assert fields(entries[1][0]) == fields(envelope())
    row = replayed(house.files).rows[-1]
    assert (row[0], row[3], row[9]) == (8, 2, 55)
    assert row[7] == rows.PERSISTENT | rows.SHARED_PROPS | rows.REFERENCE


def test_a_route_is_named_in_each_batch_and_a_queue_once_in_the_segment() -> None:
    house = House()
    for seq_id in range(3):
        house.publish(seq_id, [b"a"])
        house.publish(seq_id, [b"a"], 2)
        house.commit()
    named = [row[8] for row in replayed(house.files).rows if row[6] == rows.NAME]
    assert named.count(rows.NAME_QUEUE) == 2
    assert named.count(rows.NAME_ROUTE) == 3


def test_a_queue_that_gets_another_name_is_named_again() -> None:
    house = House()
    house.commit_one(b"a")
    house.journal.names.name_queue(1, b"queue 1")
    house.commit_one(b"b")
    house.journal.names.name_queue(1, b"renamed")
    house.commit_one(b"c")
    named = [row for row in replayed(house.files).rows if row[6] == rows.NAME and row[8] == rows.NAME_QUEUE]
    assert len(named) == 2
    assert b"renamed" in house.bytes()


def test_every_event_has_its_lsn() -> None:
    house = House(lsn=1000)
    house.publish(0, [b"a", b"b", b"c"])
    # Two names, three messages.
    assert house.journal.next_lsn == 1005
    house.commit()
    house.journal.settle(rows.ACKED, 1, 0, 2, 2)
    house.journal.define(b"{}")
    house.commit()
    found = replayed(house.files)
    assert found.lsns == [1000, 1005]
    assert found.end.next_lsn == house.journal.next_lsn == house.journal.durable_lsn == 1008


def test_an_empty_body_and_a_large_one_stand_in_one_batch() -> None:
    house = House()
    large = bytes(range(256)) * 9000
    house.publish(0, [b"", large, b"x"])
    found = house.journal.batches.read(*house.commit())
    assert [entry[1] for entry in found[2:] if entry is not None] == bodies(b"", large, b"x")
