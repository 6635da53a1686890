"""Coverage-guided fuzzing of one decoder, where atheris is installed (it is no dependency: `pip install atheris`).

    python -m tests.fuzz.with_atheris table -max_total_time=60

Further arguments go to libFuzzer; a folder among them keeps what was found. It stops at the first undeclared exception
and writes the input to a file, whose name libFuzzer says.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main() -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed; `make fuzz` fuzzes the same decoders with hypothesis")
    with atheris.instrument_imports(include=["penstock"]):
        from tests.fuzz.samples import SAMPLES
        from tests.fuzz.targets import TARGETS
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"name a decoder: {', '.join(sorted(TARGETS))}")
    with tempfile.TemporaryDirectory() as samples:
        for number, sample in enumerate(SAMPLES[name]):
            (Path(samples) / str(number)).write_bytes(sample)
        atheris.Setup([sys.argv[0], *sys.argv[2:], samples], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
