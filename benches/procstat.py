"""CPU time and memory of a process tree while a command runs, from /proc alone.

`foreign_cpu_s` is the CPU that everything else used: neither the tree, nor the command, nor this
process. If it is not small, the machine was shared and the figures say less.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessStat:
    parent: int
    cpu_s: float
    """Its own and that of the children it has waited for."""
    rss_bytes: int


@dataclass(frozen=True)
class TreeSample:
    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True)
class Usage:
    """What a process tree used while a command ran, and the command's result."""

    wall_s: float
    cpu_s: float
    rss_start_bytes: int
    rss_peak_bytes: int
    rss_end_bytes: int
    foreign_cpu_s: float
    steal_s: float
    command_status: int
    command_output: str
    command_error: str

    @property
    def cores(self) -> float:
        return self.cpu_s / self.wall_s

    @property
    def foreign_share(self) -> float:
        """Share of the whole machine that others used, or that the hypervisor took."""
        return (self.foreign_cpu_s + self.steal_s) / (self.wall_s * (os.cpu_count() or 1))


def set_session_nice(pid: int, nice: int) -> None:
    """The scheduler divides the machine between sessions first, so a nice value must be set for the session."""
    with contextlib.suppress(FileNotFoundError):  # a kernel without autogroups
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    os.setpriority(os.PRIO_PROCESS, pid, nice)


def process_stat(pid: int) -> ProcessStat | None:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may contain anything; the fields start behind the last one.
    fields = raw[raw.rindex(b")") + 2 :].split()
    ticks = sum(int(field) for field in fields[11:15])
    return ProcessStat(int(fields[1]), ticks / TICKS_PER_S, int(fields[21]) * PAGE_BYTES)


def tree_pids(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := process_stat(int(entry))) is not None:
            children.setdefault(stat.parent, []).append(int(entry))
    pids = [root]
    for pid in pids:  # grows while it is walked
        pids.extend(children.get(pid, ()))
    return pids


def sample(pids: Sequence[int]) -> TreeSample:
    stats = [stat for pid in pids if (stat := process_stat(pid)) is not None]
    return TreeSample(sum(stat.cpu_s for stat in stats), sum(stat.rss_bytes for stat in stats))


def rss_peak_bytes(pids: Sequence[int]) -> int:
    """The most that these processes had since they were started: each its own peak, added up."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1]) * 1024
    return total


def machine_busy_s() -> tuple[float, float]:
    """Seconds that all cores together were busy (neither idle nor waiting for a disk), and stolen seconds."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) / TICKS_PER_S for field in first.split()[1:9])
    return user + nice + system + irq + softirq, steal


def run_and_measure(
    root: int, command: Sequence[str], timeout_s: float, nice: int | None = None, interval_s: float = 0.1
) -> Usage:
    """Runs the command while sampling the tree of `root`. A command that outlives `timeout_s` is killed."""
    # The tree is looked up once: a broker's processes stay, and walking /proc again and again costs latency.
    pids = tree_pids(root)
    before, (busy_before, steal_before), own_before = sample(pids), machine_busy_s(), os.times()
    peak = before.rss_bytes
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=nice is not None)
        try:
            if nice is not None:
                set_session_nice(process.pid, nice)
            while process.poll() is None and time.monotonic() - started < timeout_s:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(interval_s)
                peak = max(peak, sample(pids).rss_bytes)
        finally:
            process.kill()
            process.wait()
        wall_s = time.monotonic() - started
        out.seek(0)
        err.seek(0)
        output, error = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    after, (busy_after, steal_after), own_after = sample(pids), machine_busy_s(), os.times()
    cpu_s = after.cpu_s - before.cpu_s
    own_s = sum(own_after[:4]) - sum(own_before[:4])
    return Usage(
        wall_s=wall_s,
        cpu_s=cpu_s,
        rss_start_bytes=before.rss_bytes,
        rss_peak_bytes=max(peak, after.rss_bytes),
        rss_end_bytes=after.rss_bytes,
        foreign_cpu_s=max(0.0, busy_after - busy_before - cpu_s - own_s),
        steal_s=steal_after - steal_before,
        command_status=process.returncode,
        command_output=output,
        command_error=error,
    )
