"""Faults that a test can ask for, from its own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.server.server import Server

if TYPE_CHECKING:
    from penstock.testing.broker import Broker


class BrokerFaults:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def cut_connections(self) -> int:
        """Cut every connection without a word, as a broken network would; return how many."""
        return self._broker.call(lambda server: server.faults.cut_connections())

    @contextmanager
    def refused_confirms(self) -> Iterator[None]:
        """Within the block, publishes in confirm mode are not queued and are answered with basic.nack."""
        before = self._broker.call(lambda server: server.faults.refuse_confirms)
        self._refuse_confirms(True)
        try:
            yield
        finally:
            self._refuse_confirms(before)

    @contextmanager
    def delayed_confirms(self, seconds: float) -> Iterator[None]:
        """Within the block, confirms are sent so many seconds late."""
        before = self._broker.call(lambda server: server.faults.confirm_delay_s)
        self._delay_confirms(seconds)
        try:
            yield
        finally:
            self._delay_confirms(before)

    def _refuse_confirms(self, refuse: bool) -> None:
        def work(server: Server) -> None:
            server.faults.refuse_confirms = refuse

        self._call_if_running(work)

    def _delay_confirms(self, seconds: float) -> None:
        def work(server: Server) -> None:
            server.faults.confirm_delay_s = seconds

        self._call_if_running(work)

    def _call_if_running(self, work: Callable[[Server], None]) -> None:
        # A broker that was stopped within the block has forgotten its faults.
        if self._broker.is_running:
            self._broker.call(work)
