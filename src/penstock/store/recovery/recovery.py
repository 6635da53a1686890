"""How a node comes back: the newest good checkpoint, and the journal behind it.

`recover` reads and reports what it found. `settle` does the little that must be done to the disk before the node may
work: it copies damaged bytes to `lost+found`, cuts off a batch that was never completed, and syncs what the last life
wrote and perhaps did not sync. Then the node opens a new journal segment.

Life of a start
  1. `check_format`: is this a data folder, and one that this version understands?
  2. `recover`: checkpoint, replay, counters; nothing is changed. fsck does the same and stops here.
  3. `settle`.

Invariants
  1. A second recovery after a crash in the first finds the same: nothing that recovery reads is changed before the
     first checkpoint, except that the incomplete batch at the end is gone.
  2. A clean stop is believed only if nothing follows it: no row, no torn or rotten bytes, and no newer segment, which a
     start makes before anything else.
  3. Damaged bytes are never served. They are kept in `lost+found`, and reported with what is known about them.
  4. A seq_id that recovery knows of is not used again, and neither is one in a file that the last life left.

A crash at any step is another dirty start.
"""

from __future__ import annotations

import gc
from typing import Final, final

from penstock.disk.files import File, Files, read_file, write_file
from penstock.errors import StartupError
from penstock.journal.format.layout import FIRST_BATCH_AT, HEAD_BYTES, other_version, segment_path
from penstock.journal.format.layout import VERSION as JOURNAL_VERSION
from penstock.journal.reading.replay import ReplayEnd, RottenRange, cut_torn_tail, replay
from penstock.journal.reading.segment_reader import segment_numbers
from penstock.store.node.checkpoint import (
    BadCheckpoint,
    Checkpoint,
    CheckpointHeader,
    UnreadableCheckpoint,
    checkpoint_numbers,
    checkpoint_path,
    read_checkpoint,
    read_header,
)
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue.indexed import recount
from penstock.store.queue.places import UnknownVersion
from penstock.store.queue.queue_state import QueueState
from penstock.store.recovery.last_batch import LastBatch
from penstock.store.recovery.replaying import Reference, Replaying
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.shared_stores import shared_folder
from penstock.store.shared.store_files import file_name

FORMAT_PATH: Final = "format"
FORMAT_VERSION: Final = 2
FORMAT_TEXT: Final = b"penstock %d\n" % FORMAT_VERSION
# What each version of the folder has that those before it have not. A folder of an older version is read as it is, and
# raised to this one before anything is written that an older penstock would not understand.
FORMAT_CHANGES: Final = {2: "users, permissions, policies and parameters are among the definitions"}
# There while a backup is restored into the folder.
RESTORING_PATH: Final = "restoring"
JOURNAL_FOLDER: Final = "journal"
LOST_FOLDER: Final = "lost+found"


@final
class Recovered:
    """What the last life left."""

    __slots__ = (
        "changes",
        "clean",
        "damaged_checkpoints",
        "definitions",
        "end",
        "kept",
        "known_lsn",
        "names",
        "next_checkpoint",
        "report",
        "states",
        "unproven",
    )

    def __init__(self, replaying: Replaying, end: ReplayEnd, clean: bool, unproven: set[Reference]) -> None:
        # The node was stopped, and nothing happened since.
        self.clean = clean
        # A snapshot of the definitions (empty when there is none), and the changes after it, in order.
        self.definitions = replaying.definitions
        self.changes = replaying.changes
        # What was cut off, quarantined or lost, in words for the log.
        self.report = replaying.report
        self.names = replaying.names
        # By queue number.
        self.states: dict[int, QueueState] = replaying.states
        # References to the shared store that are not proven to be durable.
        self.unproven = unproven
        self.end = end
        # Up to here a checkpoint has seen the journal.
        self.known_lsn = replaying.known_lsn
        # Headers of the checkpoints that can be used, oldest first.
        self.kept: list[CheckpointHeader] = []
        self.damaged_checkpoints: list[int] = []
        self.next_checkpoint = 1


# --- the folder ---------------------------------------------------------------------------------------


def check_format(files: Files) -> int:
    """Return the version of the folder; a new one has ours. Raises StartupError for one that is not ours, or newer."""
    if files.exists(RESTORING_PATH):
        raise StartupError(
            "a backup was to be restored into the data folder, and that did not come to its end: remove the folder, and"
            " restore it again"
        )
    try:
        text = read_file(files, FORMAT_PATH)
    except FileNotFoundError:
        if journal_segments(files) or checkpoint_numbers(files):
            raise StartupError(
                "the data folder has a journal but no file 'format', which says its version. Restore the file from a"
                f" backup; it says {FORMAT_TEXT.decode().strip()!r} if this version of penstock made the folder"
            ) from None
        return FORMAT_VERSION
    for version in range(1, FORMAT_VERSION + 1):
        if text == b"penstock %d\n" % version:
            _check_journal_version(files)
            return version
    raise StartupError(
        f"the data folder has the format {text.decode('utf-8', 'replace').strip()!r}, and this penstock reads"
        f" {FORMAT_TEXT.decode().strip()!r} and older: use the version of penstock that made the folder, or another"
        " folder"
    )


def _check_journal_version(files: Files) -> None:
    """Raises StartupError for a journal that a later penstock has written: it is not damage, and not to be cut off."""
    for number in journal_segments(files):
        path = segment_path(JOURNAL_FOLDER, number)
        file = files.open(path)
        try:
            version = other_version(file.pread(HEAD_BYTES, 0))
        except OSError:
            # Recovery says what cannot be read.
            version = 0
        finally:
            file.close()
        if version:
            raise StartupError(
                f"{path} has format version {version}, and this penstock reads version {JOURNAL_VERSION}: start the"
                " version of penstock that wrote it, or upgrade this one"
            )


def upgrade_format(files: Files, version: int, report: list[str]) -> None:
    """Raise a folder of an older version to ours, and say so. A crash leaves the old version or the new one."""
    if version == FORMAT_VERSION:
        return
    changes = "; ".join([FORMAT_CHANGES[later] for later in range(version + 1, FORMAT_VERSION + 1)])
    write_file(files, FORMAT_PATH, FORMAT_TEXT)
    report.append(
        f"the data folder was upgraded from format {version} to {FORMAT_VERSION} ({changes}). Older versions of"
        " penstock do not read it any more"
    )


def make_folder(files: Files) -> None:
    """What a data folder needs, as far as it is not there. The format comes last: with it the folder is complete."""
    for folder in (JOURNAL_FOLDER, "checkpoint", "vhosts", LOST_FOLDER):
        files.make_dir(folder)
    files.sync_dir("")
    if not files.exists(FORMAT_PATH):
        write_file(files, FORMAT_PATH, FORMAT_TEXT)


def journal_segments(files: Files) -> list[int]:
    return segment_numbers(files, JOURNAL_FOLDER)


# --- reading ------------------------------------------------------------------------------------------


def recover(files: Files, handles: HandleCache, slots: int) -> Recovered:
    """What the last life left, without changing anything. `slots` is for queues that no checkpoint knows."""
    replaying = Replaying(slots)
    checkpoint, damaged = _newest_good(files, replaying.report)
    segments = journal_segments(files)
    from_segment, from_pos = _replay_start(files, checkpoint, segments, damaged)
    if checkpoint is not None:
        replaying.begin(checkpoint)
    last_batch = LastBatch(files, handles, replaying)
    was_enabled = gc.isenabled()
    # Replay makes millions of small objects and no cycles.
    gc.disable()
    try:
        end = replay(files, JOURNAL_FOLDER, from_segment, from_pos, replaying.visit, last_batch.is_whole)
    finally:
        last_batch.close()
        if was_enabled:
            gc.enable()
    end.rotten = really_rotten(end, 0 if checkpoint is None else checkpoint.header.replay_lsn)
    clean = _is_clean(checkpoint, replaying, end, segments)
    if checkpoint is not None:
        _compare(checkpoint.header, end, replaying)
    _report_damage(end, replaying.report)
    unproven = replaying.finish(end.next_lsn, clean)
    if not clean:
        for state in replaying.states.values():
            _skip_files(files, state)
    has_damage = replaying.has_holes or bool(end.rotten)
    for state in replaying.states.values():
        if has_damage or state.queue_no in replaying.miscounted:
            recount(files, handles, state)
    recovered = Recovered(replaying, end, clean, unproven)
    recovered.damaged_checkpoints = damaged
    recovered.kept = _kept(files, checkpoint)
    recovered.next_checkpoint = max(checkpoint_numbers(files), default=0) + 1
    return recovered


def really_rotten(end: ReplayEnd, from_lsn: int = 0) -> list[RottenRange]:
    """Without segments that never held a batch, and whose head a crash has taken: they have lost nothing.

    Events below `from_lsn` are known from elsewhere.
    """
    return [lost for lost in end.rotten if _has_cost_events(lost, from_lsn)]


def _has_cost_events(lost: RottenRange, from_lsn: int) -> bool:
    if lost.next_lsn > lost.first_lsn:
        return lost.next_lsn > from_lsn
    # No batch behind it says what it was.
    return lost.bytes > 0 and lost.pos + lost.bytes > FIRST_BATCH_AT


def _newest_good(files: Files, report: list[str]) -> tuple[Checkpoint | None, list[int]]:
    damaged: list[int] = []
    unreadable: list[int] = []
    for number in reversed(checkpoint_numbers(files)):
        try:
            return read_checkpoint(files, number), damaged
        except BadCheckpoint as bad:
            if isinstance(bad, UnreadableCheckpoint):
                unreadable.append(number)
            else:
                damaged.append(number)
            report.append(f"{checkpoint_path(number)} cannot be used: {bad}. The one before it is used")
        except UnknownVersion as error:
            raise StartupError(str(error)) from error
    if unreadable:
        raise StartupError(
            f"{checkpoint_path(unreadable[0])} cannot be read now, and there is no older one that can: mend the disk"
            " and start again, or restore the folder 'checkpoint' from a backup"
        )
    return None, damaged


def _replay_start(
    files: Files, checkpoint: Checkpoint | None, segments: list[int], damaged: list[int]
) -> tuple[int, int]:
    if checkpoint is None:
        is_new = not segments and not damaged and not files.list_dir("vhosts")
        if not is_new and segments[:1] != [1]:
            reason = "no checkpoint can be read" if damaged else "there is no checkpoint"
            begin = f"begins with segment {segments[0]}" if segments else "is empty"
            raise StartupError(
                f"{reason}, and the journal {begin}: what came before is unknown. Restore the folders 'checkpoint' and"
                " 'journal' from a backup; 'penstock fsck' shows what is left"
            )
        return 0, 0
    header = checkpoint.header
    if segments and header.replay_pos == FIRST_BATCH_AT and header.replay_segment == segments[-1] + 1:
        # The next batch was to begin a segment, and never came.
        return segments[-1], _size(files, segment_path(JOURNAL_FOLDER, segments[-1]))
    if header.replay_segment not in segments:
        raise StartupError(
            f"{segment_path(JOURNAL_FOLDER, header.replay_segment)} is missing, where replay begins according to"
            f" {checkpoint_path(header.number)}. Restore the folder 'journal' from a backup"
        )
    return header.replay_segment, header.replay_pos


def _size(files: Files, path: str) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()


def _is_clean(checkpoint: Checkpoint | None, replaying: Replaying, end: ReplayEnd, segments: list[int]) -> bool:
    if checkpoint is None:
        # A new folder, in which nothing has happened.
        return not segments
    if not checkpoint.header.clean or replaying.rows_seen or end.torn or end.rotten:
        return False
    return segments[-1] < checkpoint.header.next_segment


def _kept(files: Files, newest: Checkpoint | None) -> list[CheckpointHeader]:
    """Return the checkpoint that was used, and the one before it."""
    if newest is None:
        return []
    kept = [newest.header]
    for number in reversed(checkpoint_numbers(files)):
        if number < newest.header.number and len(kept) == 1:
            try:
                kept.insert(0, read_header(files, number))
            except (BadCheckpoint, UnknownVersion):
                # It cannot be fallen back to, so nothing is kept for it.
                continue
    return kept


def _compare(header: CheckpointHeader, end: ReplayEnd, replaying: Replaying) -> None:
    """The journal may have lost its end after a checkpoint has seen it."""
    if header.replay_pos == FIRST_BATCH_AT:
        # A segment that had no batch yet says nothing about the LSN, and a crash may leave it empty.
        end.next_lsn = max(end.next_lsn, header.replay_lsn)
    if end.next_lsn < replaying.known_lsn:
        replaying.report.append(
            f"the journal ends with LSN {end.next_lsn}, but a checkpoint has seen it up to {replaying.known_lsn}: its"
            " end is damaged or was taken away. Bodies that were there are lost"
        )
        end.next_lsn = replaying.known_lsn


def _report_damage(end: ReplayEnd, report: list[str]) -> None:
    for torn in end.torn:
        report.append(
            f"{segment_path(JOURNAL_FOLDER, torn.segment)}: the last {torn.bytes} bytes, from {torn.pos} on, are a"
            f" batch that was never completed (LSN {torn.lsn} and on). Nothing in it was confirmed; they are cut off"
        )
    for rotten in end.rotten:
        report.append(
            f"{segment_path(JOURNAL_FOLDER, rotten.segment)}: {rotten.bytes} bytes at {rotten.pos} are damaged (LSN"
            f" {rotten.first_lsn} up to {rotten.next_lsn}). Messages that were published there are lost, and messages"
            f" that were settled there come back. The bytes are kept in {_quarantine_path(rotten.segment, rotten.pos)}"
        )


def _skip_files(files: Files, state: QueueState) -> None:
    """Go on behind the files that the last life left, so that none of its slots and records is taken for a new one."""
    folder = queue_folder(state.vhost_id, state.queue_id)
    newest = -1
    for name in files.list_dir(f"{folder}/idx") + files.list_dir(f"{folder}/qs"):
        digits = name.partition(".")[0]
        if digits.isascii() and digits.isdigit():
            newest = max(newest, int(digits))
    after = (newest + 1) * state.live.slots
    if after > state.next_seq_id:
        state.live.remove(state.next_seq_id, after - state.next_seq_id)
        state.next_seq_id = state.next_deliver_seq_id = after


# --- what must be done before the node works ------------------------------------------------------------


def settle(files: Files, recovered: Recovered) -> None:
    """Quarantine, cut, sync. What is there when it returns is there to stay."""
    end = recovered.end
    # Torn bytes are rubbish, unless a checkpoint knows better.
    ranges = [(torn.segment, torn.pos, torn.bytes) for torn in end.torn if torn.lsn < recovered.known_lsn]
    ranges += [(rotten.segment, rotten.pos, rotten.bytes) for rotten in end.rotten if rotten.bytes]
    for segment, pos, size in ranges:
        _quarantine(files, segment_path(JOURNAL_FOLDER, segment), pos, size, _quarantine_path(segment, pos))
    for number in recovered.damaged_checkpoints:
        path = checkpoint_path(number)
        _quarantine(files, path, 0, -1, f"{LOST_FOLDER}/{path.rpartition('/')[2]}")
    cut_torn_tail(files, JOURNAL_FOLDER, end)
    _sync_unproven(files, recovered.unproven)


def _quarantine_path(segment: int, pos: int) -> str:
    return f"{LOST_FOLDER}/{segment:08d}-{pos}.bin"


def _quarantine(files: Files, path: str, pos: int, size: int, target: str) -> None:
    file = _open_if_there(files, path)
    if file is None:
        return
    try:
        data = file.pread(file.size() if size < 0 else size, pos)
    finally:
        file.close()
    files.make_dir(LOST_FOLDER)
    write_file(files, target, data)


def _sync_unproven(files: Files, unproven: set[Reference]) -> None:
    """Sync bodies that a batch at the end of the journal refers to: they may be in the page cache only.

    So may be the names of their files and folders, which are synced with the first batch that refers to them.
    """
    for vhost_id, number in sorted({(vhost_id, address >> 32) for vhost_id, address in unproven}):
        file = _open_if_there(files, f"{shared_folder(vhost_id, True)}/{file_name(number, False)}")
        if file is not None:
            try:
                file.fdatasync()
            finally:
                file.close()
    for vhost_id in sorted({vhost_id for vhost_id, _ in unproven}):
        folder = shared_folder(vhost_id, True)
        while folder:
            if files.exists(folder):
                files.sync_dir(folder)
            folder = folder.rpartition("/")[0]


def _open_if_there(files: Files, path: str) -> File | None:
    try:
        return files.open(path)
    except FileNotFoundError:
        return None
