"""How far a replay has come, in the lake, by its name: a second run goes on where the first one was killed.

`_penstock/replays/<sha256 of the name, 32 hex>.json` = {"name", "what", "lsn", "end_lsn", "done"}, replaced after
each slice. All that was chosen below `lsn` is with the broker. Nothing from `end_lsn` on belongs to the replay: it was
published meanwhile. A crash leaves the state of the slice before: its messages are published again, and a queue with
deduplication knows them.

There is no lock: two runs of one name at the same time publish the same keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.publishing.selection import SelectionError

NAME_CHARACTERS_MAX: Final = 128
START: Final = -1


@dataclass(frozen=True, slots=True)
class ReplayState:
    """What is known of a replay from before."""

    # Everything chosen below is published.
    lsn: int = START
    # Nothing from here on was there when it began; None before that.
    end_lsn: int | None = None
    done: bool = False


def check_name(name: str) -> None:
    """Raise SelectionError for a name that cannot be printed or is too long for a key."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise SelectionError(f"the name of a replay has 1 to {NAME_CHARACTERS_MAX} printable characters")


class Resuming:
    def __init__(self, lake: Lake, name: str, what: str) -> None:
        """`what` describes the choice and its destination: the same name for something else is refused."""
        self._file: Path = lake.own / "replays" / f"{sha256(name.encode()).hexdigest()[:32]}.json"
        self._name = name
        self._what = what

    def load(self) -> ReplayState:
        found = durable.read_json(self._file)
        if not isinstance(found, dict):
            return ReplayState()
        if found.get("what") != self._what:
            raise SelectionError(
                f"a replay named {self._name!r} has published something else, or to somewhere else: choose another name"
            )
        return ReplayState(int(found["lsn"]), int(found["end_lsn"]), bool(found["done"]))

    def save(self, lsn: int, end_lsn: int, done: bool) -> None:
        state = {"name": self._name, "what": self._what, "lsn": lsn, "end_lsn": end_lsn, "done": done}
        durable.replace_json(self._file, state)
