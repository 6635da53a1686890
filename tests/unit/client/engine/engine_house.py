"""An engine in a folder, by a clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.client.engine.engine import Engine
from penstock.client.engine.names import HISTORY_ARGUMENTS
from penstock.clock import ManualClock
from penstock.fields import Table

QUEUE = "orders"
START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


class House:
    """Opens engines one after the other on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.clock = ManualClock()
        self.engine = Engine(self.folder, self.clock)

    def reopen(self, history_arguments: Table = HISTORY_ARGUMENTS) -> Engine:
        self.engine.close()
        self.engine = Engine(self.folder, self.clock, history_arguments)
        return self.engine

    def crash(self) -> Engine:
        """As if the process had been killed."""
        self.engine._give_up("a test")
        self.engine = Engine(self.folder, self.clock)
        return self.engine

    def now(self) -> datetime:
        return START + timedelta(milliseconds=self.clock.wall_ms() - 1_700_000_000_000)

    def texts(self, number: int, count: int = 100) -> list[str]:
        messages, _ = self.engine.reserve(number, count)
        return [message.text for message in messages]
