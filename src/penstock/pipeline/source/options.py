"""The options of the source: read once, on the driver, and checked as a whole.

Spark hands them over with their names in lower case, and that is how they are compared. A misspelt one is told
the names that there are: an option that is silently ignored is a wrong result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from penstock.pipeline.columns import KINDS, VIEWS

EVENTS: Final = "events"
RUNS: Final = "runs"
MESSAGES: Final = "messages"
POSTGRES: Final = "postgres"
RANGES: Final = "ranges"

LOG_OPTIONS: Final = (
    "source",
    "user",
    "password",
    "vhost",
    "queue",
    "reader",
    "startingOffsets",
    "endingOffsets",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "partitionBytes",
    "failOnDataLoss",
    "bodies",
)
# What the decoder of events can filter by itself.
JOURNAL_OPTIONS: Final = (*LOG_OPTIONS, "kinds", "pushFilters")
POSTGRES_OPTIONS: Final = (
    "url",
    "schema",
    "queue",
    "startingOffsets",
    "endingOffsets",
    "maxRecordsPerTrigger",
    "partitions",
    "bodies",
)
KNOWN: Final = {
    EVENTS: ("view", *JOURNAL_OPTIONS),
    RUNS: ("view", *JOURNAL_OPTIONS),
    MESSAGES: ("view", *LOG_OPTIONS),
    POSTGRES: ("view", *POSTGRES_OPTIONS),
    RANGES: ("view", *LOG_OPTIONS, "kinds"),
}
# `load("…")` is the same as the option `source`.
PATH: Final = "path"

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PARTITION_BYTES_LEAST: Final = 1024
PARTITIONS: Final = 2
PARTITIONS_MAX: Final = 64
NUMBER_MAX: Final = 2**63 - 1


class OptionError(ValueError):
    """An option of the source is wrong; the text says which one, and what it may be."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end: `earliest`, `latest`, a number (LSN or transaction id), or a time."""

    name: str = ""
    number: int | None = None
    us: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options, checked. Goes to the workers, so the password does; it is shown nowhere."""

    view: str = EVENTS
    # Data folder or http URL; postgresql URL for the view `postgres`.
    source: str = field(default="", repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    vhost: str | None = None
    queue: str | None = None
    kinds: frozenset[str] | None = None
    reader: str | None = None
    # None: the reader's cursor where it has one, else the beginning.
    starting: Position | None = None
    ending: Position = Position(LATEST)
    records_max: int | None = None
    bytes_max: int | None = None
    # None: as many as suit what is read (`decode.ranges`).
    partition_bytes: int | None = None
    fail_on_data_loss: bool = True
    bodies: bool = True
    # Whether filters of queries are done by the source; see `filters`.
    push_filters: bool = False
    schema: str = "penstock"
    partitions: int = PARTITIONS


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check them. OptionError for one that is unknown, out of its limits, or not for this view."""
    options = {name.lower(): value for name, value in given.items()}
    view = options.get("view", EVENTS).lower()
    if view not in VIEWS:
        raise OptionError(f"there is no view {view!r}; the views are {', '.join(VIEWS)}")
    known = {name.lower(): name for name in KNOWN[view]}
    for name in options:
        if name not in known and name != PATH:
            raise OptionError(f"the view {view} has no option {name!r}; its options are {', '.join(known.values())}")
    return SourceOptions(
        view=view,
        source=_source(options, "url" if view == POSTGRES else "source"),
        user=options.get("user") or os.environ.get("PENSTOCK_USER") or None,
        password=options.get("password") or os.environ.get("PENSTOCK_PASSWORD") or None,
        vhost=options.get("vhost"),
        queue=options.get("queue"),
        kinds=_kinds(options.get("kinds")),
        reader=options.get("reader"),
        starting=_position(options, "startingOffsets", view),
        ending=_position(options, "endingOffsets", view) or Position(LATEST),
        records_max=_number(options, "maxRecordsPerTrigger", 1, NUMBER_MAX),
        bytes_max=_number(options, "maxBytesPerTrigger", 1, NUMBER_MAX),
        partition_bytes=_number(options, "partitionBytes", PARTITION_BYTES_LEAST, NUMBER_MAX),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        bodies=_flag(options, "bodies", True),
        push_filters=_flag(options, "pushFilters", False),
        schema=options.get("schema", "penstock"),
        partitions=_number(options, "partitions", 1, PARTITIONS_MAX) or PARTITIONS,
    )


def refuse_stream_options(options: SourceOptions) -> None:
    """OptionError for what only a stream can do."""
    if options.reader is not None:
        raise OptionError("the option reader is for streams: a batch has no cursor; give startingOffsets")
    if options.records_max is not None or options.bytes_max is not None:
        raise OptionError("maxRecordsPerTrigger and maxBytesPerTrigger are for streams; a batch has endingOffsets")


def refuse_batch_options(options: SourceOptions) -> None:
    """OptionError for what only a batch can do."""
    if options.push_filters:
        raise OptionError(
            "the option pushFilters is for batches: Spark tells streams of no filters; use queue, vhost, kinds"
        )
    if options.ending != Position(LATEST):
        raise OptionError("the option endingOffsets is for batches; a stream ends with Trigger.AvailableNow")


def _source(options: Mapping[str, str], name: str) -> str:
    if name in options and PATH in options:
        raise OptionError(f"the source is given twice: as option {name} and in load()")
    source = options.get(name, options.get(PATH, ""))
    if name == "url" and not source.startswith(("postgresql://", "postgres://")):
        raise OptionError("the view postgres needs the option url: postgresql://user:password@host/database")
    if not source:
        raise OptionError("the option source is missing: the data folder of a broker, or the http:// URL of a broker")
    # Workers of a cluster have other working folders.
    return source if is_url(source) else os.path.abspath(source)


def is_url(source: str) -> bool:
    return "://" in source


def _kinds(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    kinds = frozenset(part.strip().lower() for part in text.split(","))
    known = set(KINDS.values())
    if not kinds <= known:
        unknown = ", ".join(repr(kind) for kind in sorted(kinds - known))
        raise OptionError(f"kinds: there is no {unknown}; the kinds are {', '.join(sorted(known))}")
    return kinds


def _position(options: Mapping[str, str], name: str, view: str) -> Position | None:
    text = options.get(name.lower())
    if text is None:
        return None
    text = text.strip()
    if text.lower() in (EARLIEST, LATEST):
        return Position(text.lower())
    if re.fullmatch(r"[0-9]{1,19}", text):
        return Position(number=min(int(text), NUMBER_MAX))
    if view == POSTGRES:
        raise OptionError(f"{name} is {text!r}; for the view postgres it is earliest, latest or a transaction id")
    try:
        return Position(us=microseconds(datetime.fromisoformat(text)))
    except ValueError:
        raise OptionError(
            f"{name} is {text!r}; it is earliest, latest, an LSN, or a time like 2026-01-31T12:00:00+00:00"
        ) from None


def microseconds(time: datetime) -> int:
    """Since 1970; a time without a zone is in UTC, as in the sessions of the pipeline."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _number(options: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text.strip()) or not least <= int(text) <= most:
        raise OptionError(f"{name} is {text!r}; it is a whole number from {least} to {most}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}; it is true or false")
    return text == "true"
