"""Messages that other clients have published: with any properties, and with headers that look like ours."""

from __future__ import annotations

import pytest
from engine_house import QUEUE, House
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from penstock.fields import Table
from penstock.limits import TABLE_ITEMS_MAX
from penstock.message import FRAME_END, Envelope, Incoming
from penstock.wire.properties import Properties, encode_properties

FULL: Table = {f"h{number}": ("t", True) for number in range(TABLE_ITEMS_MAX)}
ODD: Table = {
    "x-penstock-deliveries": ("S", b"many"),
    "x-penstock-note": ("l", 5),
    "x-penstock-ready-at": ("l", -(1 << 63)),
    "x-penstock-expires-at": ("d", 1.5),
    "x-penstock-finalized-at": ("l", (1 << 63) - 1),
    "x-delivery-count": ("l", -7),
}
STRANGE = {
    "none": b"\x00\x00",
    "transient": encode_properties(Properties(delivery_mode=1)),
    "no-octets": b"",
    "all-flags": b"\xff\xff",
    "cut-off": encode_properties(Properties(headers={"a": ("S", b"b" * 50)}))[:-20],
    "full": encode_properties(Properties(headers=FULL, delivery_mode=2)),
    "odd": encode_properties(Properties(headers=ODD, delivery_mode=2, message_id="")),
    "no-utf-8": encode_properties(Properties(message_id=b"\xff\xfe".decode("utf-8", "surrogateescape"))),
}


def publish(house: House, properties: bytes, body: bytes, expiration_ms: int = -1) -> None:
    engine = house.engine
    engine.use_queue(QUEUE)
    with engine._inside():
        envelope = Envelope("", QUEUE, properties, True, 0, expiration_ms)
        engine._vhost.queues[QUEUE].publish(Incoming(envelope, [body + FRAME_END]), None)


def through_everything(house: House, body: bytes) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    for way in range(4):
        (message,), _ = engine.reserve(number, 5)
        assert message.payload == body
        assert message.deliveries == way + 1
        if way == 0:
            assert engine.requeue(number, [message.id], 1.0, "a note") == [message.id]
            house.clock.advance(2)
        elif way == 1:
            assert engine.bury(number, [message.id], "another note") == [message.id]
            assert engine.kick(QUEUE, 5) == 1
        elif way == 2:
            assert engine.requeue(number, [message.id], None, None) == [message.id]
        else:
            assert message.note == "another note"
            assert engine.finalize(number, [message.id], "done") == [message.id]
    engine.detach(number)
    kept = engine.history(QUEUE, 1)[0]
    assert (kept.payload, kept.deliveries, kept.finalized_note) == (body, 4, "done")


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strangers_message_can_go_everywhere(house: House, kind: str) -> None:
    publish(house, STRANGE[kind], kind.encode())
    through_everything(house, kind.encode())
    assert house.crash().stats(QUEUE).ready_count == 0


@given(
    properties=st.binary(max_size=60) | st.sampled_from(list(STRANGE.values())).map(lambda raw: raw[1:]),
    body=st.binary(max_size=20),
)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_properties_at_all_are_too_strange(house: House, properties: bytes, body: bytes) -> None:
    publish(house, properties, body)
    through_everything(house, body)
    assert house.engine.stats(QUEUE).ready_count == 0


def test_a_stranger_with_an_expiration_expires(house: House) -> None:
    publish(house, encode_properties(Properties(delivery_mode=2, expiration="5000")), b"x", 5000)
    number = house.engine.attach(QUEUE, None)
    assert house.texts(number) == ["x"]
    house.engine.detach(number)
    house.clock.advance(6)
    assert house.texts(house.engine.attach(QUEUE, None)) == []


def test_many_messages_with_one_id_are_told_apart(house: House) -> None:
    for number in range(4):
        publish(house, encode_properties(Properties(delivery_mode=2, message_id="#2")), b"%d" % number)
    number = house.engine.attach(QUEUE, None)
    messages, _ = house.engine.reserve(number, 10)
    assert len({message.id for message in messages}) == 4
    house.engine.finalize(number, [messages[2].id], None)
    house.engine.detach(number)
    assert house.texts(house.engine.attach(QUEUE, None)) == ["0", "1", "3"]
