"""The load generator `amqpload`: built from generator/*.c when needed, and one run of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benches.procstat import Usage, run_and_measure

SOURCES: Final = Path(__file__).parent / "generator"
BINARY: Final = Path(__file__).parent / "amqpload"
# After the load: how long the consumers may take to empty the queues, and how long may pass without a message.
DRAIN_MAX_S: Final = 60.0
IDLE_MAX_S: Final = 5.0


class BuildError(Exception):
    """The load generator could not be compiled."""


def build() -> Path:
    """Compiles the load generator unless it is newer than its sources."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if BINARY.exists() and BINARY.stat().st_mtime > newest:
        return BINARY
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BuildError("the load generator is written in C and no compiler was found (cc, gcc or clang)")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(BINARY), *map(str, sorted(SOURCES.glob("*.c")))]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{result.stderr}")
    return BINARY


def run_load(
    broker_pid: int, port: int, seconds: float, arguments: Sequence[str], nice: int | None = None
) -> tuple[Usage, dict[str, Any]]:
    """One run against the broker; returns what the broker used and what the generator counted.

    A run that failed has a text under "error" in the counts.
    """
    command = [str(BINARY), "--port", str(port), "--seconds", str(seconds), "--delete"]
    command += ["--drain-max", str(DRAIN_MAX_S), "--idle", str(IDLE_MAX_S), *arguments]
    usage = run_and_measure(broker_pid, command, timeout_s=seconds + DRAIN_MAX_S + 30.0, nice=nice)
    lines = usage.command_output.strip().splitlines()
    try:
        counts: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:
        counts = {}
    if usage.command_status != 0 and "error" not in counts:
        counts["error"] = usage.command_error.strip()[-300:] or f"exit status {usage.command_status}"
    return usage, counts
