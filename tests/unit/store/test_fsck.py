"""Checking a data folder: silent about what is whole, exact about what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from node_house import VHOST, PlainQueue, new_disk, open_node, power_cut, tiny_options
from tests.disk.sim_files import CHANGING_CALLS, SimFiles

from penstock.store.inspect.fsck import Report, fsck
from penstock.store.node.checkpoint import checkpoint_path

SEGMENT = "journal/00000001.pnj"
INDEX = f"vhosts/{VHOST}/queues/q1/idx/00000000.qi"
STORE = f"vhosts/{VHOST}/queues/q1/qs/00000000.qs"
SHARED = f"vhosts/{VHOST}/shared/persistent/00000001.pms"


def full_disk(clean: bool = True) -> SimFiles:
    """Messages in every place that there is."""
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(b"in the queue's store", b"in the journal, known by the index", b"in the journal, in a run")
    queue.publish_large(b"in the shared store, in a run" * 5, b"in the shared store, known by the index" * 5)
    node.journal.commit(urgent=True)
    node.checkpoint_now()
    first = queue.messages.copy()
    queue.messages = {0: first[0]}
    queue.move_home(1, 10)
    queue.messages = {**first, **queue.messages}
    queue.page_out(1, 4)
    node.checkpoint_now()
    queue.publish(b"behind the checkpoint")
    node.journal.commit(urgent=True)
    if clean:
        node.stop()
    return power_cut(files)


def findings(report: Report) -> list[tuple[str, str]]:
    return [(finding.severity, finding.path) for finding in report.findings]


def test_a_folder_that_was_stopped_cleanly_has_no_findings() -> None:
    report = fsck(full_disk())
    assert findings(report) == []
    assert report.counts["waiting messages"] == 6
    assert report.counts["queues"] == 1
    assert report.counts["checkpoints"] >= 2
    assert report.counts["journal batches"] == 2


def test_a_folder_after_a_crash_has_no_findings_either() -> None:
    report = fsck(full_disk(clean=False))
    assert findings(report) == []
    assert report.counts["waiting messages"] == 6


def test_an_empty_folder_has_no_findings() -> None:
    files = new_disk()
    open_node(files).stop()
    assert findings(fsck(power_cut(files))) == []


def test_nothing_is_changed() -> None:
    files = full_disk(clean=False)
    files.flip(SEGMENT, 4300, 0)
    before = files.contents()
    fsck(files)
    assert files.contents() == before
    assert {name for name, _ in files.calls if name in CHANGING_CALLS} <= {"open", "lock"}


def test_a_folder_in_use_is_said_to_be_in_use() -> None:
    files = new_disk()
    node = open_node(files)
    PlainQueue(node).publish(b"one")
    node.journal.commit(urgent=True)
    assert findings(fsck(files)) == [("note", "lock")]


def flipped(path: str, text: bytes) -> Callable[[SimFiles], None]:
    def damage(files: SimFiles) -> None:
        files.flip(path, files.contents()[path].index(text), 0)

    return damage


def cut(path: str, size: int) -> Callable[[SimFiles], None]:
    return lambda files: files.truncate_durable(path, size)


def made(path: str) -> Callable[[SimFiles], None]:
    def damage(files: SimFiles) -> None:
        files.make_dir(path.rpartition("/")[0])
        files.create(path).close()

    return damage


def later_format(files: SimFiles) -> None:
    file = files.open("format")
    file.pwrite([b"penstock 3\n"], 0)
    file.close()


DAMAGE: list[tuple[Callable[[SimFiles], None], tuple[str, str], str]] = [
    (later_format, ("error", "format"), "penstock 3"),
    (flipped(checkpoint_path(2), b"q1"), ("warning", checkpoint_path(2)), "damaged"),
    (flipped(SEGMENT, b"PNJB"), ("error", SEGMENT), "bytes at 4160 are damaged"),
    (flipped(SEGMENT, b"in the journal, in a run"), ("error", SEGMENT), "1 damaged blocks"),
    (
        flipped(SEGMENT, b"in the journal, in a run"),
        ("error", f"vhosts/{VHOST}/queues/q1"),
        "messages 1 to 1 of queue 'orders q1' (q1) cannot be read",
    ),
    (cut(SEGMENT, 4200), ("error", f"vhosts/{VHOST}/queues/q1"), "messages 2 to 2 of queue"),
    (flipped(STORE, b"queue's store"), ("error", f"vhosts/{VHOST}/queues/q1"), "messages 0 to 0 of queue"),
    (cut(INDEX, 64 + 40), ("error", f"vhosts/{VHOST}/queues/q1"), "should have 6 messages"),
    (lambda files: files.flip(INDEX, 64 + 32 + 5, 0), ("error", f"vhosts/{VHOST}/queues/q1"), "damaged slots"),
    (lambda files: files.flip(INDEX, 5, 0), ("error", f"vhosts/{VHOST}/queues/q1"), "the head of"),
    (flipped(SHARED, b"in a run"), ("error", f"vhosts/{VHOST}/queues/q1"), "messages 3 to 3 of queue"),
    (flipped(SHARED, b"in a run"), ("note", SHARED), "checksum is wrong"),
    (made("vhosts/aa/queues/unknown/idx/00000000.qi"), ("note", "vhosts/aa/queues/unknown"), "not known"),
    (made(f"vhosts/{VHOST}/queues/q1/idx/00000009.qi"), ("note", f"vhosts/{VHOST}/queues/q1/idx/00000009.qi"), "noth"),
    (made("journal/notes.txt"), ("note", "journal/notes.txt"), "not a journal segment"),
    (made("checkpoint/00000009.ckpt.tmp"), ("note", "checkpoint/00000009.ckpt.tmp"), "a draft"),
    (lambda files: files.create("stranger").close(), ("note", "stranger"), "does not belong"),
    (lambda files: files.delete(SEGMENT), ("error", ""), "a node would not start: journal/00000001.pnj is missing"),
]


@pytest.mark.parametrize(("damage", "wanted", "text"), DAMAGE)
def test_each_kind_of_damage_is_found(damage: Callable[[SimFiles], None], wanted: tuple[str, str], text: str) -> None:
    files = full_disk()
    damage(files)
    report = fsck(files)
    assert wanted in findings(report), [(*found, report.findings[0].text) for found in findings(report)]
    texts = [finding.text for finding in report.findings if (finding.severity, finding.path) == wanted]
    assert [found for found in texts if text in found], texts


def test_a_torn_tail_is_a_warning() -> None:
    files = full_disk(clean=False)
    size = len(files.contents()[SEGMENT])
    files.truncate_durable(SEGMENT, size - 8)
    assert findings(fsck(files)) == [("warning", SEGMENT)]


def test_a_folder_that_cannot_be_started_is_an_error() -> None:
    files = full_disk()
    for name in files.list_dir("checkpoint"):
        files.flip(f"checkpoint/{name}", 100, 0)
    files.delete(SEGMENT)
    report = fsck(files)
    assert [finding for finding in report.findings if "a node would not start" in finding.text]


def test_any_flipped_bit_is_found_or_harmless() -> None:
    """Whatever fsck says nothing about, a start recovers whole."""
    base = full_disk()
    whole = PlainQueue(open_node(base.copy(), tiny_options())).contents()
    for path in (SEGMENT, INDEX, STORE, SHARED, checkpoint_path(3)):
        size = len(base.contents()[path])
        for byte in range(0, size, 7):
            files = base.copy()
            files.flip(path, byte, byte % 8)
            if not fsck(files).findings:
                assert PlainQueue(open_node(files)).contents() == whole, f"{path} byte {byte}"
