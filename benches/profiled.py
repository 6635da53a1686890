"""Runs `penstock serve` with the arguments given, and samples where it is; `benches/profile.py` starts and reads it.

    python -m benches.profiled FILE serve --port 5673 ...

Every few milliseconds of CPU time (the kernel's tick) a signal looks at the stack. That costs all functions the same,
unlike cProfile, which makes small functions look dearer than they are; time in C counts for the Python function that
called it. SIGUSR1 writes what was gathered to FILE and begins anew, so that the phases of a load can be told apart.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

INTERVAL_S: Final = 0.001


class Sampler:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._samples = 0
        # By function: samples in which it was the innermost, and in which it was on the stack at all.
        self._own: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._names: dict[object, str] = {}

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, self._write)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        self._samples += 1
        seen: set[str] = set()
        own = True
        while frame is not None:
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                path = "/".join(Path(code.co_filename).parts[-2:])
                name = self._names[code] = f"{path}:{code.co_firstlineno} {code.co_qualname}"
            if own:
                self._own[name] = self._own.get(name, 0) + 1
                own = False
            if name not in seen:
                seen.add(name)
                self._whole[name] = self._whole.get(name, 0) + 1
            frame = frame.f_back

    def _write(self, _number: int, _frame: FrameType | None) -> None:
        found = {"samples": self._samples, "own": self._own, "whole": self._whole}
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(found))
        unfinished.rename(self._file)
        self._samples, self._own, self._whole = 0, {}, {}


def main() -> None:
    Sampler(Path(sys.argv[1])).start()
    from penstock.cli.main import main as penstock

    penstock(sys.argv[2:], prog_name="penstock")


if __name__ == "__main__":
    main()
