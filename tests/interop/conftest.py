"""Fixtures of the interop tests: names of their own, and pika connections that are closed afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.fixture_types import Connect, Name


@pytest.fixture
def name() -> Name:
    """Names that no other test uses, on a broker that all tests share."""
    tail = uuid.uuid4().hex[:12]
    return lambda stem="q": f"interop.{stem}.{tail}"


@pytest.fixture
def connect(broker_url: str) -> Iterator[Connect]:
    """A factory of pika blocking connections; keyword arguments are set on the connection's parameters."""
    opened: list[pika.BlockingConnection] = []

    def open_one(**overrides: object) -> pika.BlockingConnection:
        params = pika.URLParameters(broker_url)
        for key, value in overrides.items():
            setattr(params, key, value)
        connection = pika.BlockingConnection(params)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        if connection.is_open:
            try:
                connection.close()
            except pika.exceptions.AMQPError:
                assert connection.is_closed


@pytest.fixture
def connection(connect: Connect) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()
