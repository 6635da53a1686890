"""Lives as a plain fold over events, one after the other: what Spark's aggregations must agree with.

Also makes logs at random, as a broker could have written them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.pipeline.columns import EVENTS, GONE, KINDS

NUMBERS = {kind: number for number, kind in reversed(KINDS.items())}
BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)

Row = dict[str, Any]


@dataclass
class Life:
    """What is known of a message that is, or was, in a queue."""

    key: tuple[int, int]
    row: Row = field(default_factory=dict)
    deliveries: int = 0
    requeues: int = 0
    is_in_hand: bool = False


def fold_plain(events: Iterable[Row]) -> tuple[list[Row], list[tuple[int, int]]]:
    """Ended lives in the order of their endings, and the keys of those that are open."""
    lives: dict[tuple[int, int], Life] = {}
    ended: list[Row] = []
    for event in events:
        key, kind = (event["queue_no"], event["seq"]), event["kind"]
        if kind in ("unreadable", "unknown"):
            continue
        if kind == "deleted":
            for other in [known for known in lives if known[0] == key[0]]:
                ended.append(end(lives.pop(other), event))
            continue
        if kind == "purged" and key not in lives:
            continue
        life = lives.setdefault(key, Life(key))
        if kind == "published":
            life.row.update({name: event[name] for name in ("exchange", "routing_key", "message_id", "size")})
            life.row.update(published=event["time"], published_lsn=event["lsn"])
        if kind in ("delivered", "fetched"):
            life.row.setdefault("first_delivered", event["time"])
            life.row.update(last_delivered=event["time"], consumer=event["consumer"], connection=event["connection"])
            life.deliveries += 1
            life.is_in_hand = True
        if kind == "requeued":
            life.requeues += 1
            life.is_in_hand = False
        if kind in GONE:
            ended.append(end(lives.pop(key), event))
    return ended, sorted(lives)


def end(life: Life, event: Row) -> Row:
    row = life.row
    published, first, last = row.get("published"), row.get("first_delivered"), row.get("last_delivered")
    has_service = life.is_in_hand and event["kind"] != "fetched"
    return {
        **dict.fromkeys(("exchange", "routing_key", "message_id", "size", "published", "published_lsn")),
        **dict.fromkeys(("first_delivered", "last_delivered", "consumer", "connection")),
        **row,
        "queue_no": life.key[0],
        "seq": life.key[1],
        "deliveries": life.deliveries,
        "requeues": life.requeues,
        "settled": event["time"],
        "settled_lsn": event["lsn"],
        "outcome": event["kind"],
        "reason": event["reason"],
        "wait_us": microseconds(first, published),
        "service_us": microseconds(event["time"], last) if has_service else None,
        "life_us": microseconds(event["time"], published),
        "partial": published is None,
    }


def microseconds(later: datetime | None, earlier: datetime | None) -> int | None:
    return None if later is None or earlier is None else (later - earlier) // timedelta(microseconds=1)


def event(lsn: int, kind: str, queue_no: int = 1, seq: int = 0, at: float | None = None, **values: Any) -> Row:
    """A row of bronze. `at` is in seconds after BEGIN; by default each event is a second after the one before."""
    row: Row = dict.fromkeys(EVENTS.names)
    row.update(lsn=lsn, time=BEGIN + SECOND * (lsn if at is None else at), queue_no=queue_no, seq=seq, kind=kind)
    row.update(kind_no=NUMBERS.get(kind, 99), vhost="/", queue=f"q{queue_no}")
    if kind == "published":
        row.update(exchange="", routing_key=row["queue"], persistent=True, size=10, headers=[])
    if kind in ("delivered", "fetched"):
        row.update(consumer="tag", connection="127.0.0.1:1 -> 127.0.0.1:2")
    if "x_death" in values:
        row["headers"] = [("x-death", json.dumps(values.pop("x_death")))]
    row.update(values)
    return row


def table_of(events: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(events), schema=EVENTS)


@st.composite
def queue_histories(draw: st.DrawFn, steps_max: int = 30) -> list[Row]:
    """What happened to one queue: some messages were there before history began, and purges cover what is gone."""
    old = draw(st.integers(0, 3))
    next_seq = old
    # seq -> whether somebody has it.
    alive = dict.fromkeys(range(old), False)
    steps: list[Row] = []

    def step(kind: str, seq: int, **values: Any) -> None:
        steps.append({"kind": kind, "seq": seq, "back": draw(st.integers(0, 9)) == 0, **values})

    for _ in range(draw(st.integers(1, steps_max))):
        what = draw(st.sampled_from(("publish", "publish", "act", "act", "act", "act", "purge", "delete")))
        if what == "publish":
            step("published", next_seq, size=draw(st.integers(0, 5000)), message_id=draw(st.sampled_from((None, "m"))))
            alive[next_seq] = False
            next_seq += 1
        elif what == "purge" and not any(alive.values()):
            for seq in range(draw(st.integers(0, next_seq)), next_seq):
                step("purged", seq)
                alive.pop(seq, None)
        elif what == "act" and alive:
            act(draw, alive, step)
        elif what == "delete" and draw(st.integers(0, 5)) == 0:
            step("deleted", -1)
            break
    return steps


def act(draw: st.DrawFn, alive: dict[int, bool], step: Any) -> None:
    seq = draw(st.sampled_from(sorted(alive)))
    if alive[seq]:
        kind = draw(st.sampled_from(("requeued", "acked", "rejected", "dead-lettered", "dropped", "delivered")))
    else:
        kind = draw(
            st.sampled_from(("delivered", "delivered", "taken", "fetched", "expired", "dead-lettered", "moved"))
        )
    values: Row = {}
    if kind == "dead-lettered":
        values["reason"] = draw(st.sampled_from(("rejected", "expired", "maxlen", "delivery_limit")))
    if kind == "delivered":
        values["consumer"] = draw(st.sampled_from((None, "a", "b")))
    step(kind, seq, **values)
    if kind in GONE:
        del alive[seq]
    else:
        alive[seq] = kind == "delivered" or (kind == "taken" and alive[seq])


class RandomLog(list[Row]):
    """Events of many queues. Its text is short: hypothesis shows it when a test fails."""

    def __repr__(self) -> str:
        return f"<a log of {len(self)} events>"


@st.composite
def logs(draw: st.DrawFn, queues: int) -> RandomLog:
    """Logs of this many queues and some more: one example is many histories, because a run of Spark takes long."""
    return RandomLog(interleaved(draw(st.lists(queue_histories(), min_size=queues, max_size=queues * 3 // 2))))


def interleaved(histories: Sequence[Sequence[Row]]) -> list[Row]:
    """One log of all queues, turn by turn. The clock goes back now and then."""
    log: list[Row] = []
    at = 0.0
    for turn in range(max(map(len, histories), default=0)):
        for queue_no, history in enumerate(histories):
            if turn < len(history):
                step = dict(history[turn])
                at += -100.0 if step.pop("back") else 7.5
                log.append(event(len(log), queue_no=queue_no, at=at, **step))
    return log
