"""A transaction that stays open keeps dead rows from being removed. Does a queue hold the rate that is offered to it?

First without it for a third of the time, then with it. Consumers reserve and finalize one by one.
"""

from __future__ import annotations

import time
from typing import Final

import psycopg

from benches.postgres.figures import Call, held_share, in_ms, within
from benches.postgres.processes import Link, Troupe
from benches.postgres.systems import PAYLOAD, System

CONSUMERS: Final = 2
PUT_AT_ONCE: Final = 8
# A consumer that finds nothing looks again after this: the reservations are measured, not the waking.
IDLE_S: Final = 0.001


def offer(link: Link, system: System, url: str, per_s: float, seconds: float) -> int:
    client = system.producer(url)
    try:
        payloads = [PAYLOAD] * PUT_AT_ONCE
        start = link.ready()
        count = 0
        while (due := count / per_s) < seconds:
            if (left := start + due - time.monotonic()) > 0:
                time.sleep(left)
            client.put(payloads)
            count += PUT_AT_ONCE
        return count
    finally:
        client.close()


def take(link: Link, system: System, url: str, seconds: float) -> list[Call]:
    client = system.consumer(url)
    calls: list[Call] = []
    try:
        start = link.ready()
        while (before := time.monotonic()) < start + seconds:
            taken = client.reserve(1)
            if taken:
                calls.append(Call(before - start, time.monotonic() - before))
                client.finalize(taken)
            else:
                time.sleep(IDLE_S)
        return calls
    finally:
        client.close()


def measure_pinned(system: System, url: str, per_s: float, seconds: float) -> dict[str, float]:
    free = hold(system, url, per_s, seconds / 3)
    with psycopg.connect(url) as pin:
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT 1")
        calls = hold(system, url, per_s, seconds)
        pin.rollback()
    return pinned_metrics(free, calls, per_s, seconds)


def hold(system: System, url: str, per_s: float, seconds: float) -> list[Call]:
    parts = [(take, (system, url, seconds))] * CONSUMERS
    with Troupe([(offer, (system, url, per_s, seconds)), *parts]) as troupe:
        troupe.begin()
        _, *groups = troupe.results(seconds)
    return [call for group in groups for call in group]


def pinned_metrics(free: list[Call], calls: list[Call], per_s: float, seconds: float) -> dict[str, float]:
    third = seconds / 3
    last = within(calls, 2 * third, seconds)
    return {
        **in_ms([call.took_s for call in free], "free_reserve", (50, 99)),
        **in_ms([call.took_s for call in within(calls, 0, third)], "early_reserve", (50, 99)),
        **in_ms([call.took_s for call in last], "late_reserve", (50, 99)),
        "free_share": held_share(free, 0, third, per_s),
        "late_share": held_share(calls, 2 * third, seconds, per_s),
        "late_done_per_s": len(last) / third,
    }
