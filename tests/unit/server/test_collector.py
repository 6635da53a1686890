"""The collector of the server process: little at a time, and the rest when nobody waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.server.turn.collector import IDLE_OBJECTS_MAX, IDLE_TURNS_MAX, YOUNG_OBJECTS, Collector

CHECK_S = 0.001
Passes = list[int]


class Knot:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def passes() -> Iterator[Passes]:
    """The generations of all passes while the test runs; the process is as before afterwards."""
    seen: Passes = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        gc.collect()


def run(turns: Callable[[], int], work: Callable[[], object], checks: int = 3) -> object:
    """Start a collector, do the work, and let it look a few times; return what the work has made."""

    async def live() -> object:
        looked = 0
        done = asyncio.Event()

        def counted() -> int:
            nonlocal looked
            looked += 1
            if looked > checks:
                done.set()
            return turns()

        tended = Collector(asyncio.get_running_loop(), counted, CHECK_S)
        tended.start()
        kept = work()
        await asyncio.wait_for(done.wait(), 10)
        tended.stop()
        return kept

    return asyncio.run(live())


def busy() -> Callable[[], int]:
    count = 0

    def turns() -> int:
        nonlocal count
        count += IDLE_TURNS_MAX + 1
        return count

    return turns


def test_a_busy_broker_looks_at_new_objects_only(passes: Passes) -> None:
    run(busy(), lambda: [Knot() for _ in range(3 * YOUNG_OBJECTS)])
    assert set(passes) == {0}


def test_an_idle_broker_collects_what_has_survived(passes: Passes) -> None:
    run(lambda: 0, lambda: Knot() is None)
    assert 2 in passes
    assert not [found for found in gc.get_objects() if isinstance(found, Knot)]


def test_a_backlog_is_put_aside_without_a_look(passes: Passes) -> None:
    frozen = 0

    def backlog() -> object:
        nonlocal frozen
        frozen = gc.get_freeze_count()
        return [[number] for number in range(2 * IDLE_OBJECTS_MAX)]

    kept = run(lambda: 0, backlog, checks=1)
    assert set(passes) == {0}
    assert gc.get_freeze_count() - frozen > IDLE_OBJECTS_MAX
    del kept


@pytest.mark.parametrize("count", [YOUNG_OBJECTS, IDLE_OBJECTS_MAX])
def test_what_is_looked_at_together_takes_less_than_two_milliseconds(count: int) -> None:
    times_ms = []
    for _ in range(10):
        gc.collect()
        gc.freeze()
        # Objects with neighbours, as those of a connection are.
        kept: list[dict[str, object]] = []
        for number in range(count // 2):
            kept.append({"number": number, "before": kept[-1] if kept else None, "list": [kept]})
        started_s = time.thread_time()
        gc.collect()
        times_ms.append((time.thread_time() - started_s) * 1000)
        gc.unfreeze()
    assert min(times_ms) < 2, times_ms
