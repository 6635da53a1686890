"""The options of the sink, read once on the driver; executors get what came out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from penstock.client.amqp.address import Address, parse_address
from penstock.limits import DEDUP_KEYS_MAX, SHORT_STRING_BYTES_MAX

DEDUP_HEADER: Final = "x-deduplication-header"
# What a queue remembers that the sink declares: several batches of a stream.
CACHE_SIZE: Final = 100_000
WRITE_ID_CHARACTERS_MAX: Final = 128
RATE_MAX: Final = 10_000_000.0
RECONNECT_S: Final = 30.0
RECONNECT_S_MAX: Final = 86_400.0

NAMES: Final = (
    "broker",
    "exchange",
    "routingkey",
    "dedup",
    "dedupheader",
    "writeid",
    "declarequeue",
    "cachesize",
    "ratelimit",
    "reconnectseconds",
)
# Options that the source of the same name has, or Spark itself, and that do no harm here.
IGNORED: Final = ("path", "checkpointlocation", "queryname")


class SinkError(Exception):
    """Rows cannot be published. The text is for people, and says what to do next."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows go, and what makes a repeated write harmless."""

    broker: str = field(repr=False)
    # For rows that do not say.
    exchange: str = ""
    routing_key: str | None = None
    # The header that carries the key by which a queue knows a message again; None for none.
    dedup_header: str | None = DEDUP_HEADER
    write_id: str = ""
    declare_queue: str | None = None
    cache_size: int = CACHE_SIZE
    # Messages in a second for each task; None for as many as the broker takes.
    rate_limit: float | None = None
    # How long a task tries to reach a broker that is gone, before it fails.
    reconnect_s: float = RECONNECT_S

    @property
    def address(self) -> Address:
        return parse_address(self.broker)


def read_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options by their names, whatever their case. SinkError for one that is unknown or makes no sense."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in NAMES and name not in IGNORED:
            raise SinkError(f"the sink has no option {name!r}; there are {', '.join(NAMES)}")
    broker = given.get("broker") or os.environ.get("PENSTOCK_URL", "")
    if not broker:
        raise SinkError(
            "say where to publish: .option('broker', 'amqp://user:password@host:port/vhost') or PENSTOCK_URL"
        )
    try:
        parse_address(broker)
    except ValueError as error:
        raise SinkError(f"option 'broker': {error}") from None
    declare_queue = _short(given, "declarequeue")
    routing_key = _short(given, "routingkey")
    exchange = _short(given, "exchange") or ""
    if routing_key is None and not exchange:
        routing_key = declare_queue
    header = _short(given, "dedupheader") or DEDUP_HEADER
    write_id = given.get("writeid") or uuid4().hex
    if len(write_id) > WRITE_ID_CHARACTERS_MAX:
        raise SinkError(f"option 'writeid' has at most {WRITE_ID_CHARACTERS_MAX} characters")
    return SinkOptions(
        broker=broker,
        exchange=exchange,
        routing_key=routing_key,
        dedup_header=header if _flag(given, "dedup", True) else None,
        write_id=write_id,
        declare_queue=declare_queue,
        cache_size=int(_number(given, "cachesize", CACHE_SIZE, 1, DEDUP_KEYS_MAX)),
        rate_limit=_number(given, "ratelimit", 0, 0.001, RATE_MAX) if "ratelimit" in given else None,
        reconnect_s=_number(given, "reconnectseconds", RECONNECT_S, 0, RECONNECT_S_MAX),
    )


def _short(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name)
    if text is not None and len(text.encode()) > SHORT_STRING_BYTES_MAX:
        raise SinkError(f"option {name!r} has at most {SHORT_STRING_BYTES_MAX} bytes")
    return text


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SinkError(f"option {name!r} is true or false, not {text!r}")
    return text == "true"


def _number(given: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = given.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise SinkError(f"option {name!r} is a number from {least:g} to {most:g}, not {text!r}")
    return value
