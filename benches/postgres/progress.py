"""What a run says of a repeat."""

from __future__ import annotations

from benches import progress
from benches.summary import Repeat

# Metrics of one line, in this order, with their unit.
TOLD = (
    ("put_per_s", "put {:,.0f}/s"),
    ("reserve_per_s", "reserve {:,.0f}/s"),
    ("finalize_per_s", "finalize {:,.0f}/s"),
    ("done_per_s", "done {:,.0f}/s"),
    ("wakeup_p50_ms", "p50 {:.2f} ms"),
    ("wakeup_p95_ms", "p95 {:.2f} ms"),
    ("free_reserve_p50_ms", "reserve p50 {:.2f} ms without pin"),
    ("late_reserve_p50_ms", "{:.2f} at the end with it"),
    ("late_share", "{:.0%} of the offered rate"),
)


class Progress(progress.Progress):
    def say(self, text: str) -> None:
        """What comes before the repeats."""
        if self._terminal:
            self._write(text)
        else:
            self.note(text)

    def told(self, repeat: Repeat) -> str:
        return told(repeat)


def told(repeat: Repeat) -> str:
    if repeat.error is not None:
        return f"FAILED: {repeat.error}"
    text = ", ".join(form.format(repeat.metrics[name]) for name, form in TOLD if name in repeat.metrics)
    if repeat.disturbed:
        text += f" (DISTURBED: others used {repeat.foreign_share:.0%} of the machine)"
    return text
