"""Redrive: where a dead letter came from, and what it is when it goes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.features.x_death import dead_letter_envelope, is_cycle
from penstock.broker.operations.messages.redrive_origin import Origin, origin, redriven_envelope
from penstock.fields import Field, Table
from penstock.message import Envelope
from penstock.wire.content import read_content
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.property_edits import headers_of

NOW_S = 1_700_000_000


def published(headers: Table | None = None, key: str = "key", exchange: str = "ex", **others: Any) -> Envelope:
    raw = encode_properties(Properties(headers=headers, **others))
    return read_content(exchange, key, raw).envelope


def die(envelope: Envelope, queue: str, reason: str = "rejected", key: str | None = None) -> Envelope:
    return dead_letter_envelope(envelope, queue, reason, NOW_S, "dlx", key)


def parts(found: Origin | None) -> tuple[str, str, list[str], str, int]:
    assert found is not None
    return found.queue, found.exchange, found.routing_keys, found.reason, found.count


def forged(**changes: Field | None) -> Envelope:
    """A dead letter whose entry a client wrote; None leaves a field out."""
    entry: dict[str, Field | None] = {
        "queue": ("S", b"work"),
        "exchange": ("S", b"ex"),
        "reason": ("S", b"rejected"),
        "routing-keys": ("A", [("S", b"key")]),
        "count": ("l", 3),
        **{name.replace("_", "-"): field for name, field in changes.items()},
    }
    kept: Table = {name: field for name, field in entry.items() if field is not None}
    return published({"x-death": ("A", [("F", kept)])}, "dead", "dlx")


def test_the_origin_is_the_newest_death() -> None:
    dead = die(published({"CC": ("A", [("S", b"copy")])}), "work", key="dead")
    assert parts(origin(dead)) == ("work", "ex", ["key", "copy"], "rejected", 1)
    assert parts(origin(die(dead, "waiting", "expired"))) == ("waiting", "dlx", ["dead"], "expired", 1)
    assert parts(origin(die(dead, "work"))) == ("work", "ex", ["key", "copy"], "rejected", 2)


def test_a_message_that_never_died_has_no_origin() -> None:
    assert origin(published()) is None
    assert origin(published({"x-death": ("S", b"work")})) is None
    assert origin(published({"x-death": ("A", [])})) is None
    assert origin(published({"x-death": ("A", [("S", b"work")])})) is None
    with pytest.raises(AssertionError, match="without an origin"):
        redriven_envelope(published())


def test_a_redriven_message_is_what_it_was_before_it_died() -> None:
    headers: Table = {"a": ("I", 1), "z": ("S", b"x")}
    message = published(headers, delivery_mode=2, priority=4, message_id="m", timestamp=7)
    back = redriven_envelope(die(message, "work", key="dead"))
    assert (back.exchange, back.routing_key, back.address) == ("ex", "key", message.address)
    assert (back.persistent, back.priority) == (True, 4)
    expected = decode_properties(message.properties)
    expected.headers = {**headers, "x-redriven-count": ("l", 1)}
    assert decode_properties(back.properties) == expected


def test_copies_are_named_again_when_the_queue_had_taken_them_off() -> None:
    copies: Field = ("A", [("S", b"c1"), ("S", b"\xff")])
    for key in (None, "dead"):
        dead = die(published({"CC": copies}), "work", key=key)
        assert headers_of(redriven_envelope(dead))["CC"] == copies
    assert "CC" not in headers_of(redriven_envelope(die(published(), "work")))


def test_copies_that_are_still_named_stay_as_they_are() -> None:
    copies: Field = ("A", [("S", b"c1"), ("I", 5)])
    assert headers_of(redriven_envelope(die(published({"CC": copies}), "work")))["CC"] == copies


def test_the_expiration_is_not_given_back() -> None:
    back = redriven_envelope(die(published(expiration="100"), "work", "expired"))
    assert back.expiration_ms == -1
    assert decode_properties(back.properties).expiration is None


def test_the_next_life_begins_without_deaths() -> None:
    dead = die(die(published(), "work", "expired", key="k"), "waiting", "expired")
    back = redriven_envelope(dead)
    assert origin(back) is None
    assert not [name for name in headers_of(back) if "death" in name]
    # What would have been dropped as a cycle may go there again.
    again = die(back, "waiting", "expired")
    assert is_cycle(headers_of(die(dead, "waiting", "expired")), "work")
    assert not is_cycle(headers_of(again), "work")
    assert parts(origin(again)) == ("waiting", "dlx", ["k"], "expired", 1)


def test_each_redrive_is_counted() -> None:
    message = published()
    for number in range(1, 4):
        message = redriven_envelope(die(message, "work"))
        assert headers_of(message)["x-redriven-count"] == ("l", number)


@pytest.mark.parametrize(
    ("before", "after"),
    [(("S", b"9"), 1), (("t", True), 1), (("l", -5), 1), (("I", 9), 10), (("l", (1 << 63) - 1), (1 << 63) - 1)],
    ids=str,
)
def test_a_count_that_a_client_wrote_does_no_harm(before: Field, after: int) -> None:
    back = redriven_envelope(die(published({"x-redriven-count": before}), "work"))
    assert headers_of(back)["x-redriven-count"] == ("l", after)


def test_deliveries_are_counted_anew() -> None:
    back = redriven_envelope(die(published({"x-delivery-count": ("l", 5)}), "work", "delivery_limit"))
    assert list(headers_of(back)) == ["x-redriven-count"]


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": None},
        {"queue": ("S", b"")},
        {"queue": ("I", 5)},
        {"queue": ("S", b"\xff")},
        {"queue": ("S", b"n" * 256)},
        {"exchange": None},
        {"exchange": ("S", b"\xff")},
        {"exchange": ("S", b"n" * 256)},
        {"reason": None},
        {"routing_keys": None},
        {"routing_keys": ("S", b"key")},
        {"routing_keys": ("A", [])},
        {"routing_keys": ("A", [("I", 1)])},
        {"routing_keys": ("A", [("S", b"k" * 256), ("S", b"key")])},
    ],
    ids=str,
)
def test_nothing_is_guessed_where_the_entry_is_no_address(changes: dict[str, Field | None]) -> None:
    assert origin(forged()) is not None
    assert origin(forged(**changes)) is None


def test_an_entry_without_a_count_counts_once() -> None:
    for count in (None, ("S", b"7"), ("t", True), ("l", -1)):
        assert parts(origin(forged(count=count)))[4] == 1
    assert parts(origin(forged(count=("I", 7))))[4] == 7


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
keys = st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@given(names, names, keys, st.lists(keys, max_size=3), st.none() | keys)
def test_every_dead_letter_finds_its_way_back(
    queue: str, exchange: str, key: str, copies: list[str], dead_key: str | None
) -> None:
    members: list[Field] = [("S", copy.encode("utf-8", "surrogateescape")) for copy in copies]
    message = published({"CC": ("A", members)} if copies else {}, key, exchange)
    dead = die(message, queue, "maxlen", dead_key)
    assert parts(origin(dead)) == (queue, exchange, [key, *copies], "maxlen", 1)
    back = redriven_envelope(dead)
    assert back.address == message.address
    assert headers_of(back) == {**headers_of(message), "x-redriven-count": ("l", 1)}
