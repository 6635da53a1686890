"""publish, discard."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, Envelope, Incoming, MessageProps, unlike
from tests.contract.backings import MANY, OpenBacking, stored
from tests.contract.model import content
from tests.contract.noted_token import NotedToken


def test_messages_are_fetched_in_the_order_in_which_they_were_published(backing: OpenBacking) -> None:
    backing.publish(b"a")
    backing.publish(b"b", b"c", b"d")
    backing.publish(b"e")
    assert [payload for _, payload, _ in backing.take(5)] == [b"a", b"b", b"c", b"d", b"e"]


def test_seq_ids_start_a_run_and_grow_by_one(backing: OpenBacking) -> None:
    first = backing.publish(b"a")
    assert backing.publish(b"b", b"c", b"d") == first + 1
    assert backing.publish(b"e") == first + 4
    assert [seq_id for seq_id, _, _ in backing.take(5)] == [first + offset for offset in range(5)]


def test_seq_ids_are_not_reused_after_ack_purge_and_drop(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d")
    bq.ack([seq_id for seq_id, _, _ in backing.take(1)])
    bq.drop(False)
    bq.purge()
    assert bq.depth() == 0
    assert backing.publish(b"e") == first + 4
    assert backing.take(1) == [(first + 4, b"e", False)]


def test_a_message_comes_back_as_it_was_published(backing: OpenBacking, bq: BackingQueue) -> None:
    envelope = Envelope(
        "exchange ü", "key.ö", b"\x90\x00\x01a\x02", persistent=backing.persistent, expiration_ms=60_000
    )
    bq.publish(Incoming(envelope, [b"payload \x00\xce\xff\xce"]), MessageProps(1_700_000_000_000))
    run = bq.fetch(1, MANY, True)
    assert run is not None
    assert content(run.entries[0]) == content((envelope, b"payload \x00\xce\xff\xce", MessageProps(1_700_000_000_000)))
    assert run.entries[0][0].address == envelope.address


def test_messages_of_one_run_share_one_envelope_and_runs_keep_their_own(backing: OpenBacking, bq: BackingQueue) -> None:
    for key in ("one", "two"):
        bq.publish(Incoming(Envelope("", key, b"\x00\x00", persistent=backing.persistent), stored([b"a", b"b"])), None)
    assert [entry[0].routing_key for _, entry, _ in backing.folded()] == ["one", "one", "two", "two"]


def test_the_list_of_bodies_stays_the_publishers(backing: OpenBacking, bq: BackingQueue) -> None:
    bodies = stored([b"a", b"b"])
    bq.publish(Incoming(backing.envelope(), bodies), None)
    bodies[0] = b"changed\xce"
    bodies.clear()
    assert [payload for _, payload, _ in backing.take(2)] == [b"a", b"b"]


@pytest.mark.parametrize("bodies", [stored([b"a", b"b"]), tuple(stored([b"a", b"b"]))], ids=["list", "tuple"])
def test_bodies_may_be_any_sequence(backing: OpenBacking, bq: BackingQueue, bodies: list[bytes]) -> None:
    bq.publish(Incoming(backing.envelope(), bodies), None)
    assert [payload for _, payload in backing.ready()] == [b"a", b"b"]


def test_a_run_that_was_seen_before_is_redelivered_at_its_first_fetch(backing: OpenBacking) -> None:
    backing.publish(b"seen", b"seen too", delivered=True)
    assert [redelivered for _, _, redelivered in backing.take(2)] == [True, True]


def test_a_fetch_never_mixes_messages_that_were_seen_with_others(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b")
    backing.publish(b"c", delivered=True)
    backing.publish(b"d", b"e")
    backing.publish(b"f", b"g", delivered=True)
    flags = [(payload, redelivered) for _, payload, redelivered in backing.take(7)]
    assert flags == [(b"%c" % letter, letter in b"cfg") for letter in b"abcdefg"]


def test_the_mark_of_a_seen_message_lasts_for_its_position_only(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"seen", b"seen", b"seen", delivered=True)
    bq.drop(False)
    bq.dropwhile(lambda props: len(bq) > 1)
    bq.purge()
    backing.publish(b"a", b"b", b"c")
    assert [redelivered for _, _, redelivered in backing.take(3)] == [False, False, False]


def test_discard_holds_nothing_and_leaves_the_token_to_the_caller(backing: OpenBacking, bq: BackingQueue) -> None:
    token = NotedToken()
    first = backing.publish(b"a")
    bq.discard(Incoming(backing.envelope(), stored([b"b", b"c"])))
    assert (bq.depth(), bq.ready_bytes()) == (1, 1)
    assert backing.settle() == []
    assert token.waiting == 1
    assert backing.publish(b"d") == first + 1


@pytest.mark.parametrize("ack_required", [False, True], ids=["no ack", "ack"])
def test_an_empty_body_is_a_message(backing: OpenBacking, bq: BackingQueue, ack_required: bool) -> None:
    first = backing.publish(b"", b"x", b"")
    assert (len(bq), bq.ready_bytes()) == (3, 1)
    assert backing.take(3, ack_required) == [(first, b"", False), (first + 1, b"x", False), (first + 2, b"", False)]
    assert bq.pending_bytes() == (1 if ack_required else 0)
    bq.requeue([first])
    assert len(bq) == (1 if ack_required else 0)
    assert bq.ready_bytes() == 0


@pytest.mark.parametrize("size", [1, 4_095, 4_096, 4_097, 200_000])
def test_bodies_of_any_size_come_back_whole(backing: OpenBacking, bq: BackingQueue, size: int) -> None:
    """Sizes around the one below which a body is embedded in an index."""
    payload = bytes(index % 251 for index in range(size))
    first = backing.publish(payload, payload[:-1])
    assert bq.ready_bytes() == 2 * size - 1
    assert backing.take(2) == [(first, payload, False), (first + 1, payload[:-1], False)]


def test_messages_with_envelopes_of_their_own_are_published_together(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"before")
    entries: list[Entry] = [
        (Envelope("", key, b"\x00\x00", persistent=backing.persistent), body, None)
        for key, body in zip(("one", "two", "three"), stored([b"a", b"", b"ccc"]), strict=True)
    ]
    assert bq.publish(unlike(entries), None) == first + 1
    assert backing.publish(b"after") == first + 4
    assert [entry[0].routing_key for _, entry, _ in backing.folded()] == ["key", "one", "two", "three", "key"]
    assert backing.ready() == [
        (first + offset, payload) for offset, payload in enumerate([b"before", b"a", b"", b"ccc", b"after"])
    ]
    assert bq.ready_bytes() == len(b"beforeacccafter")
    bq.check_invariants()


def test_one_token_stands_for_all_messages_that_were_published_together(backing: OpenBacking, bq: BackingQueue) -> None:
    token = NotedToken()
    bq.publish(unlike([(backing.envelope(), body, None) for body in stored([b"a", b"b"])]), MessageProps(confirm=token))
    assert backing.settle() == [token]
    assert backing.settle() == []
    assert [payload for _, payload, _ in backing.take(2)] == [b"a", b"b"]
