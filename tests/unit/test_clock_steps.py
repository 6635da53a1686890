"""A machine whose clock is set: what is due in a second is due in a second."""

from __future__ import annotations

import pytest

from penstock.broker.broker import Broker
from penstock.clock import ManualClock, SteadyClock
from penstock.config import Config
from penstock.fields import Table
from penstock.message import ConfirmToken, Envelope, Incoming, refuse_all, settle_all
from penstock.queues.delayed.next_turn import NextTurn

HOUR_S = 3600.0


def test_a_clock_that_is_set_back_does_not_take_steady_time_along() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    begun_ms = clock.wall_ms()
    machine.step(-HOUR_S)
    assert clock.wall_ms() == begun_ms
    machine.advance(5)
    assert clock.wall_ms() == begun_ms + 5000
    # Timestamps are what the machine shows.
    assert clock.date_ms() == machine.wall_ms()
    machine.step(-HOUR_S)
    machine.advance(1)
    assert clock.wall_ms() == begun_ms + 6000


def test_a_clock_that_is_set_forward_is_followed() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    machine.step(HOUR_S)
    assert clock.wall_ms() == machine.wall_ms()


def test_a_clock_that_lags_a_little_is_waited_for_and_never_goes_back() -> None:
    machine = ManualClock()
    clock = SteadyClock(machine)
    begun_ms = clock.wall_ms()
    machine.step(-0.05)
    assert clock.wall_ms() == begun_ms
    machine.advance(0.06)
    assert clock.wall_ms() == machine.wall_ms()


def due(broker: Broker) -> None:
    broker.expiries.run_due(broker.clock.wall_ms())


def test_work_in_slices_goes_on_when_the_clock_is_set_back() -> None:
    machine = ManualClock()
    broker = Broker(Config(), machine)
    done: list[int] = []
    later = NextTurn(done.append, broker.expiries)
    later.soon(broker.clock.wall_ms())
    machine.step(-HOUR_S)
    machine.advance(0.01)
    due(broker)
    assert len(done) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": ("I", 1000)},
        {"x-expires": ("I", 1000)},
    ],
    ids=["time to live", "expiry of the queue"],
)
def test_what_expires_does_so_in_time_when_the_clock_is_set_back(arguments: Table) -> None:
    machine = ManualClock()
    broker = Broker(Config(), machine)
    vhost = broker.vhosts["/"]
    queue = vhost.declare_queue("q", False, False, None, arguments)
    queue.publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x\xce"]), None)
    machine.step(-HOUR_S)
    machine.advance(0.9)
    due(broker)
    assert len(queue) == 1
    assert not queue.deleted
    machine.advance(0.2)
    due(broker)
    assert queue.deleted or len(queue) == 0


class Token(ConfirmToken):
    def __init__(self, told: list[str], is_bad: bool) -> None:
        super().__init__(1)
        self._told = told
        self._is_bad = is_bad

    def complete(self) -> None:
        if self._is_bad:
            raise KeyError("a bug")
        self._told.append("ack")

    def refuse(self) -> None:
        if self._is_bad:
            raise KeyError("a bug")
        self._told.append("nack")


def test_a_token_that_raises_keeps_no_other_one_from_its_answer() -> None:
    told: list[str] = []
    for tell in (settle_all, refuse_all):
        with pytest.raises(KeyError):
            tell([Token(told, False), Token(told, True), Token(told, False)])
    assert told == ["ack", "ack", "nack", "nack"]
