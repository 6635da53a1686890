"""put, then reserve, then finalize, one connection, in a table that has its rows already."""

from __future__ import annotations

import time
from collections.abc import Callable

from benches.postgres.figures import US_PER_S, Timed, in_ms, together
from benches.postgres.systems import PAYLOAD, System, Taken


def measure_phases(
    system: System, url: str, batch: int, seconds: float, server_cpu_s: Callable[[], float]
) -> dict[str, float]:
    """`server_cpu_s` tells how much the server's processes have used so far."""
    payloads = [PAYLOAD] * batch
    taken: list[list[Taken]] = []

    def reserve(count: int) -> int:
        found = consumer.reserve(count)
        if len(found) != count:
            raise RuntimeError(f"asked for {count} of many messages, got {len(found)}")
        taken.append(found)
        return count

    producer, consumer = system.producer(url), system.consumer(url)
    try:
        # The first call of each prepares its statement, and the caches.
        producer.put(payloads)
        reserve(batch)
        consumer.finalize(taken.pop())
        used = [server_cpu_s()]
        put = calls_for(seconds, lambda: put_all(producer.put, payloads))
        used.append(server_cpu_s())
        reserved = calls_for(seconds, lambda: reserve(batch))
        used.append(server_cpu_s())
        finalized = calls_until_empty(taken, consumer.finalize)
        used.append(server_cpu_s())
    finally:
        producer.close()
        consumer.close()
    metrics: dict[str, float] = {}
    for number, (name, timed) in enumerate((("put", put), ("reserve", reserved), ("finalize", finalized))):
        metrics[f"{name}_per_s"] = timed.per_s
        metrics[f"{name}_server_us"] = (used[number + 1] - used[number]) * US_PER_S / timed.messages
        metrics |= in_ms(timed.durations_s, name, (50, 99))
    metrics["cycle_per_s"] = together(put.per_s, reserved.per_s, finalized.per_s)
    return metrics


def put_all(put: Callable[[list[bytes]], None], payloads: list[bytes]) -> int:
    put(payloads)
    return len(payloads)


def calls_for(seconds: float, call: Callable[[], int]) -> Timed:
    durations: list[float] = []
    messages = 0
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        messages += call()
        before, now = now, time.perf_counter()
        durations.append(now - before)
    return Timed(durations, messages)


def calls_until_empty(taken: list[list[Taken]], finalize: Callable[[list[Taken]], None]) -> Timed:
    durations: list[float] = []
    messages = 0
    for group in taken:
        before = time.perf_counter()
        finalize(group)
        durations.append(time.perf_counter() - before)
        messages += len(group)
    return Timed(durations, messages)
