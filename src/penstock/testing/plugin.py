"""The pytest plugin: an `amqp_broker` fixture. Loaded by pytest through the package's entry point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker


@pytest.fixture
def amqp_broker() -> Iterator[Broker]:
    """A real AMQP broker for one test: `amqp_broker.url`, `amqp_broker.faults`."""
    # Imported here, so that test runs which do not use the fixture do not pay for it.
    from penstock.testing.broker import Broker

    with Broker() as broker:
        yield broker
