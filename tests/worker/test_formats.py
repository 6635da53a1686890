"""What a job looks like as a message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.jobs.formats import DEPTH_MAX, NAME_CHARS_MAX, Call, InvalidPayload, decode_call, encode_call

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("payload", "call"),
    [
        (b'{"job": "m:f"}', Call("m:f")),
        (b'{"job": "m:f", "args": null, "kwargs": null}', Call("m:f")),
        (b'{"job": "m:f", "args": [1], "kwargs": {"b": 2}, "id": 7}', Call("m:f", [1], {"b": 2})),
        (b'{"job": "M.f", "params": ["a"]}', Call("M.f", ["a"])),
        (b'{"class": "Mailer", "args": ["a"], "queue": "mail"}', Call("Mailer", ["a"], is_class=True)),
        (b'{"class": "Mailer"}', Call("Mailer", is_class=True)),
    ],
)
def test_each_shape_is_read(payload: bytes, call: Call) -> None:
    assert decode_call(payload) == call


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"job": "m:f", "args": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b'{"job": "m:f", "args": [NaN]}', "NaN is no JSON"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b"true", "a boolean"),
        (b"12.5", "a number"),
        (b'"m:f"', "a string"),
        (b"{}", "neither"),
        (b'{"job": "m:f", "class": "C"}', "both"),
        (b'{"job": "m:f", "args": [], "params": []}', "both"),
        (b'{"job": 5}', "'job' is a number"),
        (b'{"job": ""}', "'job' is an empty string"),
        (b'{"class": ["m:f"]}', "'class' is an array"),
        (b'{"job": "m:f", "args": {}}', "'args' is an object"),
        (b'{"job": "m:f", "params": "a"}', "'params' is a string"),
        (b'{"job": "m:f", "kwargs": []}', "'kwargs' is an array"),
        (json.dumps({"job": "x" * (NAME_CHARS_MAX + 1)}).encode(), f"at most {NAME_CHARS_MAX}"),
    ],
)
def test_what_no_worker_can_run_is_refused_with_the_reason(payload: bytes, why: str) -> None:
    with pytest.raises(InvalidPayload, match=why):
        decode_call(payload)


def test_the_longest_name_is_read() -> None:
    assert decode_call(json.dumps({"job": "x" * NAME_CHARS_MAX}).encode()).name == "x" * NAME_CHARS_MAX


def test_nesting_has_a_limit_that_any_program_can_walk() -> None:
    def nested(depth: int) -> bytes:
        return b'{"job": "m:f", "args": ' + b"[" * depth + b"1" + b"]" * depth + b"}"

    assert decode_call(nested(DEPTH_MAX - 1)).name == "m:f"
    with pytest.raises(InvalidPayload, match="nested too deeply"):
        decode_call(nested(DEPTH_MAX))


def test_many_values_side_by_side_are_no_nesting() -> None:
    assert len(decode_call(b'{"job": "m:f", "args": [' + b"[]," * 500 + b"[]]}").args) == 501


@given(args=st.lists(JSON, max_size=3), kwargs=st.dictionaries(st.text(), JSON, max_size=3))
def test_what_was_encoded_is_read_back(args: list[object], kwargs: dict[str, object]) -> None:
    assert decode_call(encode_call("m:f", args, kwargs)) == Call("m:f", args, kwargs)


@given(payload=st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_payload_is_a_call_or_invalid(payload: bytes) -> None:
    try:
        call = decode_call(payload)
    except InvalidPayload:
        return
    assert isinstance(call, Call)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"bytes"])
def test_arguments_that_are_no_json_cannot_be_put(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_call("m:f", [value], {})
