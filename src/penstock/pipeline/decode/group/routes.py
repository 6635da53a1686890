"""Exchange and routing key of published runs: names that stand in the same batch."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from penstock.journal.format.rows import NAME, NAME_ROUTE
from penstock.pipeline.decode.columns.texts import NO_TEXT, Texts
from penstock.pipeline.decode.group.entries import Entries
from penstock.pipeline.decode.group.group import Ints
from penstock.pipeline.decode.group.rows import Rows

# Distinct routes that are remembered.
ROUTES_MAX: Final = 65_536


@final
class Routes:
    __slots__ = ("_exchanges", "_keys", "_problems", "_texts", "_wire_codes")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._wire_codes: dict[bytes, int] = {}
        self._exchanges: list[str | None] = []
        self._keys: list[str | None] = []
        self._problems: dict[int, str] = {}
        self._texts: tuple[Texts, Texts] | None = None

    def codes(self, rows: Rows, entries: Entries, wanted: Rows) -> Ints:
        """Return the code of each wanted row's route. `rows` are all rows of the group: names are among them."""
        if len(self._keys) > ROUTES_MAX:
            self._forget()
        which = (rows.kind == NAME) & (rows.arg == NAME_ROUTE) & (rows.entry >= 0)
        batches, numbers = rows.batch[which], rows.seq[which]
        codes = np.array([self._code(wire) for wire in entries.names(batches, rows.entry[which])], dtype=np.int64)
        if not len(codes):
            return np.full(len(wanted), NO_TEXT)
        # A number holds in its batch only.
        keys = (batches << 32) + numbers
        order = np.argsort(keys, kind="stable")
        keys, codes = keys[order], codes[order]
        asked = (wanted.batch << 32) + wanted.route
        at = np.searchsorted(keys, asked)
        at[at == len(keys)] = 0
        return np.where((keys[at] == asked) & (wanted.route >= 0), codes[at], NO_TEXT)

    def texts(self) -> tuple[Texts, Texts]:
        """Exchanges and routing keys by code."""
        if self._texts is None:
            self._texts = Texts(self._exchanges), Texts(self._keys)
        return self._texts

    @property
    def problems(self) -> dict[int, str]:
        return self._problems

    def _code(self, wire: bytes | None) -> int:
        if wire is None:
            return NO_TEXT
        code = self._wire_codes.get(wire)
        if code is None:
            code = self._wire_codes[wire] = len(self._keys)
            self._texts = None
            self._learn(code, wire)
        return code

    def _learn(self, code: int, wire: bytes) -> None:
        name_end = 1 + wire[0] if wire else 0
        exchange, key = wire[1:name_end], wire[name_end + 1 :]
        if not wire or len(wire) <= name_end or wire[name_end] != len(key):
            self._problems[code] = "exchange and routing key are malformed"
            self._exchanges.append(None)
            self._keys.append(None)
            return
        texts: list[str | None] = []
        for octets in (exchange, key):
            try:
                texts.append(octets.decode())
            except UnicodeDecodeError:
                self._problems[code] = "exchange or routing key is not UTF-8"
                texts.append(octets.decode("utf-8", "backslashreplace"))
        self._exchanges.append(texts[0])
        self._keys.append(texts[1])
