"""What the runner says while it runs: one line that rewrites itself on a terminal, one line a repeat elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from benches.summary import Repeat


class Progress:
    def __init__(self, total: int, out: TextIO = sys.stderr) -> None:
        self._total = total
        self._done = 0
        self._out = out
        self._terminal = out.isatty()
        self._started = time.monotonic()

    def begin(self, broker: str, case: str, number: int) -> None:
        if self._terminal:
            self._write(f"{self._position()} {case}, {broker}, repeat {number + 1}")

    def end(self, repeat: Repeat) -> None:
        self._done += 1
        if self._terminal and repeat.error is None:
            return
        self.note(f"{self._position()} {repeat.case}, {repeat.broker}, repeat {repeat.number + 1}: {self.told(repeat)}")

    def told(self, repeat: Repeat) -> str:
        """What a repeat came to, in a line."""
        return told(repeat)

    def skip(self) -> None:
        self._done += 1

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._terminal:
            self._write("")
        self._out.write(text + "\n")
        self._out.flush()

    def close(self) -> None:
        if self._terminal:
            self._write("")

    def _position(self) -> str:
        return f"[{self._done}/{self._total}, {time.monotonic() - self._started:.0f} s]"

    def _write(self, text: str) -> None:
        self._out.write(f"\r\x1b[K{text[:110]}")
        self._out.flush()


def told(repeat: Repeat) -> str:
    if repeat.error is not None:
        return f"FAILED: {repeat.error}"
    m = repeat.metrics
    if "start_s" in m:
        return f"start {m['start_s']:.2f} s, idle {m['rss_idle_mib']:.0f} MiB"
    text = told_of_backlog(m) if "messages" in m else told_of_load(m)
    text += f", peak RSS {m['rss_peak_mib']:.0f} MiB"
    if repeat.disturbed:
        text += f" (DISTURBED: others used {repeat.foreign_share:.0%} of the machine)"
    return text


def told_of_load(m: dict[str, float]) -> str:
    if "rss_bytes_per_cycle" in m:
        return (
            f"{m['consumed_per_s']:,.0f} cycles/s, p99 {m['e2e_p99_ms']:.2f} ms, CPU {m['cpu_us_per_msg']:.0f} us/cycle"
        )
    text = f"published {m['published_per_s']:,.0f}/s, consumed {m['consumed_per_s']:,.0f}/s"
    text += f", CPU {m['cpu_us_per_msg']:.1f} us/msg"
    if "e2e_p99_ms" in m:
        text += f", e2e p50 {m['e2e_p50_ms']:.2f} p99 {m['e2e_p99_ms']:.2f} ms"
    if "share_of_disk" in m:
        text += f", {m['share_of_disk']:.2f} of the disk's {m['disk_syncs_per_s']:,.0f} syncs/s"
    if "share_of_disk_bytes" in m:
        text += f", {m['share_of_disk_bytes']:.2f} of the disk's {m['disk_mib_per_s']:,.0f} MiB/s"
    return text


def told_of_backlog(m: dict[str, float]) -> str:
    text = f"{m['messages']:,.0f} messages, in {m['published_per_s']:,.0f}/s"
    for name, metric in (("out", "drained_per_s"), ("expired", "expired_per_s"), ("dead", "dead_letters_per_s")):
        if metric in m:
            text += f", {name} {m[metric]:,.0f}/s"
    if "late_p99_ms" in m:
        text += f", late p50 {m['late_p50_ms']:.1f} p99 {m['late_p99_ms']:.1f} ms"
    if "ready_killed_s" in m:
        text += f", ready after kill {m['ready_killed_s']:.2f} s, after stop {m['ready_stopped_s']:.2f} s"
    return text
