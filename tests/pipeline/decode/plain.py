"""The rows of the views, made one at a time with the journal's own reader: what the fast reader must equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.disk.os_files import OsFiles
from penstock.errors import AmqpError
from penstock.history.log import Log
from penstock.journal.format.layout import REFERENCE_BODY
from penstock.journal.reading.replay import BatchView, RottenBatch, replay
from penstock.pipeline.columns import EVENTS, EXPIRES_MS_MAX, KINDS, RUNS
from penstock.pipeline.decode.properties.properties import headers_of
from penstock.wire.properties import decode_properties

Row = dict[str, Any]
REASONS = {1: "rejected", 2: "expired", 3: "maxlen", 4: "delivery_limit"}
HIDDEN = (32, 33, 35)
FRAME_END_BYTES = 1


@dataclass
class Names:
    queues: dict[int, dict[str, Any]] = field(default_factory=dict)
    consumers: dict[int, dict[str, Any]] = field(default_factory=dict)


def read_plain(folder: str, log: Log) -> tuple[list[Row], list[Row]]:
    """(events, runs) of all that is durable now."""
    last = log.state().end_lsn
    files = OsFiles(folder)
    names: dict[int, Names] = {}
    replay(files, "journal", 0, 0, lambda view: learn(view, names.setdefault(view.segment, Names())))
    reader = PlainReader(log, names)
    end = replay(files, "journal", 0, 0, reader.visit)
    for rotten in end.rotten:
        reader.lost(rotten.first_lsn, rotten.next_lsn)
    return sorted_rows(reader.events, last), sorted_rows(reader.runs, last)


def sorted_rows(rows: list[Row], end_lsn: int) -> list[Row]:
    return sorted((row for row in rows if row["lsn"] < end_lsn), key=lambda row: row["lsn"])


def learn(view: BatchView, names: Names) -> None:
    for row in view.rows:
        if row[6] == 32 and row[8] in (1, 3):
            try:
                text = view.body(row[5])
            except RottenBatch:
                continue
            if row[8] == 1:
                named = json.loads(text.partition(b" ")[2])
                names.queues[row[0]] = {"vhost": named["vhost"], "queue": named["queue"]}
            else:
                names.consumers[row[0]] = json.loads(text)


class PlainReader:
    def __init__(self, log: Log, names: dict[int, Names]) -> None:
        self.log = log
        self.names = names
        self.events: list[Row] = []
        self.runs: list[Row] = []

    def visit(self, view: BatchView) -> None:
        routes: dict[int, tuple[str, str, bool] | None] = {}
        lsn = view.first_lsn
        for row in view.rows:
            if row[6] == 32 and row[8] == 2:
                routes[row[0]] = readable(lambda at=row[5]: address(view.body(at)))
            elif row[6] not in HIDDEN:
                common = self.common(view, row, routes)
                events = [self.event(view, row, common, lsn + step, step) for step in range(row[3])]
                self.events += events
                self.runs.append(self.run(row, common, lsn, events))
            lsn += row[3]

    def lost(self, first_lsn: int, next_lsn: int) -> None:
        if first_lsn == next_lsn:
            return
        row = {"lsn": first_lsn, "queue_no": -1, "seq": -1, "kind": "unreadable", "kind_no": 101, "problem": True}
        self.events.append(dict.fromkeys(EVENTS.names) | row)
        self.runs.append(dict.fromkeys(RUNS.names) | row | {"count": next_lsn - first_lsn})

    def common(self, view: BatchView, row: tuple[int, ...], routes: dict[int, tuple[str, str, bool] | None]) -> Row:
        names = self.names[view.segment]
        kind_no = 100 if row[6] == 2 and row[2] == -1 else row[6]
        published = row[6] == 1
        queue = names.queues.get(row[1])
        consumer = names.consumers.get(row[2]) if row[2] > 0 else None
        route = routes.get(row[4]) if published else None
        problem = kind_no not in KINDS or queue is None or (published and (route is None or not route[2]))
        return {
            "time": view.wall_us,
            "vhost": queue["vhost"] if queue else None,
            "queue": queue["queue"] if queue else None,
            "queue_no": row[1],
            "kind": KINDS.get(kind_no, "unknown"),
            "kind_no": kind_no,
            "reason": None if published else REASONS.get(row[8]),
            "consumer": consumer["consumer"] if consumer else None,
            "connection": consumer["connection"] if consumer else None,
            "exchange": route[0] if route else None,
            "routing_key": route[1] if route else None,
            "problem": (problem or (row[2] > 0 and consumer is None)) or None,
        }

    def event(self, view: BatchView, row: tuple[int, ...], common: Row, lsn: int, step: int) -> Row:
        shown: Row = dict.fromkeys(EVENTS.names) | common | {"lsn": lsn, "seq": -1 if row[6] == 34 else row[0] + step}
        if row[6] != 1:
            return shown
        entry = row[5] + step
        shown["persistent"] = row[7] & 1 != 0
        shown["priority"] = row[8]
        shown["expires"] = min(row[9], EXPIRES_MS_MAX) * 1000 if row[9] >= 0 else None
        self.fill_body(view, row, entry, shown)
        properties = readable(lambda: view.props(row[5] if row[7] & 2 else entry))
        shown["properties"] = properties
        if properties is None:
            shown["problem"] = True
            return shown
        try:
            decoded = decode_properties(properties)
        except AmqpError:
            shown["problem"] = True
            return shown
        for name in ("message_id", "correlation_id", "content_type"):
            text = getattr(decoded, name)
            try:
                shown[name] = None if text is None else text.encode().decode()
            except UnicodeEncodeError:
                shown["problem"] = True
        shown["headers"] = None if decoded.headers is None else headers_of(decoded.headers)
        return shown

    def fill_body(self, view: BatchView, row: tuple[int, ...], entry: int, shown: Row) -> None:
        body = readable(lambda: view.body(entry))
        if body is None:
            shown["problem"] = True
            shown["size"] = None if row[7] & 4 else view.body_len[entry] - FRAME_END_BYTES
        elif row[7] & 4:
            address_in_store, size = REFERENCE_BODY.unpack(body)
            shown["size"] = size
            shown["body"] = self.log.shared_body(row[1], address_in_store, size)
        else:
            shown["size"] = len(body) - FRAME_END_BYTES
            shown["body"] = body[:-FRAME_END_BYTES]

    def run(self, row: tuple[int, ...], common: Row, lsn: int, events: list[Row]) -> Row:
        size: int | None = row[9]
        if row[6] == 1:
            sizes = [event["size"] for event in events]
            size = None if None in sizes else sum(sizes)
        problem = common["problem"] or (True if size is None else None)
        own = {"lsn": lsn, "seq": events[0]["seq"], "count": row[3], "bytes": size, "problem": problem}
        return {name: (common | own)[name] for name in RUNS.names}


def readable(read: Callable[[], Any]) -> Any:
    """What a damaged block does not let one read is None."""
    try:
        return read()
    except RottenBatch:
        return None


def address(wire: bytes) -> tuple[str, str, bool]:
    """Exchange, routing key, and whether that was UTF-8."""
    end = 1 + wire[0]
    key = wire[end + 1 :].decode("utf-8", "backslashreplace")
    return wire[1:end].decode(), key, key.encode() == wire[end + 1 :]
