"""What a group's rows refer to: names, properties and bodies, looked up once for all columns."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from penstock.history.log import Log, SegmentIndex
from penstock.journal.format.rows import REFERENCE, SHARED_PROPS
from penstock.pipeline.columns import HEADERS
from penstock.pipeline.decode.columns.piece import Piece
from penstock.pipeline.decode.columns.texts import Names, Texts
from penstock.pipeline.decode.group.entries import Entries, taken
from penstock.pipeline.decode.group.group import Bools, Ints
from penstock.pipeline.decode.group.routes import Routes
from penstock.pipeline.decode.group.rows import KIND_TEXTS, Rows
from penstock.pipeline.decode.properties.header_octets import HeaderOctets
from penstock.pipeline.decode.properties.properties import Facts, PropertyReader
from penstock.pipeline.decode.properties.wide_facts import WideFacts
from penstock.pipeline.decode.request import Request

OF_PROPERTIES: Final = ("properties", "message_id", "correlation_id", "content_type", "headers")
# With more properties in a group it pays to look at all of them at once.
FEW_ENTRIES: Final = 1_000
REASONS: Final[list[str | None]] = [None, "rejected", "expired", "maxlen", "delivery_limit"]


@final
class RangeNames:
    """Names that hold in the whole range."""

    __slots__ = ("consumers", "header_octets", "kinds", "properties", "queues", "reasons", "routes")

    def __init__(self, index: SegmentIndex) -> None:
        self.queues = Names(index.queues, ("vhost", "queue"))
        self.consumers = Names(index.consumers, ("consumer", "connection"))
        self.kinds = Texts(KIND_TEXTS)
        self.reasons = Texts(REASONS)
        self.routes = Routes()
        self.properties = PropertyReader()
        self.header_octets = HeaderOctets()


@final
class DecodedGroup:
    __slots__ = (
        "_facts",
        "bad_bodies",
        "bad_properties",
        "entries",
        "log",
        "names",
        "request",
        "rows",
        "wall_us",
    )

    def __init__(
        self, log: Log, request: Request, names: RangeNames, wall_us: Ints, rows: Rows, entries: Entries
    ) -> None:
        self.log = log
        self.request = request
        self.names = names
        self.rows = rows
        self.entries = entries
        self.wall_us = wall_us
        self.bad_properties = entries.bad_properties()
        self.bad_bodies = entries.bad_bodies()
        self._facts: FewFacts | WideFacts | None = None

    def facts(self) -> FewFacts | WideFacts:
        """What the properties of the rows say."""
        if self._facts is None:
            used = _used_entries(self.rows, self.entries.count)
            if self.bad_properties is not None:
                used = used[~self.bad_properties[used]]
            if len(used) > FEW_ENTRIES:
                self._facts = WideFacts(used, self.entries, self.names.header_octets)
            else:
                self._facts = FewFacts(used, self.entries, self.names.properties)
        return self._facts

    def bytes_of(self, piece: Piece, enough: int) -> int:
        """Bytes of properties and bodies that a piece will have, about; something larger if that is within `enough`."""
        if not piece.published.any():
            return 0
        references = self.references(piece) if self.request.wants_bodies else []
        # A body is in the window, and stands there once.
        most = len(self.entries.window) + piece.size * int(self.entries.props_len.max())
        if not references and most <= enough:
            return most
        total = 0
        if self.request.wants_bodies:
            total += int(self.entries.body_len[piece.published_entries].sum())
            total += sum(size for _, _, _, size in references)
        if self.request.wants(*OF_PROPERTIES):
            total += int(self.entries.props_len[piece.published_props_entries].sum())
        return total

    def references(self, piece: Piece) -> list[tuple[int, int, int, int]]:
        """(event, queue number, address, payload bytes) of bodies in the shared store; -1 bytes when damaged."""
        rows = piece.rows
        found = []
        for row in np.flatnonzero(is_reference(rows)).tolist():
            batch, queue_no = int(rows.batch[row]), int(rows.queue[row])
            for step in range(int(rows.count[row])):
                place = self.entries.reference(batch, int(rows.entry[row]) + step)
                address, size = place if place is not None else (-1, -1)
                found.append((int(piece.begins[row]) + step, queue_no, address, size))
        return found


def is_reference(rows: Rows) -> Bools:
    which: Bools = rows.published & ((rows.flags & REFERENCE) != 0)
    return which


@final
class FewFacts:
    """Facts of the properties of a group, each distinct string of octets once."""

    __slots__ = ("_code_of_entry", "_facts", "_headers", "_texts", "properties")

    def __init__(self, used: Ints, entries: Entries, reader: PropertyReader) -> None:
        encoded = entries.distinct_properties(used).dictionary_encode()
        octets: list[bytes] = encoded.dictionary.to_pylist()
        self._facts: list[Facts] = [reader.read(distinct) for distinct in octets]
        self.properties = Texts(octets, pa.binary())
        self._code_of_entry: Ints = np.full(entries.count, -1)
        self._code_of_entry[used] = encoded.indices.to_numpy(zero_copy_only=False)
        self._texts: dict[str, Texts] = {}
        self._headers: Any = None

    def codes(self, props_entries: Ints) -> Ints:
        return self._code_of_entry[props_entries]

    def text_column(self, name: str, codes: Ints, counts: Ints, size: int) -> pa.Array:
        """`size` texts, that of each code as often as its count says."""
        if name not in self._texts:
            self._texts[name] = Texts([facts.text(name) for facts in self._facts])
        return self._texts[name].column(codes, counts, size)

    def header_column(self, codes: Ints, counts: Ints, size: int) -> pa.Array:
        if self._headers is None:
            self._headers = pa.array([facts.headers for facts in self._facts], HEADERS)
        if self._headers.null_count == len(self._headers):
            return pa.nulls(size, HEADERS)
        return taken(self._headers, np.repeat(codes, counts))

    def problems(self) -> dict[int, str]:
        """By code."""
        return {code: facts.problem for code, facts in enumerate(self._facts) if facts.problem is not None}


def _used_entries(rows: Rows, count: int) -> Ints:
    """Return the entries, of `count`, whose properties are those of a published row."""
    is_used = np.zeros(count, dtype=np.bool_)
    published = rows.published
    shared = (rows.flags & SHARED_PROPS) != 0
    is_used[rows.props_entry[published & shared]] = True
    own = published & ~shared
    if own.any():
        piece = Piece(rows.select(own))
        is_used[piece.counted(piece.rows.props_entry)] = True
    return np.flatnonzero(is_used)
