"""The two brokers that scripts run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import Broker

from ..oracle import RabbitMQ, available


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """One RabbitMQ for the whole run; scripts take away what they declared."""
    reason = available()
    if reason is not None:
        pytest.skip(f"{reason}; penstock is still compared with the recorded answers")
    with RabbitMQ() as rabbit:
        yield rabbit


@pytest.fixture
def penstock_broker() -> Iterator[Broker]:
    """A penstock of its own for every script."""
    with Broker() as broker:
        yield broker
