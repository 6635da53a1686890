"""Brokers and clients of the server tests; every broker is checked for its health at the end of its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.config import Config
from penstock.testing import Broker
from tests.server.amqp_client import Client
from tests.server.brokers import LOOPS, check_left_alone

StartBroker = Callable[..., Broker]
Connect = Callable[..., Client]


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """A factory of brokers; keyword arguments go to the configuration."""
    with ExitStack() as running:

        def start(loop: str = "asyncio", **settings: Any) -> Broker:
            config = Config(**{"login_refused_delay_s": 0.0, **settings})
            broker = running.enter_context(LOOPS[loop](config))
            running.callback(check_left_alone, broker)
            return broker

        yield start


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker()


@pytest.fixture(params=sorted(LOOPS))
def either_broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> Broker:
    """On asyncio's own loop and on uvloop, whose transports differ where buffers and pauses are concerned."""
    return start_broker(loop=request.param)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """A factory of clients with channel 1 open; keyword arguments go to the handshake."""
    with ExitStack() as opened:

        def open_one(broker: Broker, receive_buffer_bytes: int = 0, **arguments: Any) -> Client:
            client = opened.enter_context(Client(broker.host, broker.port, receive_buffer_bytes))
            client.handshake(**arguments)
            client.open_channel(1)
            return client

        yield open_one


@pytest.fixture
def dial() -> Iterator[Connect]:
    """A factory of clients that are connected and have said nothing yet."""
    with ExitStack() as opened:

        def open_one(broker: Broker) -> Client:
            return opened.enter_context(Client(broker.host, broker.port))

        yield open_one
