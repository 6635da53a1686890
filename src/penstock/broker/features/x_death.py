"""x-death: what a message tells about the queues it died in, octet for octet as RabbitMQ 3.10 writes it.

When a message is published to a dead-letter exchange, its `expiration` goes, whatever the reason was, and is noted in
the entry; `CC` goes when the queue names a routing key; everything else stays. Headers of a dead letter are sorted by
name. An entry is made when a message first dies in a queue for a reason. The same death again raises its count and
brings it to the front; time, exchange and routing keys stay those of the first time.

Invariants
1. The first entry is the newest death. There is one entry for each queue and reason.
2. The other entries are turned round by each death, as soon as there are two. That is what RabbitMQ 3.10 does, so
   behind the first one the order tells nothing.
3. `x-first-death-*` are set when there is no `x-death` yet, and never afterwards.
4. Whatever a client put into these headers, a death can be noted: what is no array is replaced, as RabbitMQ does it.
   Where RabbitMQ's queue fails (members that are no tables, counts that are no numbers) they are forgotten.
5. The headers stay within TABLE_ITEMS_MAX fields, or they could not be read again: the entries at the end give way.

This differs from RabbitMQ: the keys of the BCC header are gone once a message was published, so dead letters do not go
to them.
"""

from __future__ import annotations

from typing import Final

from penstock.fields import Field, Frozen, Table, comparable
from penstock.limits import SHORT_STRING_BYTES_MAX, TABLE_ITEMS_MAX
from penstock.message import Envelope
from penstock.wire.properties import decode_properties
from penstock.wire.property_edits import headers_of, with_properties

X_DEATH: Final = "x-death"
FIRST_DEATH_EXCHANGE: Final = "x-first-death-exchange"
FIRST_DEATH_QUEUE: Final = "x-first-death-queue"
FIRST_DEATH_REASON: Final = "x-first-death-reason"
OUR_HEADERS: Final = (X_DEATH, FIRST_DEATH_EXCHANGE, FIRST_DEATH_QUEUE, FIRST_DEATH_REASON)
CC: Final = "CC"
# The one reason that a client gives; all others are automatic.
REJECTED: Final = b"rejected"
COUNT_MAX: Final = (1 << 63) - 1

# Queue and reason of an entry; a client may have put anything there.
Event = tuple[Frozen, Frozen]


def dead_letter_envelope(
    envelope: Envelope,
    queue_name: str,
    reason: str,
    now_s: int,
    dead_letter_exchange: str,
    dead_letter_routing_key: str | None,
) -> Envelope:
    """Return the message as it is published to the dead-letter exchange, with the queue's key or with its own."""
    properties = decode_properties(envelope.properties)
    headers = properties.headers or {}
    death = _new_entry(envelope, headers, queue_name, reason, now_s)
    if properties.expiration is not None:
        death["original-expiration"] = ("S", properties.expiration.encode("utf-8", "surrogateescape"))
        properties.expiration = None
    known = headers.get(X_DEATH)
    if known is None:
        headers[FIRST_DEATH_REASON] = death["reason"]
        headers[FIRST_DEATH_QUEUE] = death["queue"]
        headers[FIRST_DEATH_EXCHANGE] = death["exchange"]
    # RabbitMQ sorts an entry when it joins others, and leaves it as it was made when there are none.
    entries = [death] if known is None or not isinstance(known[1], list) else _joined(death, entries_of(headers))
    headers[X_DEATH] = _array(entries)
    if dead_letter_routing_key is not None:
        headers.pop(CC, None)
    headers = _sorted(headers)
    # An item has at least one octet, and at most the keys of CC are written twice.
    if 2 * len(envelope.properties) + 32 > TABLE_ITEMS_MAX:
        headers = _fitting(headers, entries, death)
    properties.headers = headers
    return with_properties(envelope, properties, dead_letter_exchange, _short(dead_letter_routing_key))


def _short(routing_key: str | None) -> str | None:
    """The key as it can be delivered. An argument of a queue may be longer; in RabbitMQ such a dead letter costs the
    consumer its connection."""
    if routing_key is None or len(routing_key) <= SHORT_STRING_BYTES_MAX // 4:
        return routing_key
    return routing_key.encode("utf-8", "surrogateescape")[:SHORT_STRING_BYTES_MAX].decode("utf-8", "surrogateescape")


def routing_keys_for(envelope: Envelope, dead_letter_routing_key: str | None) -> list[str]:
    """Return the keys by which a dead letter is routed: the queue's, or those that the message was published with."""
    if dead_letter_routing_key is not None:
        return [dead_letter_routing_key]
    keys = [key.decode("utf-8", "surrogateescape") for key in _carbon_copies(headers_of(envelope))]
    return [envelope.routing_key, *keys]


def is_cycle(headers: Table, target_queue_name: str) -> bool:
    """Return whether a dead letter with these headers has come round to this queue with nobody rejecting it on the way.

    RabbitMQ looks for a rejection between this death and the last one in the target. It relies on the order of the
    entries, which is wrong from the third on: a ring with a rejection in it may be cut, and one without may go on for
    ever. Up to two entries this function answers as RabbitMQ does. Beyond that it counts: each rejection allows for
    one more round. So what is rejected once per round is never lost, and every other ring comes to an end.
    """
    entries = entries_of(headers)
    target = target_queue_name.encode()
    if not entries or _is_rejected(entries[0]):
        return False
    if _value(entries[0], "queue") == target:
        return True
    rejections = sum([_count(entry) for entry in entries if _is_rejected(entry)])
    rounds = sum([_count(entry) for entry in entries if _value(entry, "queue") == target and not _is_rejected(entry)])
    return rounds > rejections


def entries_of(headers: Table) -> list[Table]:
    """Return the entries of x-death, the newest first; what a client put there besides tables is left out."""
    return [item for _, item in _array_value(headers.get(X_DEATH)) if isinstance(item, dict)]


def death_count(entry: Table) -> int | None:
    """Return how often the message died in that queue for that reason; None when the entry does not say it."""
    value = entry.get("count", ("V", None))[1]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _new_entry(envelope: Envelope, headers: Table, queue_name: str, reason: str, now_s: int) -> Table:
    own_key = envelope.routing_key.encode("utf-8", "surrogateescape")
    keys: list[Field] = [("S", key) for key in [own_key, *_carbon_copies(headers)]]
    return {
        "count": ("l", 1),
        "reason": ("S", reason.encode()),
        "queue": ("S", queue_name.encode()),
        "time": ("T", now_s),
        "exchange": ("S", envelope.exchange.encode()),
        "routing-keys": ("A", keys),
    }


def _joined(death: Table, entries: list[Table]) -> list[Table]:
    """Return the entries after one more death."""
    grouped = _grouped(entries)
    event = _event(death)
    others: list[Table] = []
    for entry in grouped:
        if _event(entry) == event:
            death = _counted(entry, min((death_count(entry) or 0) + 1, COUNT_MAX))
        else:
            others.append(entry)
    return [_sorted(death), *others]


def _grouped(entries: list[Table]) -> list[Table]:
    """One entry for each queue and reason, counted, in reverse order. A single entry is left alone.

    Old versions of RabbitMQ wrote an entry without a count for each death; such messages may still be around.
    """
    if len(entries) < 2:
        return entries
    first: dict[Event, Table] = {}
    times: dict[Event, int] = {}
    for entry in entries:
        event = _event(entry)
        first.setdefault(event, entry)
        times[event] = times.get(event, 0) + 1
    grouped: list[Table] = []
    for event, entry in first.items():
        has_count = entry.get("count", ("V", None))[1] is not None
        grouped.append(entry if has_count else _counted(entry, times[event]))
    grouped.reverse()
    return grouped


def _counted(entry: Table, count: int) -> Table:
    """Return the entry with another count, in its place; in front where there was none."""
    result: Table = {} if "count" in entry else {"count": ("l", count)}
    result.update(entry)
    result["count"] = ("l", count)
    return result


def _fitting(headers: Table, entries: list[Table], death: Table) -> Table:
    """Headers of at most TABLE_ITEMS_MAX fields.

    The entries at the end give way first, then what the newest one says beyond a plain `death`, then the message's own
    headers, from the end: one with thousands of them loses some, where otherwise it could not be read again.
    """
    items = items_in(("F", headers)) - 1
    while items > TABLE_ITEMS_MAX and len(entries) > 1:
        items -= items_in(("F", entries.pop()))
    if items > TABLE_ITEMS_MAX:
        items -= items_in(("F", entries[0]))
        own_key = _array_value(death["routing-keys"])[:1]
        entries[0] = {**death, "count": ("l", _count(entries[0])), "routing-keys": ("A", own_key)}
        items += items_in(("F", entries[0]))
    headers[X_DEATH] = _array(entries)
    own = [name for name in headers if name not in OUR_HEADERS]
    while items > TABLE_ITEMS_MAX:
        items -= items_in(headers.pop(own.pop()))
    return headers


def items_in(field: Field) -> int:
    """Return how many fields a field is, with all that are inside it. Nesting is bounded by TABLE_DEPTH_MAX."""
    value = field[1]
    if isinstance(value, list):
        return 1 + sum([items_in(item) for item in value])
    if isinstance(value, dict):
        return 1 + sum([items_in(item) for item in value.values()])
    return 1


def _carbon_copies(headers: Table) -> list[bytes]:
    """Return the keys in the CC header. One that is too long was written by an older version, and leads nowhere."""
    return [
        item
        for code, item in _array_value(headers.get(CC))
        if code == "S" and isinstance(item, bytes) and len(item) <= SHORT_STRING_BYTES_MAX
    ]


def _array_value(field: Field | None) -> list[Field]:
    """Return the members of an array; none of what is no array."""
    return field[1] if field is not None and isinstance(field[1], list) else []


def _array(entries: list[Table]) -> Field:
    return "A", [("F", entry) for entry in entries]


def _sorted(table: Table) -> Table:
    """By name, as RabbitMQ sorts: code points are in the order of their UTF-8 octets."""
    return {name: table[name] for name in sorted(table)}


def _event(entry: Table) -> Event:
    return _value(entry, "queue"), _value(entry, "reason")


def _value(entry: Table, name: str) -> Frozen:
    """A text is the same as `S` and as `x`, and an empty field the same as none."""
    field = entry.get(name)
    return None if field is None or field[1] is None else comparable(field)


def _is_rejected(entry: Table) -> bool:
    return _value(entry, "reason") == REJECTED


def _count(entry: Table) -> int:
    return max(death_count(entry) or 1, 1)
