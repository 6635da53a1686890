"""How long the fuzz tests run: a fixed, repeatable amount by default, PENSTOCK_FUZZ_SECONDS of fresh input when asked.

By default every run tries the same inputs, so that a red test is red for everyone. With the variable set, inputs are
random, and a failure names the seed (or, from hypothesis, the smallest input) that caused it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, settings

SECONDS = float(os.environ.get("PENSTOCK_FUZZ_SECONDS") or 0)
# A failing seed, to be tried alone.
ONLY_SEED = os.environ.get("PENSTOCK_FUZZ_SEED")

# Parts of PENSTOCK_FUZZ_SECONDS for each test of a kind; over all tests they sum up to about one.
DECODERS_SHARE = 0.03
MACHINE_SHARE = 0.22
SOCKETS_SHARE = 0.22
CHUNKING_SHARE = 0.08
DEFINITIONS_SHARE = 0.05
POLICIES_SHARE = 0.05


def fuzz_settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        derandomize=not SECONDS,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


def seeds(count: int, share: float) -> Iterator[int]:
    """0 to count-1; or, when there is time to fill, random ones until this test's share of it is over."""
    if ONLY_SEED:
        yield int(ONLY_SEED)
        return
    yield from range(count)
    stop_at = time.monotonic() + SECONDS * share
    while time.monotonic() < stop_at:
        yield secrets.randbits(48)


def rounds(share: float) -> Iterator[int]:
    """How often to run a hypothesis property: once; or again and again until the share of the time is over."""
    stop_at = time.monotonic() + SECONDS * share
    yield 0
    count = 1
    while time.monotonic() < stop_at:
        yield count
        count += 1
