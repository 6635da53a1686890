"""What sessions accept, and what they say about the rest."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from penstock.client import checks

NOON = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("name", ["a", " ", "'\"\\", "\n", "x" * 1024, "ü" * 512])
def test_a_name_of_up_to_1024_bytes_is_a_queues_name(name: str) -> None:
    assert checks.queue_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 1025, "ü" * 513, "a\0b", "\ud800"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        checks.queue_name(name)


@pytest.mark.parametrize("name", [b"x", None, 5])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(TypeError, match="str"):
        checks.queue_name(name)


@pytest.mark.parametrize(
    ("payload", "octets"),
    [("é", b"\xc3\xa9"), (b"\xff", b"\xff"), (bytearray(b"a"), b"a"), (memoryview(b"abc")[1:], b"bc"), ("", b"")],
)
def test_payloads_become_bytes(payload: Any, octets: bytes) -> None:
    found = checks.payload_bytes(payload)
    assert type(found) is bytes
    assert found == octets


@pytest.mark.parametrize("payload", [{"a": 1}, ["a"], 5, 1.5, None, True])
def test_a_payload_of_another_type_is_told_about_json(payload: Any) -> None:
    with pytest.raises(TypeError, match="put_json"):
        checks.payload_bytes(payload)


def test_a_payload_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MESSAGE_BYTES_MAX", 4)
    assert checks.payload_bytes("1234") == b"1234"
    with pytest.raises(ValueError, match="at most 4 bytes"):
        checks.payload_bytes("ééé")
    assert checks.payloads_bytes(["12", "34"]) == [b"12", b"34"]
    with pytest.raises(ValueError, match="together"):
        checks.payloads_bytes(["12", "345"])


def test_a_batch_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BATCH_MAX", 2)
    assert checks.payloads_bytes(iter("ab")) == [b"a", b"b"]
    with pytest.raises(ValueError, match="at most 2 messages"):
        checks.payloads_bytes(iter("abc"))
    assert checks.batch_count(2) == 2
    for count in (0, 3, -1):
        with pytest.raises(ValueError, match="1 to 2"):
            checks.batch_count(count)


@pytest.mark.parametrize("payloads", ["abc", b"abc", bytearray(b"abc")])
def test_one_payload_is_no_batch_of_characters(payloads: Any) -> None:
    with pytest.raises(TypeError, match="put takes a single one"):
        checks.payloads_bytes(payloads)


def test_json_is_compact_and_utf_8() -> None:
    assert checks.json_bytes({"a": [1, None, "é"]}) == '{"a":[1,null,"é"]}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_does_not_have_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        checks.json_bytes(value)


def test_spans_are_seconds() -> None:
    assert checks.seconds(None, "delay") is None
    assert checks.seconds(0, "delay") == 0.0
    assert checks.seconds(1.5, "delay") == 1.5
    assert checks.positive_seconds(None, "ttl") is None
    assert checks.positive_seconds(1, "ttl") == 1.0


@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), float("inf"), 1e12])
def test_a_span_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="delay is"):
        checks.seconds(value, "delay")


@pytest.mark.parametrize("value", ["1", True, time(1), b"1"])
def test_a_span_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="delay is a number"):
        checks.seconds(value, "delay")


def test_a_lease_of_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        checks.positive_seconds(0, "lease")


def test_a_wait_may_be_over_already_or_never_end() -> None:
    assert checks.wait_seconds(-5) == 0.0
    assert checks.wait_seconds(None) == float("inf")
    assert checks.wait_seconds(float("inf")) == float("inf")
    with pytest.raises(ValueError, match="NaN"):
        checks.wait_seconds(float("nan"))


def test_a_time_and_a_delay_exclude_each_other() -> None:
    assert checks.ready_time(NOON, None) == NOON
    assert checks.ready_time(None, 5.0) is None
    with pytest.raises(ValueError, match="not both"):
        checks.ready_time(NOON, 0.0)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        checks.ready_time(NOON.replace(tzinfo=None), None)


@pytest.mark.parametrize("moment", ["2031-05-17", 5, date(2031, 5, 17)])
def test_a_time_of_another_type_is_refused(moment: Any) -> None:
    with pytest.raises(TypeError, match="ready_at is a datetime"):
        checks.ready_time(moment, None)


def test_a_note_is_made_fit_for_any_database() -> None:
    assert checks.note_text(None) is None
    assert checks.note_text("a\0b\ud800c é") == "a\\0b\\ud800c é"
    with pytest.raises(TypeError, match="note"):
        checks.note_text(b"bytes")  # type: ignore[arg-type]
