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
# A backlog is published and drained by number. No broker is so slow that this is not enough.
SLOWEST_PER_S: Final = 5_000


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
    """So many seconds of load; the queues are deleted afterwards."""
    timed = ["--seconds", str(seconds), "--delete", "--drain-max", str(DRAIN_MAX_S), *arguments]
    return run_generator(broker_pid, port, timed, seconds + DRAIN_MAX_S + 30.0, nice)


def run_counted(
    broker_pid: int, port: int, count: int, arguments: Sequence[str], nice: int | None = None
) -> tuple[Usage, dict[str, Any]]:
    """So many messages; the queues stay, and what is in them is counted at the end."""
    return run_generator(broker_pid, port, ["--count", str(count), *arguments], 120.0 + count / SLOWEST_PER_S, nice)


def run_generator(
    broker_pid: int, port: int, arguments: Sequence[str], timeout_s: float, nice: int | None
) -> tuple[Usage, dict[str, Any]]:
    """One run against the broker; returns what the broker used and what the generator counted.

    A run that failed has a text under "error" in the counts.
    """
    command = [str(BINARY), "--port", str(port), "--idle", str(IDLE_MAX_S), *arguments]
    usage = run_and_measure(broker_pid, command, timeout_s, nice=nice)
    lines = usage.command_output.strip().splitlines()
    try:
        counts: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:
        counts = {}
    if usage.command_status != 0 and "error" not in counts:
        counts["error"] = usage.command_error.strip()[-300:] or f"exit status {usage.command_status}"
    return usage, counts


def waiting_messages(port: int, prefix: str) -> int | None:
    """What a passive declare of the queue says, or None while the broker does not answer."""
    command = [str(BINARY), "--port", str(port), "--prefix", prefix, "--durable", "--depth"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return None
    depth: int = json.loads(result.stdout)["depth"]
    return depth


def disk_syncs_per_s(folder: Path, seconds: float, size_bytes: int) -> float:
    """How often a second this disk takes so many bytes behind the others and syncs them, with nothing else to do."""
    command = [str(BINARY), "--sync-rate", str(folder), "--seconds", str(seconds), "--size", str(size_bytes)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    rate: float = json.loads(result.stdout)["syncs_per_s"]
    return rate


def unaccounted(counts: dict[str, Any], messages: int) -> str | None:
    """What is wrong with the sequence numbers that the consumers saw, if they were checked."""
    seen = counts.get("verify")
    if seen is None or (seen["distinct"] == messages and not seen["duplicates"] and not seen["out_of_order"]):
        return None
    return (
        f"of {messages} messages {seen['distinct']} came, {seen['duplicates']} of them twice, "
        f"{seen['out_of_order']} out of order"
    )
