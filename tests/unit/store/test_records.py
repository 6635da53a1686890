"""Records: what comes out is what went in, and no damage goes unnoticed."""

from __future__ import annotations

from zlib import crc32

import pytest

from penstock.message import Envelope
from penstock.store.shared.records import (
    RECORD_HEAD_BYTES,
    BadRecord,
    Record,
    decode_record,
    encode_record,
    record_bytes,
)

PROPERTIES = b"\x98\x00\x0atext/plain\x02\x07"


def fields_of(envelope: Envelope) -> list[object]:
    return [
        envelope.exchange,
        envelope.routing_key,
        envelope.address,
        envelope.properties,
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
    ]


def check_equal(record: Record, seq_id: int, envelope: Envelope, body: bytes, expiry_ms: int, address: int) -> None:
    assert fields_of(record.envelope) == fields_of(envelope)
    assert (record.seq_id, record.body, record.expiry_ms, record.address) == (seq_id, body, expiry_ms, address)


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("", "", b"\x00\x00"),
        Envelope("amq.direct", "a.b.c", PROPERTIES, True, 255, 60_000),
        Envelope("börse", "schlüssel", b"\x00\x00", False, 9, 0),
        Envelope("e", b"\xff\xfe not utf-8".decode("utf-8", "surrogateescape"), b"\x00\x00"),
        Envelope("e" * 255, "k" * 255, b"\x20\x00" + bytes(70_000)),
    ],
    ids=["empty", "all fields", "unicode", "not utf-8", "long"],
)
@pytest.mark.parametrize("body", [b"\xce", b"x\xce", bytes(4095) + b"\xce", b"PnR1" * 5000 + b"\xce"], ids=len)
def test_a_record_comes_back_as_it_went_in(envelope: Envelope, body: bytes) -> None:
    data = encode_record(7, envelope, body, -1)
    record = decode_record(data, 0)
    check_equal(record, 7, envelope, body, -1, -1)
    assert record.size_bytes == record_bytes(data, 0) == len(data)


def test_large_numbers_and_an_expiry_of_zero_survive() -> None:
    envelope = Envelope("", "q", b"\x00\x00")
    for seq_id, expiry_ms, address in [(0, 0, 0), (2**62, 2**52, 2**63 - 1), (-1, -1, 5 << 32 | 64)]:
        check_equal(
            decode_record(encode_record(seq_id, envelope, b"\xce", expiry_ms, address), 0),
            seq_id,
            envelope,
            b"\xce",
            expiry_ms,
            address,
        )


def test_records_are_read_where_they_stand() -> None:
    envelope = Envelope("", "q", b"\x00\x00")
    first = encode_record(1, envelope, b"one\xce", -1)
    second = encode_record(2, envelope, b"two\xce", -1)
    data = b"before" + first + second + b"behind"
    assert decode_record(data, 6).body == b"one\xce"
    assert decode_record(data, 6 + len(first)).body == b"two\xce"


def test_an_equal_envelope_is_shared_and_another_one_is_not() -> None:
    envelope = Envelope("x", "q", PROPERTIES, True, 3, 1000)
    data = encode_record(1, envelope, b"\xce", -1)
    assert decode_record(data, 0, envelope).envelope is envelope
    for other in [
        Envelope("y", "q", PROPERTIES, True, 3, 1000),
        Envelope("x", "r", PROPERTIES, True, 3, 1000),
        Envelope("x", "q", PROPERTIES + b"\x00", True, 3, 1000),
        Envelope("x", "q", PROPERTIES, False, 3, 1000),
        Envelope("x", "q", PROPERTIES, True, 4, 1000),
        Envelope("x", "q", PROPERTIES, True, 3, 1001),
    ]:
        assert fields_of(decode_record(data, 0, other).envelope) == fields_of(envelope)


def test_any_flipped_bit_is_noticed() -> None:
    data = encode_record(41, Envelope("x", "key", PROPERTIES, True), b"payload\xce", 12345)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(BadRecord):
            decode_record(bytes(damaged), 0)


def test_a_record_that_ends_at_any_byte_is_refused_and_says_how_long_it_is() -> None:
    data = encode_record(41, Envelope("x", "key", b"\x00\x00"), b"payload\xce", -1)
    for size in range(len(data)):
        with pytest.raises(BadRecord) as refused:
            decode_record(data[:size], 0)
        assert refused.value.size_bytes == (len(data) if size >= RECORD_HEAD_BYTES else -1)


def test_zeros_and_an_offset_beside_the_record_are_refused() -> None:
    data = encode_record(1, Envelope("", "q", b"\x00\x00"), b"x" * 100 + b"\xce", -1)
    for wrong in (bytes(200), data[1:] + bytes(60), b"\x00" + data):
        with pytest.raises(BadRecord, match="does not begin like a record"):
            decode_record(wrong, 0)
    with pytest.raises(BadRecord, match="inside its head"):
        decode_record(data, len(data) + 5)


def test_a_damaged_length_is_never_believed() -> None:
    data = bytearray(encode_record(1, Envelope("", "q", b"\x00\x00"), b"\xce", -1))
    data[7] = 0x7F
    with pytest.raises(BadRecord, match="checksum of its head") as refused:
        record_bytes(bytes(data), 0)
    assert refused.value.size_bytes == -1


def test_lengths_that_contradict_each_other_are_refused_even_with_right_checksums() -> None:
    data = bytearray(encode_record(1, Envelope("", "q", b"\x00\x00"), b"\xce", -1))
    # The head says that there are more properties than the record has bytes.
    data[40:44] = len(data).to_bytes(4, "little")
    data[48:52] = crc32(data[:48]).to_bytes(4, "little")
    data[52:56] = crc32(data[56:], crc32(data[:48])).to_bytes(4, "little")
    with pytest.raises(BadRecord, match="contradict"):
        decode_record(bytes(data), 0)


def test_a_bad_body_names_the_message_and_lets_the_reader_step_over_it() -> None:
    envelope = Envelope("", "q", b"\x00\x00")
    bad = bytearray(encode_record(41, envelope, b"payload\xce", -1))
    bad[-2] ^= 1
    data = b"...." + bytes(bad) + encode_record(42, envelope, b"next\xce", -1)
    with pytest.raises(BadRecord) as refused:
        decode_record(data, 4)
    assert (refused.value.seq_id, refused.value.offset) == (41, 4)
    assert "seq_id 41 at offset 4 " in str(refused.value)
    assert decode_record(data, 4 + refused.value.size_bytes).seq_id == 42
