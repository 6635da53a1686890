"""What a client can make the broker keep: all of it is counted, what surrounds the octets included."""

from __future__ import annotations

import pytest
from pamqp import commands, header
from wire_bench import Bench, Client

from penstock import limits

Basic = commands.Basic
EMPTY_BODY_FRAME = b"\x03\x00\x01\x00\x00\x00\x00\xce"


@pytest.fixture
def client() -> Client:
    bench = Bench()
    bench.queue("q")
    return bench.client()


def kept_bytes(client: Client) -> int:
    # On a busy machine much input takes several turns.
    client.read()
    return client.connection._partial_bytes


def begin_message(client: Client, size: int) -> None:
    client.send(Basic.Publish(0, "", "q"), header.ContentHeader(0, size, Basic.Properties()))


def test_body_frames_without_octets_count_too(client: Client) -> None:
    begin_message(client, 1)
    client.transport_data(EMPTY_BODY_FRAME * 1000)
    assert kept_bytes(client) == 1000 * limits.CONTENT_PART_OVERHEAD_BYTES


def test_nothing_is_counted_of_a_message_that_is_whole(client: Client) -> None:
    begin_message(client, 1)
    client.transport_data(EMPTY_BODY_FRAME * 3)
    assert kept_bytes(client) > 0
    client.transport_data(b"\x03\x00\x01\x00\x00\x00\x01x\xce")
    assert kept_bytes(client) == 0
    assert client.get() == (b"x", False)


def test_small_messages_of_a_transaction_count_with_their_overhead_until_its_end(client: Client) -> None:
    client.call(commands.Tx.Select())
    client.publish("", "q", *[b"x"] * 100)
    assert kept_bytes(client) >= 100 * limits.MESSAGE_OVERHEAD_BYTES
    client.publish("", "q", b"x", headers={"large": "x" * 3000})
    assert kept_bytes(client) >= 101 * limits.MESSAGE_OVERHEAD_BYTES + 3000
    client.call(commands.Tx.Rollback())
    assert kept_bytes(client) == 0


@pytest.mark.parametrize(("size", "is_remembered"), [(100, True), (limits.REMEMBERED_PROPERTIES_BYTES_MAX, False)])
def test_a_route_does_not_remember_large_properties(client: Client, size: int, is_remembered: bool) -> None:
    client.connection.frame_bytes_max = limits.FRAME_BYTES_MAX
    client.publish("", "q", b"x", headers={"h": "x" * size})
    (route,) = client.connection._reader._routes.values()
    assert (route.prepared is not None) == is_remembered
