"""`python -m benches.checksum`: the checksum of everything on disk, from ISA-L and from zlib, in turn."""

from __future__ import annotations

import argparse
import os
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from isal import isal_zlib

# A header of the journal, a block of a heap, a batch of a busy broker.
SIZES: Final = (124, 4096, 65_536)
BYTES_AT_LEAST: Final = 64 * 1024 * 1024
CALLS_AT_LEAST: Final = 20_000


def nanoseconds(crc32: Callable[[bytes, int], int], data: bytes) -> float:
    """Of one call."""
    calls = max(CALLS_AT_LEAST, BYTES_AT_LEAST // len(data) // 16)
    began = time.perf_counter_ns()
    for _ in range(calls):
        crc32(data, 1)
    return (time.perf_counter_ns() - began) / calls


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.checksum", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    print(f"{'bytes':>8} {'zlib, ns':>10} {'ISA-L, ns':>10} {'ratio':>7}   medians of {given.repeats}")
    for size in SIZES:
        data = os.urandom(size)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(given.repeats):
            theirs.append(nanoseconds(zlib.crc32, data))
            ours.append(nanoseconds(isal_zlib.crc32, data))
        slow, fast = statistics.median(theirs), statistics.median(ours)
        print(f"{size:>8} {slow:>10.0f} {fast:>10.0f} {slow / fast:>7.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
