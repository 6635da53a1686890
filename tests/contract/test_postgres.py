"""What only a queue in PostgreSQL promises: any envelope as a row, a window that goes back, and rows of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import limits
from penstock.backing import outcomes
from penstock.backing.backing_queue import Answered, Purged
from penstock.backing.postgres.envelopes import WHOLE, PgEnvelopes
from penstock.backing.postgres.link import Looked, PgQueueLink, PgUnavailable, PutDone, PutRow, TakenRow
from penstock.backing.postgres.reserved import IDLE_S, LAST_S, PgReserved
from penstock.broker.features.postgres_facts import WirePropertyFacts
from penstock.clock import ManualClock
from penstock.message import Envelope, Incoming, body_bytes
from tests.contract.backings import BACKINGS, MANY, OpenBacking
from tests.contract.model import content
from tests.contract.postgres_backings import server_url

pytestmark = pytest.mark.slow


@pytest.fixture
def backing(tmp_path: Path) -> Iterator[OpenBacking]:
    spec = next(spec for spec in BACKINGS if spec.name == "postgres")
    opened = OpenBacking(spec, tmp_path, persistent=True)
    yield opened
    opened.queue.check_invariants()
    opened.queue.delete_and_terminate()
    opened.open_queues.stop()


@pytest.fixture
def sql() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server_url(), autocommit=True) as connection:
        yield connection


# --- history --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "reason", "note"),
    [
        (outcomes.ACKED, outcomes.REASON_NONE, None),
        (outcomes.FETCHED, outcomes.REASON_NONE, None),
        (outcomes.REJECTED, outcomes.REASON_REJECTED, "rejected"),
        (outcomes.EXPIRED, outcomes.REASON_EXPIRED, "expired"),
        (outcomes.DEAD_LETTERED, outcomes.REASON_EXPIRED, "dead-lettered: expired"),
        (outcomes.DROPPED, outcomes.REASON_DELIVERY_LIMIT, "dropped: delivery_limit"),
        (outcomes.DROPPED, outcomes.REASON_NONE, "dropped"),
        (outcomes.MOVED, outcomes.REASON_NONE, "moved"),
        (outcomes.PURGED, outcomes.REASON_NONE, "purged"),
        (outcomes.LOST, outcomes.REASON_NONE, "lost"),
    ],
)
def test_the_note_in_the_history_says_how_a_message_left(
    backing: OpenBacking, sql: psycopg.Connection[Any], outcome: int, reason: int, note: str | None
) -> None:
    [(seq_id, _, _)] = _published_and_taken(backing)
    backing.queue.ack([seq_id], outcome, reason)
    assert _note_of(sql, seq_id) == note


def test_what_left_the_head_unread_is_noted_in_the_history(backing: OpenBacking, sql: psycopg.Connection[Any]) -> None:
    backing.publish_expiring(-1, -1, 5)
    dropped = backing.queue.drop(False, outcomes.PURGED)
    fetched = backing.take(1, ack_required=False)
    assert backing.queue.dropwhile(lambda props: True) == 1
    assert dropped is not None
    seq_ids = [dropped, fetched[0][0], dropped + 2]
    assert [_note_of(sql, seq_id) for seq_id in seq_ids] == ["purged", None, "expired"]


def _published_and_taken(backing: OpenBacking) -> list[tuple[int, bytes, bool]]:
    backing.publish(b"a")
    return backing.take(1)


def _note_of(sql: psycopg.Connection[Any], seq_id: int) -> str | None:
    found = sql.execute("SELECT finalized_note FROM penstock.messages_history WHERE id = %s", (seq_id,)).fetchone()
    assert found is not None
    note = found[0]
    return None if note is None else str(note)


# --- rows -----------------------------------------------------------------------------------------------

PERSISTENT = b"\x10\x00\x02"


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("x", "key", PERSISTENT, persistent=True),
        Envelope("", "\udcff\udcfe is no UTF-8", PERSISTENT, persistent=True),
        Envelope("", "with \x00 in it", b"\x00\x00"),
        Envelope("ü", "ö" * 127, b"\x00\x00", persistent=True, priority=200, expiration_ms=7),
        Envelope("", "", b"\x01\x00\x0213", expiration_ms=13),
    ],
    ids=["plain", "not UTF-8", "NUL", "other facts", "expiration"],
)
def test_any_envelope_comes_back_as_it_was(backing: OpenBacking, envelope: Envelope) -> None:
    backing.queue.publish(Incoming(envelope, [b"body\xce"]), None)
    run = backing.queue.fetch(1, MANY, True)
    assert run is not None
    assert content(run.entries[0]) == content((envelope, b"body\xce", None))
    assert run.entries[0][0].address == envelope.address


def test_what_needs_no_other_form_has_its_properties_as_on_the_wire(
    backing: OpenBacking, sql: psycopg.Connection[Any]
) -> None:
    first = backing.queue.publish(Incoming(Envelope("x", "key", PERSISTENT, persistent=True), [b"body\xce"]), None)
    row = sql.execute(
        "SELECT exchange, routing_key, properties, payload FROM penstock.messages WHERE id = %s", (first,)
    ).fetchone()
    assert row == ("x", "key", PERSISTENT, b"body")


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x00",
        b"\xff\xff",
        WHOLE,
        WHOLE + b"\x01",
        WHOLE + b"\x01" * 9 + b"\x00\x05ab",
        WHOLE + b"\x00" * 12 + b"x",
    ],
    ids=["empty", "one octet", "flags", "whole, cut", "whole, cut later", "whole, short key", "whole, bad properties"],
)
def test_properties_that_are_damaged_are_replaced(properties: bytes) -> None:
    envelopes = PgEnvelopes("q", WirePropertyFacts())
    envelope, body, _ = envelopes.entry((7, 1, -1, None, None, properties, b"x", 1_700_000_000_000))
    plain, _, _ = envelopes.entry((7, 1, -1, None, None, None, b"x", 1_700_000_000_000))
    assert (envelope, body) == (plain, b"x\xce")
    assert (envelope.exchange, envelope.routing_key, envelope.persistent) == ("", "q", True)


def test_rows_of_others_are_messages_like_ours(backing: OpenBacking, sql: psycopg.Connection[Any]) -> None:
    backing.publish(b"ours")
    sql.execute("SELECT penstock.put(name, 'theirs') FROM penstock.queues WHERE name LIKE %s", (f"{backing.folder}%",))
    assert [payload for _, payload, _ in backing.take(2)] == [b"ours", b"theirs"]


# --- the window -----------------------------------------------------------------------------------------


class NotedQueueLink(PgQueueLink):
    """Notes what it is asked for, and does nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.back: list[tuple[list[int], bool]] = []
        self.finalized: list[int] = []
        self.wanted: list[int] = []
        self.looks: list[tuple[int, Looked]] = []
        self.is_down = False

    def put(self, rows: Sequence[PutRow], done: PutDone) -> None:
        raise AssertionError

    def ask(self) -> None:
        self.asked += 1

    def ask_once(self, done: Answered) -> None:
        raise AssertionError

    def make(self, done: Answered) -> None:
        raise AssertionError

    def count(self, done: Answered) -> None:
        raise AssertionError

    def finalize(self, seq_ids: Sequence[int], note: str | None) -> None:
        self.finalized.extend(seq_ids)

    def give_back(self, seq_ids: Sequence[int], seen: bool) -> None:
        if seq_ids:
            self.back.append((list(seq_ids), seen))

    def ready_count(self) -> int:
        return 0

    def ready_bytes(self) -> int:
        return 0

    def unsent_bytes(self) -> int:
        return 0

    def is_congested(self) -> bool:
        return False

    def take(self, seq_ids: Sequence[int]) -> None:
        self.wanted.extend(seq_ids)

    def look(self, from_seq_id: int, count_max: int, bytes_max: int, done: Looked) -> None:
        self.looks.append((from_seq_id, done))
        if self.is_down:
            done([])

    def purge(self, done: Purged) -> None:
        done(0, PgUnavailable("down"))

    def drop(self, done: Answered) -> None:
        done(PgUnavailable("down"))

    def close(self) -> None:
        return None

    def leave(self) -> None:
        return None


class HeldHouse:
    """A `PgReserved` with a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue_link = NotedQueueLink()
        self.reserved = PgReserved(PgEnvelopes("q", WirePropertyFacts()), self.clock)
        self.reserved.queue_link = self.queue_link

    def come(self, *ids: int, deliveries: int = 1, asked: int = 10, size: int = 1) -> None:
        rows: list[TakenRow] = [(each, deliveries, -1, "", "q", b"\x00\x00", b"x" * size, 0) for each in ids]
        self.reserved.rows_came(rows, asked)

    def take(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count:
            run = self.reserved.fetch(count - len(taken), MANY, True)
            assert run is not None
            taken += range(run.first_seq_id, run.first_seq_id + len(run.entries))
        self.reserved.check_invariants()
        return taken


def test_a_window_that_nobody_takes_from_goes_back_unseen() -> None:
    house = HeldHouse()
    house.come(1, 2, 3)
    house.clock.advance(IDLE_S)
    house.reserved.tick()
    assert house.queue_link.back == []
    house.clock.advance(0.01)
    house.reserved.tick()
    assert house.queue_link.back == [([1, 2, 3], False)]
    assert len(house.reserved.window) == 0


def test_a_window_that_lasts_too_long_goes_back_in_part() -> None:
    house = HeldHouse()
    house.come(*range(1, 11))
    for _ in range(4):
        house.take(1)
        house.clock.advance(LAST_S / 4 + 0.01)
        house.reserved.tick()
    assert house.queue_link.back == [([5, 6, 7, 8, 9, 10], False)]
    assert house.reserved.refill_count() == 4


def test_what_a_consumer_gave_back_is_marked_as_seen() -> None:
    house = HeldHouse()
    house.come(1, 2, 3, 4)
    house.take(2)
    house.reserved.requeue([2])
    house.clock.advance(IDLE_S + 0.01)
    house.reserved.tick()
    assert house.queue_link.back == [([3, 4], False), ([2], True)]


def test_what_comes_back_behind_the_window_goes_to_the_database() -> None:
    house = HeldHouse()
    house.come(1, 2, 3)
    house.take(3)
    house.reserved.give_window_back()
    house.reserved.requeue([1, 3])
    assert house.queue_link.back == [([1, 3], True)]


def test_a_lost_link_takes_the_window_and_leaves_what_consumers_have() -> None:
    house = HeldHouse()
    house.come(1, 2, 3)
    house.take(1)
    house.reserved.link_lost()
    assert house.queue_link.back == [([2, 3], False)]
    assert house.reserved.reserved_ids() == [1]


def test_a_row_that_is_here_already_is_not_taken_twice() -> None:
    house = HeldHouse()
    house.come(1, 2)
    house.take(1)
    house.come(1, 2, 3)
    assert house.take(2) == [2, 3]
    assert sorted(house.reserved.pending) == [1, 2, 3]


def test_windows_grow_while_they_are_emptied_fast_and_not_beyond_the_bounds() -> None:
    house = HeldHouse()
    first = 1
    for _ in range(12):
        count = house.reserved.refill_count()
        house.come(*range(first, first + count), asked=count)
        first += count
        house.take(count)
        house.reserved.release(list(house.reserved.pending))
        house.clock.advance(0.05)
    assert house.reserved.refill_count() == limits.PG_REFILL_MESSAGES_MAX
    house.come(first, size=limits.PG_REFILL_BYTES_MAX, asked=1)
    assert house.reserved.refill_count() == 1


def test_a_slow_consumer_does_not_make_the_window_grow() -> None:
    house = HeldHouse()
    for first in range(1, 100, 10):
        house.come(*range(first, first + 10))
        house.take(10)
        house.clock.advance(0.5)
    assert house.reserved.refill_count() == limits.PG_REFILL_FIRST


def test_the_floor_is_used_while_more_stands_behind_and_not_for_long() -> None:
    house = HeldHouse()
    for first in (1, 4):
        house.come(first, first + 1, first + 2, asked=3)
        assert house.reserved.refill_floor() == 0
        house.clock.advance(1.0)
    assert house.reserved.refill_floor() == 0
    house.come(7, 8, 9, asked=3)
    # As it was a second ago: what others have put since then may still be committed.
    assert house.reserved.refill_floor() == 7
    house.come(10, 11, asked=3)
    assert house.reserved.refill_floor() == 0
    house.come(12, 13, 14, asked=3)
    assert house.reserved.refill_floor() == 7
    house.clock.advance(1.0)
    assert house.reserved.refill_floor() == 0


def test_what_is_given_back_is_above_no_floor() -> None:
    house = HeldHouse()
    for first in (1, 4, 7):
        house.come(first, first + 1, first + 2, asked=3)
        assert house.reserved.refill_floor() == 0
        house.clock.advance(1.0)
    house.reserved.give_window_back()
    house.come(1, 2, 3, asked=3)
    assert house.reserved.refill_floor() == 0


def test_with_too_much_at_consumers_nothing_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_PENDING_BYTES_MAX", 10)
    house = HeldHouse()
    house.come(1, 2, 3, size=6)
    house.take(2)
    assert (house.reserved.fill(), house.reserved.is_wanted()) == (False, False)
    assert house.reserved.fetch(1, MANY, True) is None
    house.reserved.arrived_count = 0
    house.reserved.release([1])
    assert house.reserved.arrived_count == 1
    assert house.take(1) == [3]


def test_nothing_is_wanted_when_nobody_would_take_it() -> None:
    house = HeldHouse()
    house.reserved.takers = lambda: False
    assert not house.reserved.is_wanted()
    house.reserved.takers = lambda: True
    assert house.reserved.is_wanted()
    house.come(*range(1, 9))
    assert not house.reserved.is_wanted()
    house.take(6)
    assert house.reserved.is_wanted()


def taken(*ids: int) -> list[TakenRow]:
    return [(each, 1, -1, "", "q", b"\x00\x00", b"x", 0) for each in ids]


def test_what_a_browser_asks_for_comes_later_and_is_told() -> None:
    house = HeldHouse()
    looks = house.reserved.looks
    assert looks.at(house.queue_link, 5) is None
    assert looks.at(house.queue_link, 5) is None
    assert looks.is_late()
    [(place, came)] = house.queue_link.looks
    assert place == 5
    came(taken(7, 9))
    assert house.reserved.arrived_count == 1
    assert not looks.is_late()
    assert [item[0] for item in looks.at(house.queue_link, 8) or []] == [9]
    assert looks.at(house.queue_link, 10) is None
    house.clock.advance(2.0)
    assert looks.at(house.queue_link, 5) is None, "a page is not shown for ever"


def test_a_browser_at_the_end_is_told_when_something_may_be_ready() -> None:
    house = HeldHouse()
    house.reserved.looks.at(house.queue_link, 0)
    house.queue_link.looks[0][1]([])
    assert house.reserved.is_looked_for()
    assert house.reserved.arrived_count == 0
    house.reserved.may_be_ready()
    assert house.reserved.arrived_count == 1
    assert not house.reserved.is_looked_for()
    assert house.reserved.looks.at(house.queue_link, 0) is None, "what was empty is looked at again"


def test_messages_by_number_come_later_and_go_back_when_nobody_asks_again() -> None:
    house = HeldHouse()
    assert house.reserved.fetch_at([4, 6]) == []
    assert house.queue_link.wanted == [4, 6]
    house.reserved.numbers_came(taken(4, 6))
    assert [seq_id for seq_id, _ in house.reserved.fetch_at([4])] == [4]
    assert house.reserved.reserved_ids() == [4, 6]
    house.reserved.check_invariants()
    house.clock.advance(2.0)
    house.reserved.tick()
    assert house.queue_link.back == [([6], False)]
    assert house.reserved.reserved_ids() == [4]


def test_while_the_database_is_down_a_browser_sees_what_is_here(backing: OpenBacking) -> None:
    backing.publish(b"a", b"b")
    run = backing.queue.fetch(1, MANY, True)
    assert run is not None
    down = NotedQueueLink()
    down.is_down = True
    backing.queue._queue_link = down  # type: ignore[attr-defined]
    seen = backing.queue.browse(0, 10, MANY)
    assert seen is not None
    assert [body_bytes(entry[1]) for entry in seen.entries] == [b"b"]
    assert backing.queue.purge() == 0
    backing.queue._queue_link = backing.queue._reserved.queue_link  # type: ignore[attr-defined]
    assert backing.take(1) == [(run.first_seq_id + 1, b"b", False)]
