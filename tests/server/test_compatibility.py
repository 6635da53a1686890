"""Strict and lenient compatibility: what RabbitMQ has deprecated is refused or counted."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from penstock.testing import Broker
from tests.server.amqp_client import Client, ConnectionEnded
from tests.server.conftest import Connect, StartBroker

TRANSIENT = commands.Queue.Declare(0, "t")
GLOBAL_QOS = commands.Basic.Qos(0, 1, True)
# What RabbitMQ 4.3 answers, as far as 255 octets reach.
TEXT = (
    "INTERNAL_ERROR - Feature `{}` is deprecated.\nBy default, this feature is not permitted anymore.\nThe feature will"
    " be removed from a future major RabbitMQ version, regardless of the configuration; actual version to be"
    " determined."
)
USES = [("transient_nonexcl_queues", TRANSIENT), ("global_qos", GLOBAL_QOS)]
USE = pytest.mark.parametrize(("feature", "method"), USES, ids=[name for name, _ in USES])


def used(broker: Broker) -> dict[str, tuple[int, int]]:
    features = broker.call(lambda server: server.broker.deprecated.list())
    return {each["name"]: (each["used"], each["refused"]) for each in features}


@USE
@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({}, False),
        ({"compatibility": "strict"}, True),
        ({"compatibility": "strict", "deprecated_permitted": ["transient_nonexcl_queues", "global_qos"]}, False),
        ({"deprecated_denied": ["transient_nonexcl_queues", "global_qos"]}, True),
    ],
    ids=["lenient", "strict", "strict, permitted", "lenient, denied"],
)
def test_a_deprecated_feature_is_counted_and_maybe_refused(
    start_broker: StartBroker, connect: Connect, settings: dict[str, Any], is_refused: bool, feature: str, method: Any
) -> None:
    broker = start_broker(**settings)
    with connect(broker) as neighbour, connect(broker) as client:
        client.send(1, method)
        if is_refused:
            close = client.expect(commands.Connection.Close)
            assert close.reply_code == 541
            assert close.reply_text.startswith(TEXT.format(feature))
            assert close.reply_text.endswith("...")
            client.send(0, commands.Connection.CloseOk())
            client.expect_end()
        else:
            client.barrier(1)
        neighbour.barrier(1)
    assert used(broker)[feature] == (1, int(is_refused))


def test_strict_leaves_alone_what_is_not_deprecated(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(compatibility="strict")
    with connect(broker) as client:
        client.declare(1, "d", durable=True)
        client.declare(1, "e", exclusive=True)
        client.declare(1, "", exclusive=True, auto_delete=True)
        client.qos(1, 10)
        client.publish(1, "d", b"x")
        client.consume(1, "d")
        assert client.bodies(1) == [b"x"]
    assert set(used(broker).values()) == {(0, 0)}


@pytest.mark.parametrize(("compatibility", "frame_bytes_max"), [("strict", 8191), ("lenient", 4095)])
def test_a_smaller_frame_than_that_version_allows_is_refused(
    start_broker: StartBroker, compatibility: str, frame_bytes_max: int
) -> None:
    broker = start_broker(compatibility=compatibility)
    with Client("127.0.0.1", broker.port) as client:
        with pytest.raises(ConnectionEnded):
            client.handshake(frame_bytes_max=frame_bytes_max)
        (close,) = client.seen(commands.Connection.Close)
        assert close.reply_code == 530
        least = frame_bytes_max + 1
        assert f"negotiated frame_max = {frame_bytes_max} is lower than the minimum allowed value ({least})" in (
            close.reply_text
        )
    with Client("127.0.0.1", broker.port) as client:
        client.handshake(frame_bytes_max=frame_bytes_max + 1)
