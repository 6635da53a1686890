"""Content: runs of publishes against a plain parser, and what the broker reads in properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from wire_strategies import fields, key_text, tables

from penstock.errors import ChannelException, ConnectionException
from penstock.fields import TYPE_NAMES, Field, Table
from penstock.message import FRAME_END
from penstock.wire import frames, methods
from penstock.wire.content import read_content, replace_reply_to, scan_run
from penstock.wire.properties import Properties, decode_properties, encode_properties

# --- runs -----------------------------------------------------------------------------------------------


def publish_prefix(size: int, key: str = "key") -> bytes:
    """Everything before the body of a publish."""
    method = methods.BasicPublish("", key, False, False)
    return (
        frames.method_frame(1, method.encode())
        + frames.header_frame(1, size, b"\x00\x00")
        + frames.body_frame_head(1, size)
    )


def scanned(data: bytes, pos: int, prefix: bytes, size: int) -> tuple[list[bytes], int]:
    bodies: list[bytes] = []
    return bodies, scan_run(data, pos, prefix, size, bodies)


def plainly_parsed(data: bytes, pos: int, prefix: bytes, size: int) -> tuple[list[bytes], int]:
    """Frame by frame: as long as three whole frames follow that are the same publish with a body of that size."""
    expected, at = [], 0
    for _ in range(2):
        stop = at + 8 + int.from_bytes(prefix[at + 3 : at + 7], "big")
        expected.append(prefix[at:stop])
        at = stop
    bodies: list[bytes] = []
    while True:
        found, at = [], pos
        for _ in range(3):
            if at + 7 > len(data):
                return bodies, pos
            stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
            if stop > len(data) or data[stop - 1] != frames.END:
                return bodies, pos
            found.append(data[at:stop])
            at = stop
        if found[:2] != expected or found[2][:7] != frames.body_frame_head(1, size):
            return bodies, pos
        bodies.append(found[2][7:])
        pos = at


def test_a_run_ends_where_something_else_begins() -> None:
    prefix = publish_prefix(2)
    run = prefix + b"aa\xce" + prefix + b"bb\xce"
    for other in (b"", publish_prefix(2, "other") + b"cc\xce", publish_prefix(3) + b"ccc\xce", frames.HEARTBEAT_FRAME):
        assert scanned(run + other, 0, prefix, 2) == ([b"aa\xce", b"bb\xce"], len(run))


def test_a_body_without_a_frame_end_is_left_for_the_slow_way() -> None:
    prefix = publish_prefix(2)
    assert scanned(prefix + b"aa\xce" + prefix + b"bbX", 0, prefix, 2) == ([b"aa\xce"], len(prefix) + 3)
    # One byte too many: the octet where the end should be is payload.
    assert scanned(prefix + b"aab\xce", 0, prefix, 2) == ([], 0)


def test_a_body_that_looks_like_a_publish_is_a_body() -> None:
    inner = publish_prefix(1) + b"x\xce"
    prefix = publish_prefix(len(inner))
    assert scanned(2 * (prefix + inner + FRAME_END), 0, prefix, len(inner))[0] == [inner + FRAME_END] * 2


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, int, bytes, int]:
    """Bytes with publishes in them, where to begin, and the prefix and size of the run that is looked for."""
    size = draw(st.sampled_from([1, 2, 5, 40, 60]))
    prefix = publish_prefix(size)
    # Bodies that could be taken for something else.
    filler = st.sampled_from([prefix, FRAME_END, b"\x01\x00\x01", frames.HEARTBEAT_FRAME, b"x"])
    texts = st.lists(filler, min_size=1, max_size=size).map(lambda parts: (b"".join(parts) * size)[:size])
    broken = st.tuples(texts, st.sampled_from([b"", b"\x00", b"\xce\xce"])).map(lambda pair: pair[0] + pair[1])
    whole = texts.map(lambda text: prefix + text + FRAME_END)
    pieces = draw(st.lists(whole, max_size=5))
    if draw(st.booleans()):
        other = st.sampled_from([publish_prefix(size, "kez") + bytes(size) + FRAME_END, publish_prefix(size + 1)])
        pieces.append(draw(other | broken.map(lambda text: prefix + text)))
        pieces += draw(st.lists(whole, max_size=2))
    data = b"".join(pieces)
    if data and draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    before = draw(st.binary(max_size=3))
    return before + data, len(before), prefix, size


@settings(deadline=None, max_examples=examples(300))
@given(streams())
def test_a_run_is_what_a_plain_parser_finds(stream: tuple[bytes, int, bytes, int]) -> None:
    data, pos, prefix, size = stream
    assert scanned(data, pos, prefix, size) == plainly_parsed(data, pos, prefix, size)


# --- envelopes ------------------------------------------------------------------------------------------


def test_no_properties_are_an_envelope_with_defaults() -> None:
    content = read_content("x", "key", b"\x00\x00")
    envelope = content.envelope
    assert (envelope.exchange, envelope.routing_key, envelope.properties) == ("x", "key", b"\x00\x00")
    assert (envelope.persistent, envelope.priority, envelope.expiration_ms) == (False, 0, -1)
    assert envelope.address == b"\x01x\x03key"
    assert (content.headers, content.user_id, content.reply_to, content.cc, content.bcc) == (None, None, None, [], [])


def test_what_the_broker_needs_is_read_and_the_octets_stay_as_they_came() -> None:
    raw = encode_properties(
        Properties(
            headers={"n": ("I", 5)},
            delivery_mode=2,
            priority=7,
            reply_to="back",
            expiration="1500",
            user_id="guest",
        )
    )
    content = read_content("", "q", raw)
    envelope = content.envelope
    assert (envelope.persistent, envelope.priority, envelope.expiration_ms) == (True, 7, 1500)
    assert (content.reply_to, content.user_id, content.headers) == ("back", "guest", {"n": ("I", 5)})
    assert envelope.properties == raw


@pytest.mark.parametrize("mode", [0, 1, 3, 255])
def test_only_delivery_mode_2_is_persistent(mode: int) -> None:
    assert not read_content("", "q", encode_properties(Properties(delivery_mode=mode))).envelope.persistent


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\x00\x01", b"\x80\x00", b"\x80\x00\x05ab", b"\x00\x00\x00", b"\x20\x00"]
)
def test_broken_properties_are_refused(raw: bytes) -> None:
    with pytest.raises(ConnectionException) as refused:
        read_content("", "q", raw)
    assert refused.value.reply_code == 502


# --- expiration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("0005", 5),
        ("4294967295", 4294967295),
        ("4294967296", 4294967296),
        ("315360000000", 315360000000),
        ("0" * 200 + "5", 5),
    ],
)
def test_an_expiration_is_a_number_of_milliseconds(text: str, milliseconds: int) -> None:
    content = read_content("", "q", encode_properties(Properties(expiration=text)))
    assert content.envelope.expiration_ms == milliseconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_integer"),
        ("soon", "no_integer"),
        (" 5", "no_integer"),
        ("-", "no_integer"),
        ("+", "no_integer"),
        ("--5", "no_integer"),
        ("\u0661", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("5 ", '{leftover_string," "}'),
        ("0x10", '{leftover_string,"x10"}'),
        ("5-", '{leftover_string,"-"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_an_expiration_that_is_none_is_refused_in_rabbitmqs_words(text: str, reason: str) -> None:
    with pytest.raises(ChannelException) as refused:
        read_content("", "q", encode_properties(Properties(expiration=text)))
    assert refused.value.reply_text == f"PRECONDITION_FAILED - invalid expiration '{text}': {reason}"


def test_an_endless_number_is_refused_and_not_computed_with() -> None:
    with pytest.raises(ChannelException, match="value_too_large"):
        read_content("", "q", encode_properties(Properties(expiration="9" * 255)))


# --- CC and BCC -----------------------------------------------------------------------------------------


def array(*texts: str) -> Field:
    return ("A", [("S", text.encode()) for text in texts])


def test_cc_and_bcc_are_more_routing_keys_and_only_bcc_is_removed() -> None:
    raw = encode_properties(Properties(headers={"CC": array("a", "b"), "BCC": array("c"), "n": ("t", True)}))
    content = read_content("x", "k", raw)
    assert (content.cc, content.bcc) == (["a", "b"], ["c"])
    assert decode_properties(content.envelope.properties).headers == {"CC": array("a", "b"), "n": ("t", True)}
    assert content.headers == {"CC": array("a", "b"), "n": ("t", True)}


def test_headers_stay_as_an_empty_table_when_bcc_was_the_only_one() -> None:
    raw = encode_properties(Properties(headers={"BCC": array("c")}, message_id="m"))
    stripped = decode_properties(read_content("x", "k", raw).envelope.properties)
    assert (stripped.headers, stripped.message_id) == ({}, "m")


@pytest.mark.parametrize("bcc", [("A", []), ("A", [("I", 5), ("t", True)])])
def test_a_bcc_without_any_key_is_removed_too(bcc: Field) -> None:
    content = read_content("x", "k", encode_properties(Properties(headers={"BCC": bcc})))
    assert content.bcc == []
    assert decode_properties(content.envelope.properties).headers == {}


def test_members_that_are_no_strings_are_ignored() -> None:
    mixed: Field = ("A", [("I", 5), ("S", b"a"), ("A", [("S", b"x")]), ("V", None), ("S", b"b")])
    assert read_content("x", "k", encode_properties(Properties(headers={"CC": mixed}))).cc == ["a", "b"]


def test_a_key_that_is_not_utf_8_is_kept_for_matching() -> None:
    [key] = read_content("x", "k", encode_properties(Properties(headers={"CC": ("A", [("S", b"\xff")])}))).cc
    assert key.encode("utf-8", "surrogateescape") == b"\xff"


VALUES: dict[str, Field] = {
    "t": ("t", True),
    "I": ("I", 1),
    "l": ("l", 1),
    "d": ("d", 1.5),
    "D": ("D", (1, 5)),
    "S": ("S", b"key"),
    "T": ("T", 5),
    "F": ("F", {}),
    "V": ("V", None),
    "x": ("x", b"key"),
}


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("code", list(VALUES))
def test_a_cc_or_bcc_that_is_no_array_is_refused(name: str, code: str) -> None:
    with pytest.raises(ChannelException) as refused:
        read_content("x", "k", encode_properties(Properties(headers={name: VALUES[code]})))
    assert refused.value.reply_text == (
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[code]}}}'
    )


@settings(deadline=None)
@given(tables, st.lists(key_text, max_size=3), st.integers(0, 5))
def test_the_other_headers_keep_their_order_and_types_octet_for_octet(
    headers: Table, keys: list[str], position: int
) -> None:
    kept = {name: field for name, field in headers.items() if name not in ("CC", "BCC")}
    items = list(kept.items())
    items.insert(position, ("BCC", array(*keys)))
    raw = encode_properties(Properties(content_type="text/plain", headers=dict(items), app_id="app"))
    content = read_content("x", "k", raw)
    assert content.bcc == keys
    expected = encode_properties(Properties(content_type="text/plain", headers=kept, app_id="app"))
    assert content.envelope.properties == expected


@settings(deadline=None)
@given(st.dictionaries(key_text.filter(lambda name: name not in ("CC", "BCC")), fields, max_size=4))
def test_properties_without_bcc_are_passed_on_untouched(headers: Table) -> None:
    raw = encode_properties(Properties(headers=headers, priority=3))
    assert read_content("x", "k", raw).envelope.properties is raw


def test_another_reply_to_replaces_the_first_and_nothing_else() -> None:
    given_properties = Properties(headers={"n": ("s", 5)}, reply_to="amq.rabbitmq.reply-to", correlation_id="c")
    replaced = decode_properties(replace_reply_to(encode_properties(given_properties), "somewhere"))
    given_properties.reply_to = "somewhere"
    assert replaced == given_properties
