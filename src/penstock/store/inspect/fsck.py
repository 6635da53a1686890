"""Checks every byte of a data folder that a start or a message needs, and reports what is wrong.

It reads as a start would (`recovery.recover`), and then what a start does not read: every heap of the journal, every
slot of the indexes in use, and the body of every waiting message. It needs no lock; what a running node has not
finished writing looks like damage, so the report says when the folder is in use.

Invariants
  1. No call that changes the disk is made.
  2. Whatever the bytes are, the answer is a report. Only errors of the machine are raised.
  3. A folder that was stopped cleanly, and is whole, has no findings.

Severities: an "error" costs messages or definitions, or keeps a node from starting; a "warning" is repaired by the next
start, or costs a reserve (a torn tail, the older checkpoint); a "note" costs nothing (files to which nothing refers).

Nothing is repaired here: a start does what can be done.
"""

from __future__ import annotations

from typing import Final, final

from penstock.disk.files import Files
from penstock.errors import StartupError
from penstock.journal.format.layout import segment_number, segment_path
from penstock.journal.reading.replay import BatchView, replay
from penstock.store.inspect.live_messages import LiveMessages
from penstock.store.node.checkpoint import (
    FOLDER,
    SUFFIX,
    BadCheckpoint,
    checkpoint_numbers,
    checkpoint_path,
    read_checkpoint,
)
from penstock.store.node.queue_names import queue_folder, queues_folder
from penstock.store.node.reserve import PATH as RESERVE_PATH
from penstock.store.queue.places import QUEUE_STORE, StoreError
from penstock.store.queue.queue_state import QueueState
from penstock.store.recovery import recovery
from penstock.store.recovery.recovery import JOURNAL_FOLDER, LOST_FOLDER, Recovered
from penstock.store.retention.reader_cursors import FOLDER as READERS_FOLDER
from penstock.store.retention.reader_cursors import read_cursors
from penstock.store.shared.handles import HandleCache

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"

_LOCK_PATH: Final = "lock"
# The audit log and the control socket are the broker's, not the store's.
_AT_THE_TOP: Final = (
    *(
        "audit",
        "control.sock",
        _LOCK_PATH,
        recovery.FORMAT_PATH,
        JOURNAL_FOLDER,
        FOLDER,
        RESERVE_PATH,
        LOST_FOLDER,
        READERS_FOLDER,
        "vhosts",
    ),
)
# Only for queues that no checkpoint knows; the number is the default of `StoreOptions`.
_SLOTS: Final = 4096


@final
class Finding:
    """Something that is not as it should be."""

    __slots__ = ("path", "severity", "text")

    def __init__(self, severity: str, path: str, text: str) -> None:
        self.severity = severity
        self.path = path
        self.text = text


@final
class Report:
    """What was found, and how much was looked at."""

    __slots__ = ("counts", "findings")

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.counts: dict[str, int] = {}

    def add(self, severity: str, path: str, text: str) -> None:
        self.findings.append(Finding(severity, path, text))

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number


def fsck(files: Files) -> Report:
    report = Report()
    _check_use(files, report)
    try:
        recovery.check_format(files)
    except StartupError as error:
        report.add(ERROR, recovery.FORMAT_PATH, str(error))
        return report
    return check_contents(files, report)


def check_contents(files: Files, report: Report | None = None) -> Report:
    """Check everything but whether the folder may be used; the findings are added to the report."""
    report = Report() if report is None else report
    _check_checkpoints(files, report)
    _check_journal(files, report)
    handles = HandleCache(files)
    try:
        recovered = recovery.recover(files, handles, _SLOTS)
    except (StartupError, StoreError) as error:
        report.add(ERROR, "", f"a node would not start: {error}")
        return report
    for line in recovered.report:
        # The files are reported above; here is what that costs.
        if not line.startswith((f"{JOURNAL_FOLDER}/", f"{FOLDER}/")):
            report.add(ERROR, "", line)
    messages = LiveMessages(files, handles)
    for state in recovered.states.values():
        _check_queue(messages, state, recovered, report)
    messages.close()
    _check_shared_files(messages, recovered, report)
    _check_orphans(files, recovered, report)
    return report


def _check_use(files: Files, report: Report) -> None:
    if files.is_locked(_LOCK_PATH):
        report.add(NOTE, _LOCK_PATH, "the folder is in use: what is being written may look like damage")


def _check_checkpoints(files: Files, report: Report) -> None:
    numbers = checkpoint_numbers(files)
    for number in numbers:
        try:
            checkpoint = read_checkpoint(files, number)
        except (BadCheckpoint, StoreError) as error:
            is_last = len(numbers) == 1
            report.add(ERROR if is_last else WARNING, checkpoint_path(number), f"it cannot be used: {error}")
            continue
        report.count("checkpoints")
        if number == numbers[-1]:
            report.count("queues in the newest checkpoint", len(checkpoint.states))
    for name in files.list_dir(FOLDER):
        if not name.endswith(SUFFIX):
            report.add(NOTE, f"{FOLDER}/{name}", "a draft that was not finished; the next checkpoint removes it")


def _check_journal(files: Files, report: Report) -> None:
    def visit(batch: BatchView) -> None:
        report.count("journal batches")
        report.count("journal rows", len(batch.rows))
        report.count("journal events", batch.next_lsn - batch.first_lsn)
        _, bad_blocks = batch.read_heap()
        if bad_blocks:
            report.add(
                ERROR,
                segment_path(JOURNAL_FOLDER, batch.segment),
                f"the batch at {batch.pos} has {len(bad_blocks)} damaged blocks (the first is {bad_blocks[0]})",
            )

    end = replay(files, JOURNAL_FOLDER, 0, 0, visit)
    report.count("journal segments", len(recovery.journal_segments(files)))
    for torn in end.torn:
        report.add(
            WARNING,
            segment_path(JOURNAL_FOLDER, torn.segment),
            f"{torn.bytes} bytes at {torn.pos} are a batch that was never completed",
        )
    for rotten in recovery.really_rotten(end):
        report.add(
            ERROR,
            segment_path(JOURNAL_FOLDER, rotten.segment),
            f"{rotten.bytes} bytes at {rotten.pos} are damaged: events {rotten.first_lsn} up to {rotten.next_lsn}",
        )


def _check_queue(messages: LiveMessages, state: QueueState, recovered: Recovered, report: Report) -> None:
    shown = recovered.names.shown(state.queue_no)
    folder = queue_folder(state.vhost_id, state.queue_id)
    checked = messages.check(state, recovered.unproven)
    report.count("queues")
    report.count("waiting messages", checked.count)
    for text in checked.bad_files:
        report.add(ERROR, folder, text)
    for first, last, why in checked.unreadable:
        report.add(ERROR, folder, f"messages {first} to {last} of queue {shown} cannot be read: {why}")
    if checked.count != state.count or checked.size_bytes != state.size_bytes:
        report.add(
            ERROR,
            folder,
            f"queue {shown} should have {state.count} messages of {state.size_bytes} bytes, and {checked.count} of"
            f" {checked.size_bytes} bytes were found",
        )


def _check_shared_files(messages: LiveMessages, recovered: Recovered, report: Report) -> None:
    """Check records that no message needs: damage there costs nothing, but is a sign of a bad disk."""
    for vhost_id in sorted({state.vhost_id for state in recovered.states.values()}):
        for path, text in messages.damaged_records(vhost_id):
            report.add(NOTE, path, text)


def _check_orphans(files: Files, recovered: Recovered, report: Report) -> None:
    for name in files.list_dir(""):
        if name not in _AT_THE_TOP:
            report.add(NOTE, name, "does not belong into a data folder")
    for name in files.list_dir(JOURNAL_FOLDER):
        if segment_number(name) < 0:
            report.add(NOTE, f"{JOURNAL_FOLDER}/{name}", "is not a journal segment")
    report.count("files in lost+found", len(files.list_dir(LOST_FOLDER)))
    cursors, strange = read_cursors(files)
    report.count("readers of history", len(cursors))
    for path in strange:
        report.add(WARNING, path, "is not the cursor of a reader, or is damaged: history is not kept for it")
    by_id = {state.queue_id: state for state in recovered.states.values()}
    for vhost_id in files.list_dir("vhosts"):
        for queue_id in files.list_dir(queues_folder(vhost_id)):
            folder = queue_folder(vhost_id, queue_id)
            if queue_id not in by_id and recovered.names.number(queue_id) is None:
                report.add(NOTE, folder, "the folder of a queue that is not known; the next start removes it")
            else:
                _check_orphan_files(files, folder, by_id.get(queue_id), report)


def _check_orphan_files(files: Files, folder: str, state: QueueState | None, report: Report) -> None:
    named: set[int] = set()
    if state is not None:
        named.update(state.index_segments)
        named.update([run.segment for run in state.runs if run.kind == QUEUE_STORE])
    for kind in ("idx", "qs"):
        for name in files.list_dir(f"{folder}/{kind}"):
            digits = name.partition(".")[0]
            if not digits.isdecimal() or int(digits) not in named:
                report.add(NOTE, f"{folder}/{kind}/{name}", "nothing refers to it; the next start removes it")
