"""Showing files to people: every kind, damage included."""

from __future__ import annotations

import json

import pytest
from node_house import SLOTS, VHOST, PlainQueue, new_disk, open_node
from tests.disk.sim_files import SimFiles

from penstock.message import Envelope, Incoming
from penstock.store.inspect.dump import dump
from penstock.store.node.checkpoint import checkpoint_path

SEGMENT = "journal/00000001.pnj"


def shown(files: SimFiles, path: str, limit: int = 1000) -> list[dict[str, object]]:
    records = list(dump(files, path, limit))
    for record in records:
        json.dumps(record)
        assert all(str(value).isprintable() for value in record.values()), record
    return records


def full_disk() -> SimFiles:
    files = new_disk()
    node = open_node(files)
    node.definitions_source = lambda: [b'{"all": "definitions"}']
    queue = PlainQueue(node)
    queue.publish(b"one \x1b[31mred\x07", b"two")
    queue.publish_large(b"large" * 30)
    queue.ack(1)
    node.journal.define(b"a change")
    node.journal.commit(urgent=True)
    queue.page_out(0)
    node.checkpoint_now()
    queue.move_home(1, 10)
    other = PlainQueue(node, "q2")
    other.publish(b"gone with its queue")
    other.delete()
    node.checkpoint_now()
    return files


def test_the_rows_of_a_journal_are_shown_with_names() -> None:
    records = shown(full_disk(), SEGMENT)
    assert [record["record"] for record in records] == [
        "segment", "batch", "name", "name", "published", "published", "acked", "define",
        "batch", "name", "name", "published", "forget",
    ]  # fmt: skip
    published = records[4]
    assert published["queue"] == "'orders q1' (q1)"
    assert published["route"] == "'' 'key'"
    assert (published["lsn"], published["seq_id"], published["count"], published["bytes"]) == (2, 0, 2, 16)
    assert published["body"] == "one \\x1b[31mred\\x07\\xce"
    assert records[5]["shared"] == 1
    assert records[7]["text"] == "a change"
    assert records[12]["queue"] == "'orders q2' (q2)"


def test_a_damaged_batch_is_shown_as_damage_and_the_rest_follows() -> None:
    files = full_disk()
    files.flip(SEGMENT, 4160 + 100, 0)
    records = shown(files, SEGMENT)
    assert [record["record"] for record in records][:3] == ["segment", "damaged", "batch"]
    assert records[1]["pos"] == 4160


def test_only_so_many_records_are_shown() -> None:
    assert len(shown(full_disk(), SEGMENT, limit=3)) == 3


def test_a_checkpoint_is_shown_with_its_queues() -> None:
    records = shown(full_disk(), checkpoint_path(1))
    assert [record["record"] for record in records] == ["checkpoint", "definitions", "name", "queue"]
    assert records[1]["text"] == '{"all": "definitions"}'
    assert records[2]["text"] == f"{VHOST}/q1 orders q1"
    queue = records[3]
    assert (queue["queue_id"], queue["next_seq_id"], queue["messages"], queue["index_segments"]) == ("q1", 3, 2, [0])
    files = full_disk()
    files.flip(checkpoint_path(1), 150, 0)
    assert shown(files, checkpoint_path(1))[-1]["record"] == "damaged"


def test_the_slots_of_an_index_are_shown_with_where_messages_moved() -> None:
    files = full_disk()
    path = f"vhosts/{VHOST}/queues/q1/idx/00000000.qi"
    records = shown(files, path)
    assert [(record["record"], record.get("seq_id"), record.get("place")) for record in records] == [
        ("index", None, None),
        ("slot", 0, "journal"),
        ("moved", 0, "queue store"),
    ]
    assert records[0]["slots"] == SLOTS
    files.flip(path, 64 + 8, 0)
    assert shown(files, path)[1] == {"record": "damaged", "seq_id": 0, "area": 0}


def test_the_records_of_a_queue_store_are_shown() -> None:
    files = full_disk()
    path = f"vhosts/{VHOST}/queues/q1/qs/00000000.qs"
    _, record = shown(files, path)
    assert (record["record"], record["seq_id"], record["routing_key"], record["bytes"]) == ("message", 0, "key", 13)
    files.flip(path, len(files.contents()[path]) - 1, 0)
    assert shown(files, path)[1]["record"] == "damaged"


def test_the_records_of_a_shared_store_are_shown() -> None:
    files = full_disk()
    _, record = shown(files, f"vhosts/{VHOST}/shared/persistent/00000001.pms")
    assert (record["bytes"], record["address"]) == (150, 1 << 32 | 64)
    assert str(record["body"]).endswith("…")


def test_names_that_a_client_chose_cannot_reach_a_terminal() -> None:
    files = new_disk()
    node = open_node(files)
    number = node.queue_number(VHOST, "q1", b"\x1b]0;title\x07\xff")
    node.journal.publish(number, 0, Incoming(Envelope("x\n", "\x1b[2J\udcff", b""), [b"\x9b\xce"]), -1)
    node.journal.commit(urgent=True)
    node.checkpoint_now()
    assert len(shown(files, SEGMENT)) == 5
    assert len(shown(files, checkpoint_path(1))) == 3


@pytest.mark.parametrize("path", ["format", "lock", "journal/00000001.txt", "00000001.pnj"])
def test_other_files_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"penstock writes|is called journal"):
        list(dump(full_disk(), path, 10))
