"""What becomes of a message's properties on its way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.client.amqp import delays, envelope
from penstock.client.amqp.delivery import Delivery
from penstock.fields import Field, Table
from penstock.wire.methods import BasicDeliver
from penstock.wire.properties import Properties, decode_properties, encode_properties

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
NOW_MS = envelope.ms_since_epoch(NOW)


def delivered(properties: Properties, redelivered: bool = False) -> Delivery:
    return Delivery(BasicDeliver("t", 7, redelivered, "", "q"), properties, b"body")


def copied(properties: Properties, steps: int = 0, note: str | None = None) -> Properties:
    return envelope.copy_properties(delivered(properties), NOW, 3, note, steps, 1000)


def test_a_put_without_anything_has_no_headers() -> None:
    made = envelope.put_properties("id", NOW, 0.0, None)
    assert made == Properties(delivery_mode=2, message_id="id", timestamp=NOW_MS // 1000)


def test_a_time_to_live_of_nearly_nothing_is_a_millisecond() -> None:
    assert envelope.put_properties("id", NOW, 0.0, 0.0001).expiration == "1"


def test_a_delayed_put_has_its_time_to_live_in_a_header() -> None:
    made = envelope.put_properties("id", NOW, 0.05, 2.0)
    assert made.expiration is None
    assert made.headers is not None
    assert made.headers[envelope.READY_AT] == ("l", NOW_MS + 50)
    assert made.headers[envelope.EXPIRES_AT] == ("l", NOW_MS + 2050)
    waiting = delivered(made)
    assert not envelope.has_expired(waiting, NOW + timedelta(milliseconds=2049))
    assert envelope.has_expired(waiting, NOW + timedelta(milliseconds=2050))


def test_what_the_broker_lets_expire_is_left_to_the_broker() -> None:
    waiting = delivered(envelope.put_properties("id", NOW, 0.0, 1.0))
    assert not envelope.has_expired(waiting, NOW + timedelta(days=1))


def test_a_copy_lives_no_longer_than_the_message() -> None:
    made = envelope.put_properties("id", NOW - timedelta(seconds=3), 0.0, 10.0)
    assert copied(made).expiration == "7000"
    assert copied(made, steps=5).expiration is None
    over = envelope.put_properties("id", NOW - timedelta(seconds=30), 0.0, 10.0)
    assert copied(over).expiration == "0"


def test_a_buried_copy_lives_for_ever() -> None:
    buried = envelope.without_expiry(copied(envelope.put_properties("id", NOW, 0.0, 10.0)))
    assert buried.expiration is None
    assert copied(buried).expiration is None


def test_a_copy_leaves_the_way_of_the_message_behind() -> None:
    way: Table = {
        "x-death": ("A", []),
        "x-first-death-queue": ("S", b"q"),
        "x-last-death-queue": ("S", b"q"),
        "x-delivery-count": ("l", 4),
        **delays.bits_of(5),
    }
    made = copied(Properties(headers={"theirs": ("S", b"kept"), **way}, user_id="somebody"), steps=2)
    assert made.user_id is None
    assert made.headers is not None
    assert made.headers.keys() == {
        "theirs",
        envelope.DELIVERIES,
        envelope.READY_AT,
        "penstock-delay-10",
        "penstock-delay-20",
    }


def test_a_copy_does_not_change_the_message() -> None:
    headers: Table = {"theirs": ("S", b"kept"), envelope.NOTE: ("S", b"first")}
    before = encode_properties(Properties(headers=headers))
    message = decode_properties(before)
    assert envelope.message_of(delivered(copied(message, note="second")), "i", "q", NOW).note == "second"
    assert encode_properties(message) == before


@pytest.mark.parametrize(
    ("headers", "redelivered", "count"),
    [
        (None, False, 1),
        (None, True, 2),
        ({envelope.DELIVERIES: ("I", 4)}, False, 5),
        ({envelope.DELIVERIES: ("I", 4)}, True, 6),
        ({"x-delivery-count": ("l", 3)}, True, 4),
        ({"x-delivery-count": ("l", 3), envelope.DELIVERIES: ("I", 2)}, True, 6),
        ({"x-delivery-count": ("S", b"many"), envelope.DELIVERIES: ("t", True)}, False, 1),
        ({"x-delivery-count": ("l", -9), envelope.DELIVERIES: ("I", -9)}, False, 1),
    ],
)
def test_deliveries_are_counted_by_whoever_counts(headers: Table | None, redelivered: bool, count: int) -> None:
    assert envelope.deliveries_of(delivered(Properties(headers=headers), redelivered)) == count


@pytest.mark.parametrize("field", [("l", 2**62), ("l", -(2**62)), ("S", b"soon"), ("V", None)])
def test_a_time_that_no_calendar_has_is_none(field: Field) -> None:
    headers: Table = {envelope.READY_AT: field}
    assert envelope.message_of(delivered(Properties(headers=headers)), "i", "q", NOW).ready_at is None


@pytest.mark.parametrize(("note", "kept"), [("abc", b"abc"), ("aäb", b"a"), ("ääb", "ä".encode()), ("", b"")])
def test_a_note_is_cut_in_whole_characters(note: str, kept: bytes) -> None:
    assert envelope.cut_note(note, 2 if note != "abc" else 3) == kept


def test_our_headers_are_not_shown_and_theirs_are() -> None:
    died: Table = {"x-death": ("A", []), "x-first-death-queue": ("S", b"orders")}
    message = envelope.message_of(delivered(copied(Properties(headers={"a": ("I", 1)}))), "i", "q", NOW)
    assert message.properties["headers"] == {"a": 1}
    theirs = envelope.message_of(delivered(Properties(headers=died)), "i", "q", NOW)
    assert theirs.properties["headers"] == {"x-death": [], "x-first-death-queue": "orders"}
    died["x-first-death-queue"] = ("S", b"penstock.delay.20")
    ours = envelope.message_of(delivered(Properties(headers=died)), "i", "q", NOW)
    assert "headers" not in ours.properties
