"""Coverage-guided fuzzing of one decoder or of a whole connection, where atheris is installed (it is no dependency).

    python -m tests.fuzz.with_atheris table -max_total_time=60
    python -m tests.fuzz.with_atheris connection -max_total_time=600 -max_len=4096 found/

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
        from tests.fuzz.connection_target import ConnectionTarget
        from tests.fuzz.samples import SAMPLES
        from tests.fuzz.targets import TARGETS
    targets = {**TARGETS, "connection": ConnectionTarget()}
    samples = {**SAMPLES, "connection": ConnectionTarget.samples()}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in targets:
        sys.exit(f"name what to fuzz: {', '.join(sorted(targets))}")
    with tempfile.TemporaryDirectory() as folder:
        for number, sample in enumerate(samples[name]):
            (Path(folder) / str(number)).write_bytes(sample)
        atheris.Setup([sys.argv[0], *sys.argv[2:], folder], targets[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
