"""An option that is a number of seconds."""

from __future__ import annotations

import math
from typing import Any

import click

# Ten years, as sessions have it.
_SECONDS_MAX = 10 * 365 * 24 * 3600


class Seconds(click.FloatRange):
    """A range of seconds; `inf` and `nan`, which Python takes for numbers, are none."""

    def __init__(self, least: float, min_open: bool = False) -> None:
        super().__init__(least, _SECONDS_MAX, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds
