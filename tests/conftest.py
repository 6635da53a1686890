"""Fixtures shared by all tests that need a broker on the wire."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    """An AMQP URL: PENSTOCK_TEST_BROKER_URL when set, else a penstock started for this session.

    The variable exists to run the interop tests against RabbitMQ, which proves the tests themselves.
    """
    outside = os.environ.get("PENSTOCK_TEST_BROKER_URL")
    if outside:
        yield outside
        return
    from penstock.testing import Broker

    with Broker() as broker:
        yield broker.url
