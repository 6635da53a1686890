"""Turns of the scheduler: who delivers when, who writes when, and that nobody is forgotten."""

from __future__ import annotations

import pytest
from fake_loop import FakeLoop

from penstock import limits
from penstock.clock import ManualClock
from penstock.server.turn.flow import PublisherFlow
from penstock.server.turn.scheduler import Scheduler


class Worker:
    """A connection with packs of messages to deliver, which writes after it has delivered."""

    def __init__(self, bench: Bench, name: str, packs: list[int]) -> None:
        self._bench = bench
        self.name = name
        self.packs = packs
        self.unwritten = False

    def wake(self) -> None:
        self._bench.scheduler.wake(self)

    def deliver_some(self) -> int:
        count = self.packs.pop(0)
        self._bench.log.append(f"{self.name}{count}")
        self.say()
        return count

    def has_work(self) -> bool:
        return bool(self.packs)

    def say(self) -> None:
        if not self.unwritten:
            self.unwritten = True
            self._bench.scheduler.flush_soon(self)

    def flush(self) -> None:
        self.unwritten = False
        self._bench.log.append(f"{self.name} writes")

    def failed(self) -> None:
        self._bench.log.append(f"{self.name} failed")


class Faulty(Worker):
    """A connection with a bug in it."""

    def __init__(self, bench: Bench, name: str, packs: list[int], fails_in: str) -> None:
        super().__init__(bench, name, packs)
        self._fails_in = fails_in

    def deliver_some(self) -> int:
        if self._fails_in == "deliver":
            raise ZeroDivisionError
        return super().deliver_some()

    def flush(self) -> None:
        if self._fails_in == "flush":
            raise ZeroDivisionError
        super().flush()


class Bench:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.log: list[str] = []
        self.flow = PublisherFlow(self.loop)
        self.scheduler = Scheduler(self.loop, self.flow, lambda: self.log.append("end"), ManualClock())

    def worker(self, name: str, *packs: int) -> Worker:
        return Worker(self, name, list(packs))


def test_a_turn_is_scheduled_once_however_many_wake() -> None:
    bench = Bench()
    for name in "abc":
        bench.worker(name, 1).wake()
    assert len(bench.loop.ready) == 1
    bench.loop.run()
    assert bench.log == ["a1", "b1", "c1", "a writes", "b writes", "c writes", "end"]


def test_connections_take_turns_and_write_once() -> None:
    bench = Bench()
    bench.worker("a", 1, 2, 3).wake()
    bench.worker("b", 4).wake()
    bench.loop.run()
    assert bench.log == ["a1", "b4", "a2", "a3", "a writes", "b writes", "end"]


def test_a_turn_ends_when_its_messages_are_used_up_and_sockets_are_read_before_the_next() -> None:
    bench = Bench()
    half = limits.TURN_MESSAGES_MAX // 2
    bench.worker("a", half, half, 7).wake()
    bench.worker("b", half, half).wake()
    bench.loop.turn()
    assert bench.log == [f"a{half}", f"b{half}", "a writes", "b writes", "end"]
    assert len(bench.loop.ready) == 1
    bench.log.clear()
    bench.loop.turn()
    assert bench.log == [f"a{half}", f"b{half}", "a writes", "b writes", "end"]
    bench.log.clear()
    bench.loop.run()
    assert bench.log == ["a7", "a writes", "end"]


def test_a_connection_that_only_has_to_write_gets_a_turn() -> None:
    bench = Bench()
    bench.worker("a").say()
    bench.loop.run()
    assert bench.log == ["a writes", "end"]


def test_work_that_comes_up_while_others_write_is_not_forgotten() -> None:
    bench = Bench()
    late = bench.worker("b", 5)

    class Waker(Worker):
        def flush(self) -> None:
            super().flush()
            if late.packs:
                late.wake()

    Waker(bench, "a", [1]).wake()
    bench.loop.run()
    assert bench.log == ["a1", "a writes", "end", "b5", "b writes", "end"]


def test_output_that_comes_up_while_others_write_is_not_forgotten() -> None:
    bench = Bench()
    late = bench.worker("b")

    class Talker(Worker):
        def flush(self) -> None:
            super().flush()
            late.say()

    Talker(bench, "a", [1]).wake()
    bench.loop.run()
    assert bench.log == ["a1", "a writes", "end", "b writes", "end"]


def test_a_connection_that_fails_to_deliver_does_not_stop_the_others() -> None:
    bench = Bench()
    Faulty(bench, "a", [1, 1], "deliver").wake()
    bench.worker("b", 2, 3).wake()
    bench.loop.run()
    assert bench.log == ["a failed", "b2", "b3", "b writes", "end"]


def test_a_connection_that_fails_to_write_does_not_stop_the_others() -> None:
    bench = Bench()
    Faulty(bench, "a", [1], "flush").wake()
    bench.worker("b", 2).wake()
    bench.loop.run()
    assert bench.log == ["a1", "b2", "a failed", "b writes", "end"]


def test_there_is_a_next_turn_even_after_one_that_failed() -> None:
    loop = FakeLoop()
    bench = Bench()
    ends = iter([True, False])

    def fail_once() -> None:
        if next(ends):
            raise ZeroDivisionError

    bench.loop, bench.scheduler = loop, Scheduler(loop, bench.flow, fail_once, ManualClock())
    bench.worker("a", 1).wake()
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    bench.worker("b", 2).wake()
    loop.run()
    assert bench.log == ["a1", "a writes", "b2", "b writes"]


def test_the_loop_is_left_alone_when_there_is_nothing_to_do() -> None:
    bench = Bench()
    worker = bench.worker("a", 1)
    worker.wake()
    bench.loop.run()
    assert bench.loop.ready == []
    assert bench.loop.timers == []
    worker.packs.append(2)
    worker.wake()
    bench.loop.run()
    assert bench.log[-3:] == ["a2", "a writes", "end"]
