"""From put to finalize while it flows: producers and consumers in processes, an empty table to begin with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from benches.postgres.figures import US_PER_S
from benches.postgres.processes import Link, Troupe
from benches.postgres.systems import PAYLOAD, System

CONSUMERS: Final = 4


def produce(link: Link, system: System, url: str, batch: int, seconds: float) -> int:
    client = system.producer(url)
    try:
        payloads = [PAYLOAD] * batch
        end = link.ready() + seconds
        count = 0
        while time.monotonic() < end:
            client.put(payloads)
            count += batch
        return count
    finally:
        client.close()


def consume(link: Link, system: System, url: str, batch: int, seconds: float) -> int:
    return system.consume(url, batch, seconds, link.ready, lambda _: None)


def measure_flow(
    system: System, url: str, batch: int, seconds: float, server_cpu_s: Callable[[], float]
) -> dict[str, float]:
    arguments = (system, url, batch, seconds)
    with Troupe([(produce, arguments), *[(consume, arguments)] * CONSUMERS]) as troupe:
        troupe.begin()
        before = server_cpu_s()
        produced, *consumed = troupe.results(seconds)
        used = server_cpu_s() - before
    done = sum(consumed)
    metrics = {"put_per_s": produced / seconds, "done_per_s": done / seconds}
    if done:
        metrics["flow_server_us"] = used * US_PER_S / done
    return metrics
