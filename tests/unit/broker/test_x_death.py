"""x-death: octet for octet what RabbitMQ writes, and harmless whatever a client sends.

`x_death_of_rabbitmq.json` was recorded from the RabbitMQ that it names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.features.x_death import (
    COUNT_MAX,
    dead_letter_envelope,
    entries_of,
    is_cycle,
    routing_keys_for,
)
from penstock.fields import Field, Table
from penstock.limits import TABLE_DEPTH_MAX, TABLE_ITEMS_MAX
from penstock.message import Envelope
from penstock.wire.content import read_content
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.property_edits import headers_of

RABBITMQ: dict[str, Any] = json.loads(Path(__file__).with_name("x_death_of_rabbitmq.json").read_text())
NOW_S = 1_700_000_000
NONE: Field = ("V", None)
REASONS = ("rejected", "expired", "maxlen", "delivery_limit")


def text(value: str) -> Field:
    return "S", value.encode()


def published(headers: Table | None = None, key: str = "q", exchange: str = "", **others: Any) -> Envelope:
    raw = encode_properties(Properties(headers=headers, **others))
    return read_content(exchange, key, raw).envelope


def die(envelope: Envelope, queue: str = "q", reason: str = "rejected", key: str | None = None) -> Envelope:
    return dead_letter_envelope(envelope, queue, reason, NOW_S, "dlx", key)


def entry(queue: str, reason: str, count: int = 1) -> Field:
    return "F", {"queue": text(queue), "reason": text(reason), "count": ("l", count)}


def deaths(envelope: Envelope) -> list[tuple[object, object, object]]:
    """Queue, reason and count of each entry."""
    return [(each["queue"][1], each["reason"][1], each["count"][1]) for each in entries_of(headers_of(envelope))]


# --- as RabbitMQ -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", RABBITMQ["cases"], ids=lambda case: str(case["name"]))
def test_a_dead_letter_has_the_octets_that_rabbitmq_gives_it(case: dict[str, Any]) -> None:
    key = bytes.fromhex(case["routing_key"]).decode("utf-8", "surrogateescape")
    envelope = read_content(case["exchange"], key, bytes.fromhex(case["sent"])).envelope
    dead = die(envelope, "q", case["reason"], case["dead_letter_routing_key"])
    expected = bytes.fromhex(case["properties"])
    assert decode_properties(dead.properties).headers == decode_properties(expected).headers
    assert dead.properties == expected


@pytest.mark.parametrize("chain", RABBITMQ["chains"], ids=lambda chain: str(chain["name"]))
def test_a_chain_of_deaths_is_noted_as_rabbitmq_notes_it(chain: dict[str, Any]) -> None:
    envelope = read_content("", chain["routing_key"], bytes.fromhex(chain["sent"])).envelope
    compared = 0
    for death in chain["deaths"]:
        envelope = dead_letter_envelope(envelope, death["queue"], death["reason"], NOW_S, "", death["routing_key"])
        if death["properties"] is not None:
            compared += 1
            assert envelope.properties == bytes.fromhex(death["properties"])
    assert compared > 0


def test_the_first_death_in_full() -> None:
    dead = die(published({"CC": ("A", [text("copy"), ("I", 5)])}, "key", "ex", expiration="600"), "work", "maxlen")
    headers = headers_of(dead)
    keys: Field = ("A", [text("key"), text("copy")])
    assert list(headers) == ["CC", "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"]
    assert headers["x-first-death-exchange"] == text("ex")
    assert headers["x-first-death-queue"] == text("work")
    assert headers["x-first-death-reason"] == text("maxlen")
    assert list(entries_of(headers)[0].items()) == [
        ("count", ("l", 1)),
        ("reason", text("maxlen")),
        ("queue", text("work")),
        ("time", ("T", NOW_S)),
        ("exchange", text("ex")),
        ("routing-keys", keys),
        ("original-expiration", text("600")),
    ]


def test_the_same_death_again_raises_the_count_and_comes_to_the_front() -> None:
    envelope = die(die(published(), "a"), "b", "expired")
    again = dead_letter_envelope(envelope, "a", "rejected", NOW_S + 60, "dlx", None)
    assert deaths(again) == [(b"a", b"rejected", 2), (b"b", b"expired", 1)]
    assert entries_of(headers_of(again))[0]["time"] == ("T", NOW_S)
    other_reason = die(again, "a", "expired")
    assert deaths(other_reason)[0] == (b"a", b"expired", 1)
    assert len(deaths(other_reason)) == 3


def test_the_first_death_stays_the_first() -> None:
    headers = headers_of(die(die(published(exchange="ex"), "a", "expired"), "b", "rejected"))
    assert headers["x-first-death-queue"] == text("a")
    assert headers["x-first-death-reason"] == text("expired")
    assert headers["x-first-death-exchange"] == text("ex")


def test_all_but_headers_and_expiration_stays() -> None:
    envelope = published({"a": ("I", 1)}, delivery_mode=2, priority=9, expiration="10", timestamp=5, message_id="m")
    dead = die(envelope, key="other")
    assert (dead.exchange, dead.routing_key) == ("dlx", "other")
    assert (dead.persistent, dead.priority, dead.expiration_ms) == (True, 9, -1)
    properties = decode_properties(dead.properties)
    assert (properties.delivery_mode, properties.priority, properties.timestamp) == (2, 9, 5)
    assert (properties.message_id, properties.expiration) == ("m", None)
    assert envelope.expiration_ms == 10
    assert "x-death" not in headers_of(envelope)


def test_the_next_death_has_no_original_expiration() -> None:
    dead = die(die(published(expiration="10"), "a"), "b")
    newest, first = entries_of(headers_of(dead))
    assert "original-expiration" not in newest
    assert first["original-expiration"] == text("10")


def test_cc_is_a_key_until_the_queue_names_one() -> None:
    envelope = published({"CC": ("A", [text("c1"), ("I", 7), text("c2")])}, "own")
    assert routing_keys_for(envelope, None) == ["own", "c1", "c2"]
    assert routing_keys_for(envelope, "named") == ["named"]
    assert routing_keys_for(envelope, "") == [""]
    kept = die(envelope)
    assert kept.routing_key == "own"
    assert routing_keys_for(kept, None) == ["own", "c1", "c2"]
    cut = die(envelope, key="named")
    assert "CC" not in headers_of(cut)
    assert routing_keys_for(cut, None) == ["named"]


def test_keys_that_are_not_utf8_are_kept() -> None:
    odd = b"k\xff".decode("utf-8", "surrogateescape")
    envelope = published({"CC": ("A", [("S", b"c\xfe")])}, odd)
    assert routing_keys_for(envelope, None) == [odd, b"c\xfe".decode("utf-8", "surrogateescape")]
    assert entries_of(headers_of(die(envelope)))[0]["routing-keys"] == ("A", [("S", b"k\xff"), ("S", b"c\xfe")])


def test_a_key_that_is_too_long_to_be_delivered_is_cut() -> None:
    for key in ("k" * 256, "ä" * 128, "k" * 255, "k" * 100):
        dead = die(published(), key=key)
        raw = dead.routing_key.encode("utf-8", "surrogateescape")
        assert raw == key.encode()[:255]
        assert len(dead.address) == 1 + len("dlx") + 1 + len(raw)
        assert routing_keys_for(published(), key) == [key]


# --- what clients may have put there --------------------------------------------------------------------


def test_members_that_are_no_tables_are_forgotten() -> None:
    # RabbitMQ's queue process fails on these.
    for members in ([text("s")], [text("s"), entry("q", "rejected", 4)], [("V", None), ("A", [])]):
        dead = die(published({"x-death": ("A", members)}))
        counted = 5 if len(members) == 2 and members[1][0] == "F" else 1
        assert deaths(dead) == [(b"q", b"rejected", counted)]
        assert die(dead).properties != dead.properties


@pytest.mark.parametrize(
    "count", [text("7"), ("d", 1.5), ("t", True), ("V", None), ("F", {}), ("D", (1, 5))], ids=lambda field: field[0]
)
def test_a_count_that_is_no_number_begins_anew(count: Field) -> None:
    forged: Table = {"queue": text("q"), "count": count, "reason": text("rejected")}
    assert deaths(die(published({"x-death": ("A", [("F", forged)])}))) == [(b"q", b"rejected", 1)]


def test_a_count_never_leaves_64_bits() -> None:
    for code, value in (("l", COUNT_MAX), ("T", (1 << 64) - 1)):
        forged: Table = {"queue": text("q"), "count": (code, value), "reason": text("rejected")}
        dead = die(published({"x-death": ("A", [("F", forged)])}))
        assert entries_of(headers_of(dead))[0]["count"] == ("l", COUNT_MAX)


field_values: st.SearchStrategy[Field] = st.recursive(
    st.one_of(
        st.none().map(lambda value: ("V", value)),
        st.booleans().map(lambda value: ("t", value)),
        st.integers(-5, 5).map(lambda value: ("I", value)),
        st.integers(-(1 << 63), (1 << 63) - 1).map(lambda value: ("l", value)),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda value: ("d", value)),
        st.sampled_from(["", "q", "a", "rejected", "expired"]).map(text),
        st.sampled_from([b"q", b"rejected", b"\xff"]).map(lambda value: ("x", value)),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda value: ("A", value))
        | st.dictionaries(st.sampled_from(["queue", "reason", "count", "x"]), inner).map(lambda value: ("F", value))
    ),
    max_leaves=8,
)
forged_entries = st.dictionaries(
    st.sampled_from(["queue", "reason", "count", "routing-keys", "exchange", "time"]), field_values
).map(lambda value: ("F", value))
forged_deaths = st.lists(forged_entries | field_values, max_size=6).map(lambda value: ("A", value)) | field_values
forged_headers = st.fixed_dictionaries(
    {},
    optional={
        "x-death": forged_deaths,
        "x-first-death-queue": field_values,
        "CC": st.lists(field_values, max_size=3).map(lambda value: ("A", value)),
        "z": field_values,
    },
)


@given(forged_headers, st.lists(st.tuples(st.sampled_from("qab"), st.sampled_from(REASONS)), min_size=1, max_size=5))
def test_whatever_a_client_sends_a_message_can_die(headers: Table, events: list[tuple[str, str]]) -> None:
    envelope = published(headers)
    for queue, reason in events:
        envelope = die(envelope, queue, reason)
        found = headers_of(envelope)
        assert list(found) == sorted(found)
        newest = entries_of(found)[0]
        assert (newest["queue"][1], newest["reason"][1]) == (queue.encode(), reason.encode())
        assert newest["count"][0] == "l"
        # Written as `S` or, by a client, as `x`: there is one entry for it.
        events_found = [(each.get("queue", NONE)[1], each.get("reason", NONE)[1]) for each in entries_of(found)]
        assert events_found.count((queue.encode(), reason.encode())) == 1
        for target in "qab":
            assert is_cycle(found, target) in (True, False)
        assert routing_keys_for(envelope, None)[0] == "q"
    assert envelope.expiration_ms == -1


# --- too many fields --------------------------------------------------------------------------------------


def test_a_chain_too_long_to_be_noted_forgets_the_entries_at_the_end() -> None:
    # An entry with three fields is four; a new one is nine with its routing key.
    known = [entry(f"old{number}", "expired") for number in range(TABLE_ITEMS_MAX // 4 - 1)]
    envelope = published({"own": ("I", 1), "x-death": ("A", known)})
    for number in range(4):
        envelope = die(envelope, f"new{number}", "expired", key="next")
        headers = headers_of(envelope)
        assert headers["own"] == ("I", 1)
        assert entries_of(headers)[0]["queue"] == text(f"new{number}")
        assert TABLE_ITEMS_MAX // 4 - 3 * (number + 1) - 1 <= len(entries_of(headers)) < len(known)


@pytest.mark.parametrize("padding", range(4))
def test_old_entries_give_way_before_anything_else(padding: int) -> None:
    known = [entry(f"old{number}", "expired") for number in range((TABLE_ITEMS_MAX - 8) // 4)]
    own: Table = {"CC": ("A", [text("copy")]), **{f"own{number}": NONE for number in range(padding)}}
    dead = die(published({**own, "x-death": ("A", known)}))
    headers = headers_of(dead)
    newest, *others = entries_of(headers)
    assert newest["routing-keys"] == ("A", [text("q"), text("copy")])
    # The array, the newest entry with its fields and two keys, four fields for each other one.
    items = 2 + padding + 1 + 9 + 4 * len(others)
    assert TABLE_ITEMS_MAX - 4 < items <= TABLE_ITEMS_MAX
    assert {name: field for name, field in headers.items() if name != "x-death"} == own


def test_a_message_full_of_headers_can_die() -> None:
    full: Table = {f"h{number:04}": ("V", None) for number in range(TABLE_ITEMS_MAX)}
    dead = die(published(full))
    headers = headers_of(dead)
    assert deaths(dead) == [(b"q", b"rejected", 1)]
    assert headers["x-first-death-queue"] == text("q")
    # The death takes twelve fields; as many of its own headers go, from the end.
    assert len([name for name in headers if name.startswith("h")]) == TABLE_ITEMS_MAX - 12
    assert "h0000" in headers


def test_a_message_full_of_copies_keeps_its_own_key_in_the_entry() -> None:
    keys: list[Field] = [text("k")] * (TABLE_ITEMS_MAX - 100)
    dead = die(published({"CC": ("A", keys)}, "own"))
    assert entries_of(headers_of(dead))[0]["routing-keys"] == ("A", [text("own")])
    assert len(routing_keys_for(dead, None)) == 1 + len(keys)


def test_a_forged_entry_full_of_fields_is_replaced_by_a_plain_one() -> None:
    many: Table = {f"f{number}": ("V", None) for number in range(TABLE_ITEMS_MAX - 4)}
    forged: Table = {"queue": text("q"), "reason": text("rejected"), **many}
    dead = die(published({"x-death": ("A", [("F", forged)])}))
    assert deaths(dead) == [(b"q", b"rejected", 1)]
    assert len(entries_of(headers_of(dead))[0]) == 6


def test_headers_as_deep_as_they_may_be_can_be_noted() -> None:
    deep: Field = ("V", None)
    for _ in range(TABLE_DEPTH_MAX - 3):
        deep = ("A", [deep])
    forged: Table = {"queue": text("q"), "reason": text("rejected"), "deep": deep}
    dead = die(published({"x-death": ("A", [("F", forged)])}))
    assert entries_of(headers_of(dead))[0]["deep"] == deep


# --- cycles -------------------------------------------------------------------------------------------------


def ring_until_cut(queues: str, rejecting: str, rounds: int, envelope: Envelope | None = None) -> int:
    """Send a message round a ring of queues; how many deaths it took until one would be dropped as a cycle."""
    message = envelope or published(key=queues[0])
    for number in range(rounds * len(queues)):
        queue, target = queues[number % len(queues)], queues[(number + 1) % len(queues)]
        message = die(message, queue, "rejected" if queue in rejecting else "expired", key=target)
        if is_cycle(headers_of(message), target):
            return number + 1
    return rounds * len(queues)


@pytest.mark.parametrize("queues", ["a", "ab", "abc", "abcdef"])
def test_a_ring_without_a_rejection_is_cut_after_one_round(queues: str) -> None:
    assert ring_until_cut(queues, "", 5) == len(queues)


@pytest.mark.parametrize(("queues", "rejecting"), [("a", "a"), ("ab", "a"), ("ab", "b"), ("abc", "a"), ("abcde", "bd")])
def test_a_ring_with_a_rejection_goes_on(queues: str, rejecting: str) -> None:
    # RabbitMQ 3.10 loses the message in the second round of "abc".
    assert ring_until_cut(queues, rejecting, 50) == 50 * len(queues)


def test_a_rejection_before_the_ring_does_not_keep_it_going() -> None:
    rejected = die(published(key="x"), "x", "rejected", key="a")
    assert ring_until_cut("a", "", 50, rejected) == 1
    # RabbitMQ 3.10 never cuts this one.
    assert ring_until_cut("bc", "", 50, rejected) < 10
    assert ring_until_cut("bcd", "", 50, rejected) < 10


@pytest.mark.parametrize("reason", ["expired", "maxlen", "delivery_limit"])
def test_every_reason_but_a_rejection_is_automatic(reason: str) -> None:
    headers = headers_of(die(published(), "q", reason))
    assert is_cycle(headers, "q")
    assert not is_cycle(headers, "other")
    assert not is_cycle(headers_of(die(published(), "q", "rejected")), "q")


def test_a_rejection_now_is_never_a_cycle() -> None:
    expired = die(die(published(), "a", "expired"), "b", "expired")
    assert is_cycle(headers_of(expired), "a")
    assert not is_cycle(headers_of(die(expired, "c", "rejected")), "a")


def test_a_message_that_never_died_is_in_no_cycle() -> None:
    for headers in ({}, {"x-death": text("q")}, {"x-death": ("A", [])}, {"x-death": ("A", [text("q")])}):
        assert not is_cycle(headers, "q")


def test_a_name_given_as_octets_does_not_hide_a_cycle() -> None:
    forged: Table = {"queue": ("x", b"q"), "reason": text("expired")}
    assert is_cycle(headers_of(die(published({"x-death": ("A", [("F", forged)])}), "q", "expired")), "q")


def rabbitmq_finds_a_cycle(entries: list[tuple[str, str]], target: str) -> bool:
    """RabbitMQ's rule, for a list of entries in true order: no rejection up to the last death in the target."""
    reasons = []
    for queue, reason in entries:
        reasons.append(reason)
        if queue == target:
            return "rejected" not in reasons
    return False


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(REASONS)), max_size=2, unique=True))
def test_up_to_two_entries_the_answer_is_that_of_rabbitmq(entries: list[tuple[str, str]]) -> None:
    headers: Table = {"x-death": ("A", [entry(queue, reason) for queue, reason in entries])}
    for target in "abc":
        assert is_cycle(headers, target) == rabbitmq_finds_a_cycle(entries, target)
