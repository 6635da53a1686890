"""Faults that a test can ask for, from its own thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.server.server import Server

if TYPE_CHECKING:
    from penstock.testing.broker import Broker


class BrokerFaults:
    """`broker.faults`: what is to go wrong."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def cut_connections(self) -> int:
        """Cut every connection without a word, as a broken network would; return how many."""
        return self._broker.call(lambda server: server.faults.cut_connections())

    @contextmanager
    def refused_confirms(self) -> Iterator[None]:
        """Within the block, publishes in confirm mode are not queued and are answered with basic.nack."""
        self._set(refuse=True)
        try:
            yield
        finally:
            self._set(refuse=False)

    @contextmanager
    def delayed_confirms(self, seconds: float) -> Iterator[None]:
        """Within the block, confirms are sent so many seconds late."""
        self._set(delay_s=seconds)
        try:
            yield
        finally:
            self._set(delay_s=0.0)

    def _set(self, refuse: bool | None = None, delay_s: float | None = None) -> None:
        def work(server: Server) -> None:
            if refuse is not None:
                server.faults.refuse_confirms = refuse
            if delay_s is not None:
                server.faults.confirm_delay_s = delay_s

        self._broker.call(work)
