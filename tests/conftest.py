"""What all tests share: hypothesis without stop-watch, a broker on the wire, a PostgreSQL (postgres_server.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Examples are not timed: a loaded machine is not a failing test.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

pytest_plugins = ["tests.postgres_server"]


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
