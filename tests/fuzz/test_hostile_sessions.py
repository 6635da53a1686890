"""Hostile clients on real sockets beside an innocent one: it is served, and nothing of theirs stays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from penstock.testing import Broker

from . import budget
from .census import Census, removals, weigh
from .mutations import chunks, hostile_session
from .socket_clients import InnocentClient, send_and_hang_up, wait_until
from .socketless import Complaints


class Arena:
    """A broker, an innocent client, and what there was before the first attack."""

    def __init__(self, broker: Broker, innocent: InnocentClient, complaints: Complaints) -> None:
        self.broker = broker
        self.innocent = innocent
        self.complaints = complaints
        self.check_service()
        self.before = broker.call(Census.of)
        self.weight = broker.call(weigh)

    def check_service(self) -> None:
        self.innocent.check_service()
        wait_until(lambda: self.broker.call(Census.of).unacked == 0, "the innocent's ack was handled")

    def attack(self, data: bytes, random: Random) -> None:
        """One hostile session; then everything is as it was."""
        said = send_and_hang_up(self.broker.port, chunks(random, data), reads=random.random() < 0.9)
        said.check()
        wait_until(lambda: self.broker.call(Census.of).connections == self.before.connections, "the session is gone")
        self.check_service()
        self.innocent.remove(self.broker.call(lambda server: removals(server, 1)))
        assert self.broker.call(Census.of) == self.before
        assert not self.complaints.found, self.complaints.found[:3]


@pytest.fixture
def arena() -> Iterator[Arena]:
    complaints = Complaints()
    # asyncio logs what goes wrong in a callback; penstock what goes wrong in a connection.
    loggers = [logging.getLogger("penstock"), logging.getLogger("asyncio")]
    for logger in loggers:
        logger.addHandler(complaints)
    with Broker() as broker, InnocentClient(broker.port) as innocent:
        yield Arena(broker, innocent, complaints)
    for logger in loggers:
        logger.removeHandler(complaints)


def test_an_innocent_client_is_served_while_others_send_mutated_sessions(arena: Arena) -> None:
    for seed in budget.seeds(250, budget.SOCKETS_SHARE):
        random = Random(f"sockets {seed}")
        data = hostile_session(random)
        try:
            arena.attack(data, random)
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {fault}\n{data.hex()}") from fault
    assert arena.broker.call(weigh) == arena.weight
