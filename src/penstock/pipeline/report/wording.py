"""Numbers and names as people read them, the same on the page and in the terminal.

Texts are not escaped here: the page escapes everything that it is given.
"""

from __future__ import annotations

from typing import Final

NOTHING: Final = "-"
_UNITS: Final = ((1.0, 1000.0, "µs"), (1e3, 1e6, "ms"), (1e6, 60e6, "s"), (60e6, 3600e6, "min"), (3600e6, 86400e6, "h"))


def duration(us: float | None) -> str:
    """Three digits and a unit: 340 µs, 1.25 ms, 2.5 days."""
    if us is None:
        return NOTHING
    for unit, limit, name in _UNITS:
        if us < limit * 0.9995:
            return f"{_digits(us / unit)} {name}"
    return f"{_digits(us / 86400e6)} days"


def rate(per_second: float) -> str:
    """Return messages per second."""
    return f"{_digits(per_second)}/s"


def share(part: float | None) -> str:
    """Of a whole, in percent."""
    return NOTHING if part is None else f"{_digits(part * 100)} %"


def count(number: int) -> str:
    """With a comma for thousands."""
    return f"{number:,}"


def size(octets: int) -> str:
    """Return bytes in binary units."""
    value = float(octets)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def place(vhost: str, queue: str) -> str:
    """Return a queue's name; with its virtual host unless that is the usual one."""
    return printable(queue if vhost in ("/", "") else f"{vhost}/{queue}")


def printable(text: str) -> str:
    """Without characters that a terminal would obey: a queue's name may hold any."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else "<0.001"
