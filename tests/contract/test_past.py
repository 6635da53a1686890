"""What a backing knows of the past of a message: how often it came back, and whether it may have been moved before."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import DOUBTFUL, NOT_DELIVERED, WAS_DELIVERED, BackingQueue
from penstock.message import MessageProps
from tests.contract.backings import OpenBacking
from tests.contract.noted_token import NotedToken


def publish_safely(backing: OpenBacking, *payloads: bytes, delivered: int = NOT_DELIVERED) -> None:
    """Publish, and return when the messages are as safe as they will be."""
    backing.publish(*payloads, props=MessageProps(-1, NotedToken()), delivered=delivered)
    assert backing.settle()


def come_back(backing: OpenBacking, times: int) -> int:
    """Have the first message fetched and requeued so often; its number."""
    seq_id = -1
    for _ in range(times):
        seq_id = backing.take(1)[0][0]
        assert backing.queue.requeue([seq_id]) == 1
    return seq_id


def survives(backing: OpenBacking) -> bool:
    return backing.spec.survives and (backing.persistent or backing.spec.keeps_transient)


def test_a_message_that_never_came_back_has_no_count_and_no_doubt(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b")
    taken = [seq_id for seq_id, _, _ in backing.take(2)]
    assert [bq.delivery_count(seq_id) for seq_id in taken] == [0, 0]
    assert bq.doubtful(taken) == []


def test_each_return_is_counted_and_what_is_settled_is_forgotten(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b")
    first = come_back(backing, 3)
    assert bq.delivery_count(first) == 3
    taken = [seq_id for seq_id, _, _ in backing.take(2)]
    assert [bq.delivery_count(seq_id) for seq_id in taken] == [3, 0]
    bq.ack(taken)
    assert bq.delivery_count(first) == 0


def test_what_the_queue_itself_had_taken_and_puts_back_is_not_counted(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a")
    taken = backing.take(1)[0][0]
    assert bq.requeue([taken], failed=False) == 1
    assert bq.delivery_count(taken) == 0


def test_what_came_back_and_stays_pending_is_counted(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a")
    taken = backing.take(1)[0][0]
    bq.note_returned([taken, 99])
    # No queue in PostgreSQL keeps what came back: it has no shelf.
    assert bq.delivery_count(taken) == (0 if bq.IS_REMOTE else 1)
    assert bq.delivery_count(99) == 0


def test_a_count_can_be_set_and_grows_from_there(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a")
    taken = backing.take(1)[0][0]
    bq.set_delivery_count(taken, 4)
    bq.requeue([taken])
    assert bq.delivery_count(taken) == 5
    bq.set_delivery_count(12_345, 4)
    assert bq.delivery_count(12_345) == 0


def test_a_clean_stop_keeps_the_counts(backing: OpenBacking) -> None:
    publish_safely(backing, b"a", b"b")
    come_back(backing, 3)
    backing.restart()
    if survives(backing):
        taken = [seq_id for seq_id, _, _ in backing.take(2)]
        counts = [backing.queue.delivery_count(seq_id) for seq_id in taken]
        # The database counts reservations, of which there was one.
        assert counts == ([1, 0] if backing.queue.IS_REMOTE else [3, 0])


def test_a_crash_keeps_the_counts_that_were_synced(backing: OpenBacking) -> None:
    publish_safely(backing, b"a")
    come_back(backing, 3)
    publish_safely(backing, b"b")
    backing.crash()
    if survives(backing):
        taken = backing.take(1)[0]
        assert taken[1:] == (b"a", True)
        assert backing.queue.delivery_count(taken[0]) == (1 if backing.queue.IS_REMOTE else 3)


def test_what_was_published_in_doubt_is_doubtful_and_marked(backing: OpenBacking, bq: BackingQueue) -> None:
    for delivered in (NOT_DELIVERED, WAS_DELIVERED, DOUBTFUL):
        backing.publish(b"%d" % delivered, delivered=delivered)
    taken = backing.take(3)
    assert [marked for _, _, marked in taken] == [False, True, True]
    doubtful = bq.doubtful([seq_id for seq_id, _, _ in taken])
    assert taken[2][0] in doubtful
    assert taken[0][0] not in doubtful
    # A row says only how often it was delivered.
    assert bq.IS_REMOTE or taken[1][0] not in doubtful


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "crash"])
def test_a_doubt_outlives_the_process(backing: OpenBacking, is_clean: bool) -> None:
    publish_safely(backing, b"a", b"b", delivered=NOT_DELIVERED)
    taken = backing.take(1)[0][0]
    assert backing.queue.doubtful([taken]) == []
    backing.queue.doubt([taken])
    assert backing.queue.doubtful([taken, taken + 1]) == [taken]
    if is_clean:
        backing.restart()
    else:
        backing.crash()
    if survives(backing):
        again = backing.take(1)[0]
        assert again[1:] == (b"a", True)
        assert backing.queue.doubtful([again[0]]) == [again[0]]


def test_after_a_crash_everything_that_was_there_is_doubtful_also_after_a_clean_stop(backing: OpenBacking) -> None:
    publish_safely(backing, b"a", b"b")
    if backing.queue.IS_REMOTE:
        # What no node had reserved is as it was: the database did not crash.
        backing.take(2)
    backing.crash()
    if not survives(backing):
        return
    if not backing.queue.IS_REMOTE:
        publish_safely(backing, b"c")
        backing.restart()
    taken = [seq_id for seq_id, _, _ in backing.take(len(backing.queue))]
    assert backing.queue.doubtful(taken) == taken[:2]
