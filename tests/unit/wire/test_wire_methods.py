"""Methods on the wire: against pamqp, against octets written by hand, and against damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, frame
from wire_strategies import (
    OUR_METHODS,
    PAMQP_METHODS,
    any_method,
    argument_types,
    as_pamqp_decodes,
    check_refused,
    our_methods,
    pamqp_methods,
    unsigned,
)

from penstock.errors import ConnectionException
from penstock.wire import methods
from penstock.wire.methods import Method, decode_method
from penstock.wire.tables import table_to_python

# pamqp warns of basic.recover-async, which clients may still send.
pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")

each_pamqp_method = pytest.mark.parametrize(
    "pamqp_class", [pytest.param(cls, id=cls.name) for _, cls in sorted(PAMQP_METHODS.items())]
)


def framed(payload: bytes) -> bytes:
    return b"\x01\x00\x07" + len(payload).to_bytes(4, "big") + payload + b"\xce"


def decoded(payload: bytes) -> Method:
    return decode_method(payload, 0, len(payload))


def test_we_have_every_method_of_pamqp_and_the_legacy_access_class() -> None:
    ours = {index: cls.NAME for index, cls in OUR_METHODS.items()}
    theirs = {index: cls.name for index, cls in PAMQP_METHODS.items()}
    extra = {0x001E000A: "access.request", 0x001E000B: "access.request-ok"}
    assert {index: name for index, name in ours.items() if index not in theirs} == extra
    assert set(theirs) <= set(ours)
    for index, name in theirs.items():
        assert name.lower() == ours[index].replace("-", "")


@each_pamqp_method
@given(data=st.data())
def test_pamqp_reads_what_we_write(pamqp_class: type[base.Frame], data: st.DataObject) -> None:
    ours = data.draw(our_methods(pamqp_class))
    payload = framed(ours.encode())
    consumed, channel, theirs = frame.unmarshal(payload)
    assert (consumed, channel, type(theirs)) == (len(payload), 7, pamqp_class)
    for pamqp_name, (our_name, _) in argument_types(pamqp_class).items():
        if our_name:
            assert getattr(theirs, pamqp_name) == as_pamqp_decodes(getattr(ours, our_name))
        else:
            assert getattr(theirs, pamqp_name) in (0, False, "")


@each_pamqp_method
@given(data=st.data())
def test_we_read_what_pamqp_writes(pamqp_class: type[base.Frame], data: st.DataObject) -> None:
    theirs = data.draw(pamqp_methods(pamqp_class))
    payload = frame.marshal(theirs, 1)
    ours = decode_method(payload, 7, len(payload) - 1)
    assert type(ours) is OUR_METHODS[pamqp_class.index]
    for pamqp_name, (our_name, amqp_type) in argument_types(pamqp_class).items():
        if not our_name:
            continue
        value, expected = getattr(ours, our_name), getattr(theirs, pamqp_name)
        if amqp_type == "table":
            assert table_to_python(value) == expected
        elif amqp_type == "longstr":
            assert value == expected.encode()
        else:
            assert value == expected
            assert type(value) is type(expected)


@given(any_method)
def test_a_method_is_the_same_after_a_round_trip(method: Method) -> None:
    again = decoded(method.encode())
    assert type(again) is type(method)
    assert again == method
    for name in type(method).__slots__:
        assert getattr(again, name) == getattr(method, name)


@given(any_method, st.binary(max_size=40))
def test_a_method_cut_at_any_octet_is_a_syntax_error(method: Method, behind: bytes) -> None:
    payload = method.encode()
    for end in range(len(payload)):
        check_refused(502, decode_method, payload[:end], 0, end)
        check_refused(502, decode_method, payload + behind, 0, end)


@given(any_method, st.binary(min_size=1, max_size=20))
def test_octets_behind_the_arguments_are_a_syntax_error(method: Method, more: bytes) -> None:
    payload = method.encode() + more
    check_refused(502, decode_method, payload, 0, len(payload))


@given(any_method, st.binary(max_size=20), st.binary(max_size=20))
def test_a_method_is_read_from_the_middle_of_a_buffer(method: Method, before: bytes, behind: bytes) -> None:
    payload = method.encode()
    start = len(before)
    assert decode_method(before + payload + behind, start, start + len(payload)) == method


@given(st.sampled_from(sorted(OUR_METHODS)), st.binary(max_size=60))
def test_random_arguments_are_read_or_refused_as_a_syntax_error(index: int, arguments: bytes) -> None:
    try:
        found = decoded(index.to_bytes(4, "big") + arguments).INDEX
    except ConnectionException as error:
        found = error.reply_code
    assert found in (index, 502)


@given(unsigned(32).filter(lambda index: index not in OUR_METHODS), st.binary(max_size=10))
def test_an_unknown_method_is_an_invalid_command(index: int, arguments: bytes) -> None:
    text = check_refused(503, decoded, index.to_bytes(4, "big") + arguments)
    assert text == f"COMMAND_INVALID - unknown method {index >> 16},{index & 0xFFFF}"


def test_a_short_string_that_is_not_utf8_is_a_syntax_error() -> None:
    check_refused(502, decoded, b"\x00\x3c\x00\x1e\x01\xff\x00")
    # A surrogate is no character.
    check_refused(502, decoded, b"\x00\x3c\x00\x1e\x03\xed\xa0\x80\x00")


def test_a_long_string_may_be_any_octets() -> None:
    method = decoded(b"\x00\x0a\x00\x15\x00\x00\x00\x02\xff\x00")
    assert isinstance(method, methods.ConnectionSecureOk)
    assert method.response == b"\xff\x00"


def test_unused_bits_of_a_flag_octet_are_ignored() -> None:
    method = decoded(b"\x00\x3c\x00\x50" + bytes(8) + b"\xfe")
    assert method == methods.BasicAck(0, False)


def test_reserved_arguments_are_skipped_whatever_they_are() -> None:
    assert decoded(b"\x00\x14\x00\x0a\x03\xff\xff\xff") == methods.ChannelOpen()
    assert decoded(b"\x00\x14\x00\x0b\x00\x00\x00\x02ab") == methods.ChannelOpenOk()
    assert decoded(b"\x00\x0a\x00\x28\x02/a\x01x\x01") == methods.ConnectionOpen("/a")
    assert decoded(b"\x00\x32\x00\x1e\xff\xff\x01q\x01") == methods.QueuePurge("q", True)
    assert decoded(b"\x00\x3c\x00\x48\x04home") == methods.BasicGetEmpty()


def test_delivery_tags_are_unsigned() -> None:
    method = decoded(b"\x00\x3c\x00\x50" + b"\xff" * 8 + b"\x00")
    assert isinstance(method, methods.BasicAck)
    assert method.delivery_tag == (1 << 64) - 1


@pytest.mark.parametrize("text", ["x" * 256, "é" * 128])
def test_a_short_string_of_more_than_255_octets_is_not_encoded(text: str) -> None:
    with pytest.raises(ValueError, match="256 bytes"):
        methods.QueueDeclare(text).encode()
    assert decoded(methods.QueueDeclare(text[1:]).encode()) == methods.QueueDeclare(text[1:])


def test_two_methods_do_not_share_their_default_table() -> None:
    first, second = methods.QueueDeclare("a"), methods.QueueDeclare("b")
    first.arguments["x-expires"] = ("I", 1)
    assert second.arguments == {}


def test_a_method_is_not_equal_to_another_one_or_to_something_else() -> None:
    assert methods.BasicAck(1) != methods.BasicAck(2)
    assert methods.TxSelectOk() != methods.ConfirmSelectOk()
    assert methods.BasicAck(1) != methods.BasicAck(1).encode()


def test_a_method_does_not_show_its_arguments() -> None:
    assert repr(methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0secret")) == "<connection.start-ok>"


GOLDEN: list[tuple[Method, bytes]] = [
    (methods.ConnectionTune(2047, 131_072, 60), b"\x00\x0a\x00\x1e\x07\xff\x00\x02\x00\x00\x00\x3c"),
    (methods.ConnectionOpen("/"), b"\x00\x0a\x00\x28\x01/\x00\x00"),
    (methods.ConnectionOpenOk(), b"\x00\x0a\x00\x29\x00"),
    (methods.ConnectionBlocked("low"), b"\x00\x0a\x00\x3c\x03low"),
    (
        methods.ConnectionClose(320, "CONNECTION_FORCED", 10, 40),
        b"\x00\x0a\x00\x32\x01\x40\x11CONNECTION_FORCED\x00\x0a\x00\x28",
    ),
    (methods.ChannelOpen(), b"\x00\x14\x00\x0a\x00"),
    (methods.ChannelOpenOk(), b"\x00\x14\x00\x0b\x00\x00\x00\x00"),
    (methods.AccessRequest("/data"), b"\x00\x1e\x00\x0a\x05/data\x1e"),
    (methods.AccessRequest("", exclusive=True, passive=False, write=False), b"\x00\x1e\x00\x0a\x00\x15"),
    (methods.AccessRequestOk(), b"\x00\x1e\x00\x0b\x00\x01"),
    (
        methods.ExchangeDeclare("e", "topic", durable=True, internal=True),
        b"\x00\x28\x00\x0a\x00\x00\x01e\x05topic\x0a\x00\x00\x00\x00",
    ),
    (methods.ExchangeUnbindOk(), b"\x00\x28\x00\x33"),
    (
        methods.QueueDeclare("q", durable=True, no_wait=True, arguments={"x-max-length": ("I", 10)}),
        b"\x00\x32\x00\x0a\x00\x00\x01q\x12\x00\x00\x00\x12\x0cx-max-lengthI\x00\x00\x00\x0a",
    ),
    (methods.QueueDeclareOk("q", 5, 1), b"\x00\x32\x00\x0b\x01q\x00\x00\x00\x05\x00\x00\x00\x01"),
    (methods.BasicQos(0, 100, True), b"\x00\x3c\x00\x0a\x00\x00\x00\x00\x00\x64\x01"),
    (methods.BasicPublish("ex", "key", True), b"\x00\x3c\x00\x28\x00\x00\x02ex\x03key\x01"),
    (
        methods.BasicDeliver("t", 1, True, "", "q"),
        b"\x00\x3c\x00\x3c\x01t\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x01q",
    ),
    (methods.BasicNack(3, True, True), b"\x00\x3c\x00\x78\x00\x00\x00\x00\x00\x00\x00\x03\x03"),
    (methods.BasicNack(3, requeue=False), b"\x00\x3c\x00\x78\x00\x00\x00\x00\x00\x00\x00\x03\x00"),
    (methods.ConfirmSelect(), b"\x00\x55\x00\x0a\x00"),
    (methods.TxRollbackOk(), b"\x00\x5a\x00\x1f"),
]


@pytest.mark.parametrize(("method", "payload"), GOLDEN, ids=[method.NAME for method, _ in GOLDEN])
def test_octets_of_a_method(method: Method, payload: bytes) -> None:
    assert method.encode() == payload
    again = decoded(payload)
    assert again == method
    assert type(again) is type(method)


def test_our_ack_in_a_frame_is_the_textbook_one() -> None:
    expected = bytes.fromhex("01 0007 0000000d 003c 0050 0000000000000002 01 ce")
    assert framed(methods.BasicAck(2, True).encode()) == expected
