"""What only the volatile backing promises."""

from __future__ import annotations

import pytest

from penstock import limits
from penstock.backing.volatile import VolatileBackingQueue
from penstock.message import ConfirmToken, Envelope, Incoming, MessageProps, unlike
from tests.contract.backings import MANY, stored

PERSISTENT = Envelope("", "key", b"\x00\x00", persistent=True)


def test_even_a_persistent_run_is_confirmed_at_once() -> None:
    bq = VolatileBackingQueue()
    tokens = [ConfirmToken(1), ConfirmToken(1)]
    bq.publish(Incoming(PERSISTENT, stored([b"a"])), MessageProps(confirm=tokens[0]))
    bq.publish(Incoming(PERSISTENT, stored([b"b", b"c"])), MessageProps(confirm=tokens[1]))
    assert bq.drain_confirmed() == tokens


def test_a_stop_leaves_no_terms_and_no_messages() -> None:
    bq = VolatileBackingQueue()
    bq.publish(Incoming(PERSISTENT, stored([b"a", b"b"])), None)
    bq.fetch(1, MANY, True)
    bq.terminate()
    assert (bq.depth(), bq.ram_bytes()) == (0, 0)


@pytest.mark.parametrize("requeued", [False, True], ids=["fresh", "requeued"])
def test_a_fetch_takes_as_much_as_its_bounds_allow(requeued: bool) -> None:
    bq = VolatileBackingQueue()
    bq.publish(Incoming(PERSISTENT, stored([b"x" * 10] * 8)), None)
    bq.publish(Incoming(PERSISTENT, stored([b"x" * 10] * 4)), None)
    if requeued:
        bq.fetch(12, MANY, True)
        bq.requeue(range(12))
    counts = []
    for count_max, bytes_max in ((2, MANY), (MANY, 39), (MANY, 30), (MANY, 29), (MANY, 20)):
        browsed = bq.browse(0, count_max, bytes_max)
        run = bq.fetch(count_max, bytes_max, False)
        assert run is not None
        assert browsed is not None
        assert len(browsed.entries) == len(run.entries)
        counts.append(len(run.entries))
    assert counts == [2, 3, 3, 2, 2]


def test_all_that_is_held_counts_as_memory() -> None:
    bq = VolatileBackingQueue()
    assert bq.ram_bytes() == 0
    bq.publish(Incoming(PERSISTENT, stored([b"x" * 100] * 3)), None)
    bq.fetch(2, MANY, True)
    bq.requeue([0])
    # One has come back, which is counted.
    assert bq.ram_bytes() == 300 + 3 * limits.MESSAGE_OVERHEAD_BYTES + limits.NUMBER_OVERHEAD_BYTES
    bq.purge()
    assert bq.ram_bytes() == 100 + limits.MESSAGE_OVERHEAD_BYTES


LARGE = Envelope("", "key", b"p" * 10_000)


def test_large_properties_count_as_memory_until_their_messages_are_gone() -> None:
    bq = VolatileBackingQueue()
    bq.publish(Incoming(LARGE, stored([b"a", b"b"])), None)
    bq.publish(unlike([(LARGE, body, None) for body in stored([b"c", b"d"])]), None)
    bq.publish(Incoming(PERSISTENT, stored([b"e"])), None)
    expected = 5 + 5 * limits.MESSAGE_OVERHEAD_BYTES + 40_000
    assert bq.ram_bytes() == expected
    bq.fetch(1, MANY, False)
    bq.fetch(3, MANY, True)
    bq.ack([1])
    assert bq.ram_bytes() == expected - 2 - 2 * limits.MESSAGE_OVERHEAD_BYTES - 20_000
    bq.requeue([2])
    bq.check_invariants()
    bq.fetch(1, MANY, False)
    bq.check_invariants()
    bq.publish(Incoming(LARGE, stored([b"f"])), None)
    bq.purge()
    bq.check_invariants()
    bq.ack(range(10))
    bq.check_invariants()
    assert bq.ram_bytes() == 0
