"""How long an idle consumer sleeps on: from the call of put to the message in the consumer's hands."""

from __future__ import annotations

import random
import time
from typing import Final

from benches.postgres.figures import in_ms
from benches.postgres.processes import Link, Troupe
from benches.postgres.systems import PAYLOAD, System

# Between two messages, at random: longer than anybody looks again quickly after the last one.
PAUSE_S: Final = (0.12, 0.25)
# One whose notification was lost is found when the system looks again by itself.
SECONDS_MAX: Final = 30.0
FOR_EVER_S: Final = 1e9


def wait_and_tell(link: Link, system: System, url: str) -> None:
    system.consume(url, 1, FOR_EVER_S, link.ready, lambda _: link.tell(time.monotonic()))


def measure_wakeup(system: System, url: str, messages: int) -> dict[str, float]:
    durations: list[float] = []
    producer = system.producer(url)
    try:
        with Troupe([(wait_and_tell, (system, url))]) as troupe:
            troupe.begin()
            # The first has everything prepared on both sides.
            for number in range(messages + 1):
                time.sleep(random.uniform(*PAUSE_S))
                before = time.monotonic()
                producer.put([PAYLOAD])
                received = troupe.hear(0, "told", SECONDS_MAX)
                if number:
                    durations.append(received - before)
    finally:
        producer.close()
    return in_ms(durations, "wakeup", (50, 95))
