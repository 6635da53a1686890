"""What the columns show of a message's properties."""

from __future__ import annotations

import json

import pytest

from penstock.fields import Field
from penstock.pipeline.decode.properties import properties as decoding
from penstock.pipeline.decode.properties.properties import PropertyReader, headers_of, read_facts
from penstock.wire.properties import Properties, encode_properties

HEADERS: list[tuple[Field, str]] = [
    (("S", b"text"), "text"),
    (("S", "\u00e9".encode()), "\u00e9"),
    (("S", b"\xff"), '{"base64": "/w=="}'),
    (("x", b"text"), '{"base64": "dGV4dA=="}'),
    (("t", True), "true"),
    (("V", None), "null"),
    (("l", -5), "-5"),
    (("d", 0.5), "0.5"),
    (("d", float("nan")), "nan"),
    (("f", float("-inf")), "-inf"),
    (("D", (2, -12345)), "-123.45"),
    (("T", 0), "1970-01-01T00:00:00+00:00"),
    (("T", 2**63), str(2**63)),
    (("A", []), "[]"),
    (("A", [("S", b"a"), ("d", float("inf")), ("V", None)]), '["a", "inf", null]'),
    (("F", {"a": ("F", {"b": ("T", 1)})}), '{"a": {"b": "1970-01-01T00:00:01+00:00"}}'),
]


@pytest.mark.parametrize(("field", "text"), HEADERS, ids=[str(at) for at in range(len(HEADERS))])
def test_a_header_is_text(field: Field, text: str) -> None:
    assert headers_of({"name": field}) == [("name", text)]


def test_everything_but_strings_and_what_json_lacks_is_json() -> None:
    for field, text in HEADERS:
        if field[0] in "AFtVl":
            assert json.dumps(json.loads(text, parse_constant=pytest.fail)) == text


def test_what_is_not_there_is_null() -> None:
    assert read_facts(b"\x00\x00") == (None, None, None, None, None)
    facts = read_facts(encode_properties(Properties(headers={}, message_id="")))
    assert (facts.message_id, facts.headers) == ("", [])


def test_a_text_that_is_not_utf_8_is_null_and_the_others_are_shown() -> None:
    octets = encode_properties(Properties(content_type="t", message_id="\udcff", correlation_id="c"))
    facts = read_facts(octets)
    assert (facts.message_id, facts.correlation_id, facts.content_type) == (None, "c", "t")
    assert facts.problem == "message_id is not UTF-8"


@pytest.mark.parametrize("octets", [b"", b"\x80", b"\x80\x00\x05ab", b"\x00\x01", b"\x00\x00\x00", b"\x20\x00\x00"])
def test_properties_that_are_none_are_a_problem_and_no_error(octets: bytes) -> None:
    facts = read_facts(octets)
    assert facts[:4] == (None, None, None, None)
    assert facts.problem is not None
    assert facts.problem.startswith("properties: ")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "REMEMBERED_MAX", 3)
    reader = PropertyReader()
    made = [encode_properties(Properties(message_id=f"m{number}")) for number in range(10)]
    for _ in range(2):
        assert [reader.read(octets).message_id for octets in made] == [f"m{number}" for number in range(10)]
    assert len(reader) <= 3
