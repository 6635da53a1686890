"""Coming back: after a clean stop, after a crash, and after damage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import EIO
from random import Random
from struct import pack

import pytest
from node_house import (
    SLOTS,
    VHOST,
    LateSyncer,
    PlainQueue,
    new_disk,
    new_node,
    open_node,
    power_cut,
    reopen,
)
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival

from penstock.disk.checksum import crc32
from penstock.errors import StartupError
from penstock.journal.format import rows
from penstock.journal.format.layout import FIRST_BATCH_AT, HEAD_BYTES, HEAD_COPY_AT
from penstock.store.node.checkpoint import checkpoint_numbers, checkpoint_path
from penstock.store.node.node_store import NodeStore, Recovered

SEGMENT = "journal/00000001.pnj"


def published(files: SimFiles, *bodies: bytes) -> NodeStore:
    """A node with one message per batch."""
    node = open_node(files)
    queue = PlainQueue(node)
    for body in bodies:
        queue.publish(body)
        node.journal.commit(urgent=True)
    return node


def contents(files: SimFiles, queue_id: str = "q1") -> list[bytes]:
    node, _ = reopen(files)
    return list(PlainQueue(node, queue_id).contents().values())


# --- the folder ---------------------------------------------------------------------------------------


def test_a_new_folder_is_made_and_starts_clean() -> None:
    files = new_disk()
    _, recovered = reopen(files)
    assert recovered.clean
    assert (recovered.definitions, recovered.changes, recovered.report) == (b"", [], [])
    assert files.contents()["format"] == b"penstock 2\n"


def test_an_unknown_format_is_refused_with_what_to_do() -> None:
    files = new_disk()
    published(files, b"one")
    files = power_cut(files)
    file = files.open("format")
    file.pwrite([b"penstock 3\n"], 0)
    file.close()
    with pytest.raises(StartupError, match="use the version of penstock that made the folder"):
        new_node(files).open()


def test_a_folder_of_an_older_version_is_upgraded_and_says_so() -> None:
    files = new_disk()
    published(files, b"one")
    files = power_cut(files)
    file = files.open("format")
    file.pwrite([b"penstock 1\n"], 0)
    file.fdatasync()
    file.close()
    _, recovered = reopen(files)
    assert any("was upgraded from format 1 to 2 (users" in line for line in recovered.report)
    assert files.contents()["format"] == b"penstock 2\n"
    _, recovered = reopen(power_cut(files))
    assert not [line for line in recovered.report if "upgraded" in line]


def test_a_journal_of_a_later_version_is_refused_and_is_not_damage() -> None:
    files = new_disk()
    published(files, b"one")
    files = power_cut(files)
    (path,) = [path for path in files.contents() if path.startswith("journal/")]
    head = bytearray(files.contents()[path][:HEAD_BYTES])
    head[4] = 2
    file = files.open(path)
    for at in (0, HEAD_COPY_AT):
        file.pwrite([bytes(head[:-4]), pack("<I", crc32(bytes(head[:-4])))], at)
    file.fdatasync()
    file.close()
    before = files.contents()
    with pytest.raises(StartupError, match=r"journal/0+1\.pnj has format version 2, and this penstock reads version 1"):
        new_node(files).open()
    assert {name: data for name, data in files.contents().items() if name in before and name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def test_a_journal_without_a_format_is_refused() -> None:
    files = new_disk()
    published(files, b"one")
    files.delete("format")
    with pytest.raises(StartupError, match="no file 'format'"):
        new_node(power_cut(files)).open()


def test_a_folder_that_is_in_use_is_refused() -> None:
    files = new_disk()
    open_node(files)
    with pytest.raises(StartupError, match="in use by another process"):
        new_node(files).open()


def test_a_folder_is_free_again_after_a_start_that_failed() -> None:
    files = new_disk()
    published(files, b"one").stop()
    files.rename("format", "format.away")
    for _ in range(2):
        with pytest.raises(StartupError, match="no file 'format'"):
            new_node(files).open()
    files.rename("format.away", "format")
    assert contents(files) == [b"one"]


def test_a_segment_that_the_checkpoint_begins_with_must_be_there() -> None:
    files = new_disk()
    node = published(files, b"one")
    node.checkpoint_now()
    files.delete(SEGMENT)
    with pytest.raises(StartupError, match=r"journal/00000001.pnj is missing"):
        new_node(power_cut(files)).open()


# --- clean and dirty ----------------------------------------------------------------------------------


def test_a_clean_stop_is_a_clean_start() -> None:
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(b"one", b"two", b"three")
    queue.state.next_deliver_seq_id = 1
    queue.ack(1)
    node.stop()
    node, recovered = reopen(power_cut(files))
    assert recovered.clean
    assert recovered.report == []
    queue = PlainQueue(node)
    assert queue.contents() == {0: b"one", 2: b"three"}
    assert queue.state.next_deliver_seq_id == 1
    assert queue.state.next_seq_id == 3


def test_everything_counts_as_delivered_after_a_crash() -> None:
    files = new_disk()
    published(files, b"one", b"two")
    node, recovered = reopen(power_cut(files))
    assert not recovered.clean
    assert PlainQueue(node).state.next_deliver_seq_id == 2


def test_a_start_after_a_clean_stop_ends_the_cleanness_even_if_nothing_is_written() -> None:
    files = new_disk()
    published(files, b"one").stop()
    files = power_cut(files)
    assert reopen(files)[1].clean
    # A message may have been delivered in that life, without a row that tells of it.
    assert not reopen(power_cut(files))[1].clean


def test_a_row_behind_a_clean_checkpoint_makes_it_dirty() -> None:
    files = new_disk()
    node = published(files, b"one")
    queue = PlainQueue(node)
    node.checkpoint_now(clean=True)
    queue.publish(b"two")
    node.journal.commit(urgent=True)
    node, recovered = reopen(power_cut(files))
    assert not recovered.clean
    assert list(PlainQueue(node).contents().values()) == [b"one", b"two"]


def test_a_second_life_goes_on_where_the_first_one_ended() -> None:
    files = new_disk()
    published(files, b"one")
    for life in range(5):
        files = power_cut(files)
        node, recovered = reopen(files)
        assert recovered.report == []
        PlainQueue(node).publish(b"life %d" % life)
        node.journal.commit(urgent=True)
        if life == 2:
            node.checkpoint_now()
    assert contents(power_cut(files)) == [b"one"] + [b"life %d" % life for life in range(5)]


def test_a_checkpoint_before_the_queues_are_open_keeps_what_was_recovered() -> None:
    files = new_disk()
    published(files, b"one", b"two")
    files = power_cut(files)
    node = open_node(files)
    assert node.checkpoint_now()
    assert contents(power_cut(files)) == [b"one", b"two"]


def test_a_queue_can_be_opened_again_in_the_same_life() -> None:
    files = new_disk()
    node = published(files, b"one")
    queue = PlainQueue(node)
    assert queue.contents() == {0: b"one"}
    queue.publish(b"two")
    node.journal.commit(urgent=True)
    again = PlainQueue(node)
    assert again.queue_no == queue.queue_no
    assert again.contents() == {0: b"one", 1: b"two"}


def test_changes_of_definitions_come_back_in_order() -> None:
    files = new_disk()
    node = open_node(files)
    for text in (b"a", b"b", b"c"):
        node.journal.define(text)
        node.journal.commit(urgent=True)
    assert reopen(power_cut(files))[1].changes == [b"a", b"b", b"c"]


def test_a_deleted_queue_is_gone_and_its_number_is_not_given_again() -> None:
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(b"one")
    queue.delete()
    node.journal.commit(urgent=True)
    node, _ = reopen(power_cut(files))
    assert node.queue_state("q1") is None
    assert node.queue_number(VHOST, "q2", b"") == queue.queue_no + 1


def test_requeues_are_counted_again() -> None:
    files = new_disk()
    node = published(files, b"one", b"two")
    for _ in range(3):
        node.journal.settle(rows.REQUEUED, 1, 1, 1, 3)
    node.journal.commit(urgent=True)
    node, _ = reopen(power_cut(files))
    state = node.queue_state("q1")
    assert state is not None
    assert state.delivery_counts == {1: 3}


def test_seq_ids_go_on_above_the_files_that_the_last_life_left() -> None:
    files = new_disk(Survival.EVERYTHING)
    node = published(files, b"one")
    queue = PlainQueue(node)
    # Slots that no checkpoint has seen: of a message that was paged out, and of one that came after it.
    queue.index.write(SLOTS + 1, [(1, 0, 3, -1, 1, 1, 1)])
    queue.index.flush()
    node, _ = reopen(files.kill())
    queue = PlainQueue(node)
    assert queue.contents() == {0: b"one"}
    assert queue.publish(b"two") == 2 * SLOTS
    queue.state.live.check_invariants()


# --- crash in recovery --------------------------------------------------------------------------------


def crashed_disk(survival: Survival) -> SimFiles:
    files = SimFiles(FaultPlan(survival))
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(b"one", b"two", b"three", b"four", b"five")
    queue.publish_large(b"large" * 50)
    node.journal.commit(urgent=True)
    queue.page_out(0, 1)
    node.checkpoint_now()
    queue.ack(1, 3)
    node.journal.define(b"change")
    node.journal.commit(urgent=True)
    return files


def state_of(recovered: Recovered) -> object:
    return (
        recovered.definitions,
        recovered.changes,
        recovered.report,
        recovered.end.next_lsn,
        [(number, state.encode()) for number, state in sorted(recovered.states.items())],
    )


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("after", [False, True])
def test_a_recovery_that_crashed_is_followed_by_one_that_finds_the_same(survival: Survival, after: bool) -> None:
    base = crashed_disk(survival).crash(Random(3).randrange)
    rehearsal = base.copy()
    node, recovered = reopen(rehearsal)
    wanted = state_of(recovered)
    bodies = PlainQueue(node).contents()
    assert set(bodies.values()) >= {b"one", b"three", b"five", b"large" * 50}
    points = rehearsal.crash_points()
    assert points
    for point in points:
        files = base.copy()
        files.plan.crash_at, files.plan.crash_after = point, after
        with pytest.raises(SimCrash):
            PlainQueue(reopen(files)[0]).contents()
        survivor = files.crash(Random(point).randrange)
        node, recovered = reopen(survivor)
        assert state_of(recovered) == wanted, f"crash at call {point}"
        assert PlainQueue(node).contents() == bodies


def test_many_crashes_one_after_the_other_lose_nothing_that_was_durable() -> None:
    for seed in range(150):
        random = Random(seed)
        files = SimFiles(FaultPlan(Survival.ANYTHING))
        safe: dict[int, bytes] = {}
        maybe: dict[int, bytes] = {}
        for life in range(4):
            files.plan.crash_at = random.randrange(3, 120)
            with suppress(SimCrash):
                one_life(files, random, life, safe, maybe)
            files = files.crash(random.randrange)
        node, recovered = reopen(files)
        found = PlainQueue(node).contents()
        assert safe.items() <= found.items(), f"seed {seed}"
        assert found.items() <= {**maybe, **safe}.items(), f"seed {seed}"
        assert not [line for line in recovered.report if "damaged" in line], f"seed {seed}"


def one_life(files: SimFiles, random: Random, life: int, safe: dict[int, bytes], maybe: dict[int, bytes]) -> None:
    """`safe` and `maybe` are true at every moment of it."""
    node = open_node(files)
    queue = PlainQueue(node)
    # What was not acked durably is back; what was is not.
    for seq_id in [seq_id for seq_id in maybe if seq_id not in queue.messages and seq_id not in safe]:
        del maybe[seq_id]
    safe.update(queue.contents())
    for step in range(8):
        body = b"%d.%d" % (life, step)
        publish: Callable[[bytes], int] = queue.publish_large if random.randrange(4) == 0 else queue.publish
        seq_id = queue.state.next_seq_id
        maybe[seq_id] = body
        assert publish(body) == seq_id
        gone = random.choice(sorted(queue.messages)) if random.randrange(2) else seq_id
        if gone != seq_id:
            maybe[gone] = safe.pop(gone, maybe.get(gone, b""))
            queue.ack(gone)
        node.journal.commit(urgent=True)
        safe[seq_id] = body
        if gone != seq_id:
            del maybe[gone]
        if random.randrange(3) == 0:
            paged = [number for number in queue.messages if number not in queue.paged and random.randrange(2)]
            queue.page_out(*paged)
        if random.randrange(3) == 0:
            node.checkpoint_now()
        if random.randrange(6) == 0:
            node.stop()
            return


# --- damage -------------------------------------------------------------------------------------------


def batches(files: SimFiles) -> list[int]:
    """Where the batches of the first segment begin."""
    data = files.contents()[SEGMENT]
    found = []
    at = data.find(b"PNJB")
    while at >= 0:
        found.append(at)
        at = data.find(b"PNJB", at + 1)
    assert found[0] == FIRST_BATCH_AT
    return found


def test_a_torn_tail_is_cut_off_and_named() -> None:
    files = new_disk()
    published(files, b"one", b"two")
    files = power_cut(files)
    start = batches(files)[-1]
    size = len(files.contents()[SEGMENT])
    files.truncate_durable(SEGMENT, size - 8)
    node, recovered = reopen(files)
    assert list(PlainQueue(node).contents().values()) == [b"one"]
    assert [line for line in recovered.report if SEGMENT in line and "never completed" in line]
    assert len(files.contents()[SEGMENT]) == start
    assert not files.list_dir("lost+found")
    assert reopen(power_cut(files))[1].report == []


def test_a_rotten_batch_is_quarantined_and_its_messages_are_named() -> None:
    files = new_disk()
    node = published(files, b"one", b"two", b"three", b"four")
    PlainQueue(node).ack(2)
    node.journal.commit(urgent=True)
    files = power_cut(files)
    start, end = batches(files)[2:4]
    files.flip(SEGMENT, start + 100, 0)
    bad = files.contents()[SEGMENT][start:end]
    node, recovered = reopen(files)
    queue = PlainQueue(node)
    assert list(queue.contents().values()) == [b"one", b"two", b"four"]
    assert (queue.state.count, queue.state.size_bytes) == (3, 10)
    assert [line for line in recovered.report if "messages 2 to 2 of queue 'orders q1' (q1) are lost" in line]
    assert [line for line in recovered.report if SEGMENT in line and "damaged" in line]
    assert files.contents()[f"lost+found/00000001-{start}.bin"] == bad
    assert reopen(files.copy())[1].report == recovered.report
    node.checkpoint_now()
    assert reopen(power_cut(files))[1].report == []


def test_messages_whose_publish_is_lost_are_named_when_only_their_acks_are_left() -> None:
    files = new_disk()
    node = published(files, b"one", b"two", b"three")
    PlainQueue(node).ack(2)
    node.journal.commit(urgent=True)
    files = power_cut(files)
    files.flip(SEGMENT, batches(files)[2] + 100, 0)
    node, recovered = reopen(files)
    assert [line for line in recovered.report if "messages 2 to 2 of queue" in line]
    queue = PlainQueue(node)
    assert queue.contents() == {0: b"one", 1: b"two"}
    assert queue.state.count == 2
    assert queue.publish(b"four") > 2


def test_messages_of_a_queue_whose_name_is_lost_are_reported() -> None:
    files = new_disk()
    published(files, b"one", b"two", b"three")
    files = power_cut(files)
    files.flip(SEGMENT, batches(files)[0] + 100, 0)
    _, recovered = reopen(files)
    assert [line for line in recovered.report if "2 messages of queue number 1 are lost" in line]


def test_a_change_of_the_definitions_that_cannot_be_read_is_reported() -> None:
    files = new_disk()
    node = open_node(files)
    for text in (b"first change", b"second change"):
        node.journal.define(text)
        node.journal.commit(urgent=True)
    files = power_cut(files)
    files.flip(SEGMENT, files.contents()[SEGMENT].index(b"first change"), 0)
    _, recovered = reopen(files)
    assert recovered.changes == [b"second change"]
    assert [line for line in recovered.report if "a change of the definitions (LSN 0) is lost" in line]


@pytest.mark.parametrize(
    "place", ["journal/", "checkpoint/00000002", "checkpoint/", "vhosts/aa/shared", "vhosts/aa/queues"]
)
def test_a_disk_that_cannot_read_at_a_start_costs_no_message(place: str) -> None:
    files = new_disk()
    node = published(files, b"one")
    queue = PlainQueue(node, "q2")
    queue.publish_large(b"large")
    paged = queue.publish(b"paged")
    node.journal.commit(urgent=True)
    queue.page_out(paged)
    node.checkpoint_now()
    node.checkpoint_now()
    files = power_cut(files)
    files.plan.fail(EIO, "pread", place, forever=True)
    with suppress(StartupError, OSError):
        # It starts with what it can do without, or says what it cannot read.
        failing, _ = reopen(files)
        PlainQueue(failing, "q2").contents()
        failing.abandon()
    files = files.kill()
    assert contents(files) == [b"one"]
    assert sorted(contents(files.kill(), "q2")) == [b"large", b"paged"]


def test_a_damaged_newest_checkpoint_leads_to_the_older_one() -> None:
    files = new_disk()
    node = open_node(files)
    definitions = [b"old"]
    node.definitions_source = lambda: [definitions[-1]]
    queue = PlainQueue(node)
    for number in range(4):
        queue.publish(b"message %d" % number)
        if number == 2:
            queue.ack(0)
        node.checkpoint_now()
        definitions.append(b"new %d" % number)
        node.journal.define(b"new %d" % number)
        node.journal.commit(urgent=True)
    assert checkpoint_numbers(files) == [3, 4]
    files = power_cut(files)
    wanted = list(PlainQueue(open_node(files.copy())).contents().values())
    files.flip(checkpoint_path(4), 200, 3)
    node, recovered = reopen(files)
    assert list(PlainQueue(node).contents().values()) == wanted == [b"message %d" % number for number in (1, 2, 3)]
    assert (recovered.definitions, recovered.changes) == (b"new 1", [b"new 2", b"new 3"])
    assert [line for line in recovered.report if "checkpoint/00000004.ckpt cannot be used" in line]
    assert "00000004.ckpt" in files.list_dir("lost+found")
    node.definitions_source = lambda: [b"now"]
    node.checkpoint_now()
    assert checkpoint_numbers(files) == [3, 5], "the damaged one does not count as one of two"
    assert reopen(power_cut(files))[1].report == []


def test_without_any_good_checkpoint_a_whole_journal_is_enough() -> None:
    files = new_disk()
    node = published(files, b"one", b"two")
    node.checkpoint_now()
    node.checkpoint_now()
    files = power_cut(files)
    for number in (1, 2):
        files.flip(checkpoint_path(number), 100, 0)
    assert contents(files) == [b"one", b"two"]


def test_without_any_good_checkpoint_a_journal_that_has_lost_its_beginning_is_refused() -> None:
    files = new_disk()
    published(files, b"one")
    files = power_cut(files)
    files.rename(SEGMENT, "journal/00000002.pnj")
    with pytest.raises(StartupError, match="there is no checkpoint, and the journal begins with segment 2"):
        new_node(files).open()


def test_a_folder_that_has_lost_its_journal_is_not_taken_for_a_new_one() -> None:
    files = new_disk()
    PlainQueue(open_node(files)).node.message_store(VHOST, True)
    files.make_dir(f"vhosts/{VHOST}/queues/q1")
    files.sync_dir("vhosts")
    files.delete(SEGMENT)
    with pytest.raises(StartupError, match="there is no checkpoint, and the journal is empty"):
        new_node(power_cut(files)).open()


def test_a_journal_that_lost_its_end_after_a_checkpoint_is_reported() -> None:
    files = new_disk()
    node = published(files, b"one", b"two")
    node.checkpoint_now()
    files = power_cut(files)
    files.truncate_durable(SEGMENT, batches(files)[-1])
    node, recovered = reopen(files)
    assert [line for line in recovered.report if "a checkpoint has seen it up to" in line]
    assert node.journal.next_lsn > 2


# --- the shared store ---------------------------------------------------------------------------------


def test_bodies_in_the_shared_store_come_back_with_their_references() -> None:
    files = new_disk()
    node = open_node(files)
    one, two = PlainQueue(node, "q1"), PlainQueue(node, "q2")
    one.publish_large(b"a" * 300, b"b" * 300)
    two.publish_large(b"c" * 300)
    node.journal.commit(urgent=True)
    one.page_out(0)
    node.checkpoint_now()
    node, _ = reopen(power_cut(files))
    assert PlainQueue(node, "q1").contents() == {0: b"a" * 300, 1: b"b" * 300}
    assert PlainQueue(node, "q2").contents() == {0: b"c" * 300}
    assert node.message_store(VHOST, True).status()["bodies"] == 3


@pytest.mark.parametrize("paged", [False, True])
def test_a_body_that_rotted_in_the_shared_store_is_named_and_not_counted(paged: bool) -> None:
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish_large(b"a" * 300, b"b" * 300)
    queue.publish(b"after")
    node.journal.commit(urgent=True)
    if paged:
        queue.page_out(0, 1)
    node.checkpoint_now()
    path = f"vhosts/{VHOST}/shared/persistent/00000001.pms"
    files = power_cut(files)
    files.truncate_durable(path, files.contents()[path].index(b"a" * 300) + 310)
    node, recovered = reopen(files)
    queue = PlainQueue(node)
    assert list(queue.contents().values()) == [b"a" * 300, b"after"]
    assert (queue.state.count, queue.state.size_bytes) == (2, 305)
    assert [line for line in recovered.report if "message 1 of queue 'orders q1' (q1) is lost" in line]


def test_a_last_batch_without_its_large_body_was_never_confirmed_and_is_cut_off() -> None:
    files = SimFiles(FaultPlan(Survival.NOTHING))
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(b"first")
    node.journal.commit(urgent=True)
    queue.publish(b"small, in the same batch")
    queue.publish_large(b"a" * 300)
    node.journal.commit(urgent=True)
    files = power_cut(files)
    path = f"vhosts/{VHOST}/shared/persistent/00000001.pms"
    files.truncate_durable(path, 64)
    node, recovered = reopen(files)
    assert PlainQueue(node).contents() == {0: b"first"}
    assert [line for line in recovered.report if "never completed" not in line] == []


def test_bodies_at_the_end_of_the_journal_are_synced_before_they_are_served() -> None:
    files = new_disk()
    node = open_node(files, syncer=LateSyncer())
    PlainQueue(node).publish_large(b"a" * 300)
    node.journal.commit(urgent=True)
    files = files.kill()
    path = f"vhosts/{VHOST}/shared/persistent/00000001.pms"
    assert b"a" * 300 not in files.durable_bytes(path)
    _, recovered = reopen(files)
    assert recovered.states[1].count == 1
    assert b"a" * 300 in files.durable_bytes(path)


@pytest.mark.parametrize("after", [False, True])
def test_a_power_cut_in_the_start_behind_a_kill_leaves_the_last_batch_whole_or_not_at_all(after: bool) -> None:
    """The batch, its large body and the names of the body's file and folders are in the page cache when it begins."""
    files = new_disk()
    node = open_node(files, syncer=LateSyncer())
    queue = PlainQueue(node)
    queue.publish(b"small")
    queue.publish_large(b"a" * 300)
    node.journal.commit(urgent=True)
    killed = files.kill()
    whole, nothing = {0: b"small", 1: b"a" * 300}, {}
    rehearsal = killed.copy()
    assert PlainQueue(reopen(rehearsal)[0]).contents() == whole
    for point in rehearsal.crash_points():
        files = killed.copy()
        files.plan.crash_at, files.plan.crash_after = point, after
        with pytest.raises(SimCrash):
            PlainQueue(reopen(files)[0]).contents()
        node, recovered = reopen(power_cut(files))
        assert PlainQueue(node).contents() in (whole, nothing), f"crash at call {point}: {recovered.report}"
    node, _ = reopen(power_cut(rehearsal))
    assert PlainQueue(node).contents() == whole
