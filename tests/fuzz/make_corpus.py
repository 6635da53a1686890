"""Write tests/fuzz/corpus: small files with all that one hostile client sends, and a manifest with what they meet.

    python -m tests.fuzz.make_corpus

Each file begins with the protocol header, so that it can also be sent to any broker with netcat. The expected outcome
is written down here by hand, from AMQP's and RabbitMQ's rules, and not taken from what the broker does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from penstock.wire import frames, methods
from penstock.wire.properties import Properties
from penstock.wire.tables import encode_table

from .client_frames import (
    HEADER,
    body,
    content_header,
    encode_all,
    goodbye,
    handshake,
    method,
    publish,
    start_ok,
)

CORPUS = Path(__file__).parent / "corpus"
MANIFEST = CORPUS / "manifest.json"

CLEAN = "clean"
HANG_UP = "hang-up"
LOGGED_IN = HEADER + encode_all(handshake())
OPEN = LOGGED_IN + encode_all([method(1, methods.ChannelOpen()), method(1, methods.QueueDeclare("q", exclusive=True))])
PUBLISH, NO_CONTENT, BODY = publish(1, "", "q", b"body")
# queue.declare of an exclusive queue, up to its arguments.
DECLARE_START = b"\x00\x32\x00\x0a\x00\x00\x01t\x04"


class Case(NamedTuple):
    """One file of the corpus."""

    data: bytes
    # In order: closes as "channel N CODE" or "connection CODE"; "protocol header"; "hang-up" for an end without a word.
    outcome: list[str]
    why: str


def frame(kind: int, channel: int, payload: bytes, size: int | None = None, end: int = frames.END) -> bytes:
    """A frame that may lie about its size or have another end."""
    length = len(payload) if size is None else size
    return bytes((kind,)) + channel.to_bytes(2, "big") + length.to_bytes(4, "big") + payload + bytes((end,))


def declaring(arguments: bytes) -> bytes:
    """queue.declare on channel 1 with this arguments table, length octets included."""
    return frame(frames.METHOD, 1, DECLARE_START + arguments)


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def nested(levels: int, code: bytes = b"F", name: bytes = b"\x00") -> bytes:
    """A table so deep, with as few octets as possible: nothing in it but the next one."""
    content = b""
    for _ in range(levels - 1):
        content = (name if code == b"F" else b"") + code + sized(content)
    return sized(content if code == b"F" else b"\x00" + content)


def protocol_cases() -> dict[str, Case]:
    refused = ["protocol header", HANG_UP]
    return {
        "http_request": Case(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", refused, "a browser on the wrong port"),
        "tls_client_hello": Case(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", refused, "TLS on the plain port"),
        "amqp_1_0_header": Case(b"AMQP\x00\x01\x00\x00", refused, "another protocol version"),
        "amqp_1_0_sasl_header": Case(b"AMQP\x03\x01\x00\x00", refused, "another protocol version, SASL layer"),
        "zeros": Case(bytes(64), refused, "no protocol at all"),
        "header_cut_short": Case(HEADER[:5], [CLEAN], "the rest may still come"),
        "header_twice": Case(HEADER + HEADER, ["connection 501"], "a header where a frame is due"),
        "header_on_an_open_connection": Case(OPEN + HEADER, ["connection 501"], "reads as a frame of 1.3 GB"),
    }


def handshake_cases() -> dict[str, Case]:
    first = HEADER + frame(frames.METHOD, 0, b"", 8193)
    open_method = method(0, methods.ConnectionOpen("/")).encode()
    publish_early = HEADER + encode_all(publish(1, "", "q", b"body"))
    tuned = HEADER + start_ok().encode()
    return {
        "frame_size_before_login": Case(first, ["connection 501"], "the small limit before the login"),
        "frame_size_4gib_before_login": Case(
            HEADER + b"\x01\x00\x00\xff\xff\xff\xff", ["connection 501"], "refused at its head, nothing is allocated"
        ),
        "open_before_login": Case(HEADER + open_method, ["connection 504"], "the login is not skipped"),
        "publish_before_login": Case(publish_early, ["connection 505"], "channels do not exist yet"),
        "start_ok_unknown_mechanism": Case(
            HEADER + start_ok(b"", "EXTERNAL").encode(), ["connection 503"], "a mechanism that was not offered"
        ),
        "start_ok_deep_client_properties": Case(
            HEADER + frame(frames.METHOD, 0, b"\x00\x0a\x00\x0b" + nested(1300) + b"\x05PLAIN" + bytes(5)),
            ["connection 502"],
            "nested tables before the login",
        ),
        "sasl_plain_without_nul": Case(HEADER + start_ok(b"guest").encode(), ["connection 403"], "no password"),
        "sasl_plain_password_omitted": Case(
            HEADER + start_ok(b"\x00guest").encode(), ["connection 403"], "no password"
        ),
        "sasl_plain_three_nuls": Case(
            HEADER + start_ok(b"\x00guest\x00guest\x00").encode(), ["connection 403"], "a NUL in the password"
        ),
        "sasl_amqplain_not_a_table": Case(
            HEADER + start_ok(b"\xff\xff\xff", "AMQPLAIN").encode(), ["connection 403"], "a table that is none"
        ),
        "sasl_amqplain_password_is_a_number": Case(
            HEADER + start_ok(encode_table({"LOGIN": ("S", b"guest"), "PASSWORD": ("I", 0)})[4:], "AMQPLAIN").encode(),
            ["connection 403"],
            "a field of another type",
        ),
        "tune_frame_max_too_small": Case(
            tuned + method(0, methods.ConnectionTuneOk(0, 100, 0)).encode(), ["connection 530"], "below the minimum"
        ),
        "tune_frame_max_too_large": Case(
            tuned + method(0, methods.ConnectionTuneOk(0, 2**31, 0)).encode(), ["connection 530"], "above our offer"
        ),
        "open_unknown_vhost": Case(
            tuned + encode_all([handshake()[1], method(0, methods.ConnectionOpen("nowhere"))]),
            ["connection 530"],
            "no such vhost",
        ),
    }


def frame_cases() -> dict[str, Case]:
    bad = ["connection 501"]
    return {
        "frame_size_4gib": Case(OPEN + b"\x03\x00\x01\xff\xff\xff\xff", bad, "refused at its head"),
        "frame_size_over_frame_max": Case(OPEN + frame(frames.BODY, 1, b"", 131_073), bad, "refused at its head"),
        "frame_end_wrong": Case(OPEN + frame(frames.METHOD, 1, b"\x00\x14\x00\x14\x01", end=0), bad, "no end octet"),
        "frame_type_unknown": Case(OPEN + frame(9, 1, b"x"), bad, "type 9 does not exist"),
        "frame_size_one_less": Case(OPEN + frame(frames.METHOD, 1, b"\x00\x14\x00\x14\x01", 4), bad, "lies by one"),
        "frame_cut_short": Case(OPEN + frame(frames.METHOD, 1, bytes(40))[:-20], [CLEAN], "the rest may still come"),
        "method_frame_empty": Case(OPEN + frame(frames.METHOD, 1, b""), bad, "no class and method"),
        "method_frame_three_octets": Case(OPEN + frame(frames.METHOD, 1, b"\x00\x3c\x00"), bad, "half a method id"),
        "heartbeat_with_payload": Case(OPEN + frame(frames.HEARTBEAT, 0, b"x"), bad, "a heartbeat is empty"),
        "heartbeat_on_channel_1": Case(OPEN + frame(frames.HEARTBEAT, 1, b""), ["connection 505"], "channel 0 only"),
        "heartbeats_1000": Case(OPEN + frame(frames.HEARTBEAT, 0, b"") * 1000, [CLEAN], "allowed, and ignored"),
    }


def method_cases() -> dict[str, Case]:
    cut = methods.QueueDeclare("queue").encode()
    unopened = method(5, methods.QueueDeclare("q")).encode()
    return {
        "method_unknown_class": Case(
            OPEN + frame(frames.METHOD, 1, b"\x03\xe7\x00\x01"), ["connection 503"], "no class"
        ),
        "method_unknown_id": Case(OPEN + frame(frames.METHOD, 1, b"\x00\x3c\x03\xe7"), ["connection 503"], "no method"),
        "method_server_only": Case(
            OPEN + method(1, methods.QueueDeclareOk("q", 0, 0)).encode(), ["connection 503"], "an answer to nothing"
        ),
        "method_arguments_cut_short": Case(
            OPEN + frame(frames.METHOD, 1, cut[:9]), ["connection 502"], "a name without its end"
        ),
        "method_arguments_left_over": Case(OPEN + frame(frames.METHOD, 1, cut + b"x"), ["connection 502"], "one more"),
        "method_name_not_utf8": Case(
            OPEN + frame(frames.METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\x02\xff\xfe\x00" + bytes(4)),
            ["connection 502"],
            "a short string is UTF-8",
        ),
        "method_on_unopened_channel": Case(OPEN + unopened, ["connection 504"], "channel 5 is not open"),
        "method_on_channel_0": Case(
            OPEN + method(0, methods.QueueDeclare("q")).encode(), ["connection 504"], "channel 0 is the connection's"
        ),
        "channel_open_twice": Case(OPEN + method(1, methods.ChannelOpen()).encode(), ["connection 504"], "it is open"),
        "channels_2048": Case(
            LOGGED_IN + encode_all([method(n, methods.ChannelOpen()) for n in range(1, 2049)]),
            ["connection 530"],
            "one channel more than negotiated",
        ),
        "consumer_tag_reused": Case(
            OPEN + method(1, methods.BasicConsume("q", "t")).encode() * 2, ["connection 530"], "tags are unique"
        ),
        "ack_unknown_tag": Case(OPEN + method(1, methods.BasicAck(2**64 - 1)).encode(), ["channel 1 406"], "unknown"),
        "ack_zero": Case(OPEN + method(1, methods.BasicAck(0)).encode(), ["channel 1 406"], "tags begin with 1"),
        "close_ok_without_close": Case(
            OPEN + method(1, methods.ChannelCloseOk()).encode(), ["connection 503"], "an answer to nothing"
        ),
        "goodbye_in_mid_content": Case(
            OPEN + encode_all([PUBLISH, NO_CONTENT, goodbye()]), [HANG_UP], "the connection may end at any time"
        ),
    }


def content_cases() -> dict[str, Case]:
    unexpected = ["connection 505"]
    weight = frame(frames.HEADER, 1, b"\x00\x3c\x00\x01" + bytes(10))
    other_class = frame(frames.HEADER, 1, b"\x00\x32\x00\x00" + bytes(10))
    trap = encode_all(publish(1, "", "q", b"trap"))
    return {
        "header_without_method": Case(OPEN + NO_CONTENT.encode(), unexpected, "no publish before it"),
        "body_without_method": Case(OPEN + BODY.encode(), unexpected, "no publish before it"),
        "body_without_header": Case(OPEN + encode_all([PUBLISH, BODY]), unexpected, "a header is due"),
        "method_in_mid_content": Case(OPEN + encode_all([PUBLISH, PUBLISH]), unexpected, "a header is due"),
        "method_in_mid_body": Case(OPEN + encode_all([PUBLISH, NO_CONTENT, PUBLISH]), unexpected, "a body is due"),
        "header_twice_in_content": Case(OPEN + encode_all([PUBLISH, NO_CONTENT, NO_CONTENT]), unexpected, "one body"),
        "header_of_another_class": Case(OPEN + PUBLISH.encode() + other_class, unexpected, "class 50 has no content"),
        "header_with_weight": Case(OPEN + PUBLISH.encode() + weight, unexpected, "the weight is 0"),
        "header_too_short": Case(
            OPEN + PUBLISH.encode() + frame(frames.HEADER, 1, bytes(11)), ["connection 501"], "no room for a size"
        ),
        "body_larger_than_declared": Case(
            OPEN + encode_all([PUBLISH, NO_CONTENT, body(1, b"more than four")]), ["connection 501"], "lies"
        ),
        "body_after_the_last": Case(OPEN + encode_all([PUBLISH, NO_CONTENT, BODY, BODY]), unexpected, "complete"),
        "body_size_16_eib": Case(
            OPEN + encode_all([PUBLISH, content_header(1, 2**64 - 1)]), ["channel 1 406"], "refused at the header"
        ),
        "body_frames_empty": Case(
            OPEN + encode_all([PUBLISH, NO_CONTENT, *[body(1, b"")] * 500, BODY]), [CLEAN], "useless and allowed"
        ),
        "body_of_a_publish": Case(
            OPEN + encode_all(publish(1, "", "q", trap) * 3), [CLEAN], "a body may look like frames"
        ),
        "interleaved_channels": Case(
            OPEN
            + encode_all([method(2, methods.ChannelOpen()), PUBLISH, *publish(2, "", "q", b"two"), NO_CONTENT, BODY]),
            [CLEAN],
            "contents of two channels may mix",
        ),
        "properties_flags_without_values": Case(
            OPEN + encode_all([PUBLISH, content_header(1, 0, b"\xff\xfc")]), ["connection 502"], "14 are missing"
        ),
        "properties_flag_continuation": Case(
            OPEN + encode_all([PUBLISH, content_header(1, 0, b"\x00\x01\x00\x00")]),
            ["connection 502"],
            "a second word of flags means nothing",
        ),
        "properties_nested_headers": Case(
            OPEN + encode_all([PUBLISH, content_header(1, 0, b"\x20\x00" + nested(21_000))]),
            ["connection 502"],
            "a recursive reader would overflow its stack",
        ),
        "expiration_not_a_number": Case(
            OPEN + encode_all(publish(1, "", "q", b"body", Properties(expiration="soon"))),
            ["channel 1 406"],
            "no number",
        ),
        "immediate": Case(
            OPEN + method(1, methods.BasicPublish("", "q", False, True)).encode(), ["connection 540"], "not implemented"
        ),
    }


def table_cases() -> dict[str, Case]:
    bad = ["connection 502"]
    key = b"\x01k"
    return {
        "nested_tables_32_levels": Case(OPEN + declaring(nested(32)), [CLEAN], "the deepest that is allowed"),
        "nested_tables_33_levels": Case(OPEN + declaring(nested(33)), bad, "one too deep"),
        "nested_tables_1364_levels": Case(OPEN + declaring(nested(1364)), bad, "all that fits into 8 KiB"),
        "nested_arrays_1600_levels": Case(OPEN + declaring(nested(1600, b"A")), bad, "all that fits into 8 KiB"),
        "table_array_zero_width": Case(
            OPEN + declaring(sized(key + b"A" + sized(b"V" * 8000))), bad, "8000 fields that take no room"
        ),
        "table_empty_keys": Case(OPEN + declaring(sized(b"\x00V" * 4097)), bad, "one field more than allowed"),
        "table_same_key_twice": Case(
            OPEN + declaring(sized(key + b"I" + bytes(4) + key + b"V")), [CLEAN], "the last one counts"
        ),
        "table_length_4gib": Case(OPEN + declaring(b"\xff\xff\xff\xff"), bad, "longer than its frame"),
        "table_length_one_more": Case(OPEN + declaring(b"\x00\x00\x00\x01"), bad, "longer than its frame"),
        "table_inner_longer_than_outer": Case(
            OPEN + declaring(sized(key + b"F" + b"\x00\x00\x00\xff")), bad, "a table reaches out of its own"
        ),
        "table_text_length_4gib": Case(OPEN + declaring(sized(key + b"S\xff\xff\xff\xff")), bad, "not there"),
        "table_type_unknown": Case(OPEN + declaring(sized(key + b"?")), bad, "no such type"),
        "table_key_not_utf8": Case(OPEN + declaring(sized(b"\x01\xffV")), bad, "names are UTF-8"),
        "table_key_cut_short": Case(OPEN + declaring(sized(b"\xffk")), bad, "a name without its end"),
        "table_nan": Case(OPEN + declaring(sized(key + b"d\x7f\xf8" + bytes(6))), bad, "a number that equals nothing"),
    }


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for group in (protocol_cases, handshake_cases, frame_cases, method_cases, content_cases, table_cases):
        found.update({f"{name}.bin": case for name, case in group().items()})
    return found


def manifest() -> str:
    entries = {name: {"outcome": case.outcome, "why": case.why} for name, case in cases().items()}
    return json.dumps(entries, indent=2, sort_keys=True) + "\n"


def main() -> None:
    CORPUS.mkdir(exist_ok=True)
    for old in CORPUS.glob("*.bin"):
        old.unlink()
    for name, case in cases().items():
        (CORPUS / name).write_bytes(case.data)
    MANIFEST.write_text(manifest(), encoding="utf-8")


if __name__ == "__main__":
    main()
