"""Which files of a chain of backups make a data folder at a chosen moment.

The checkpoint and the files of queues are those of one backup, the newest that begins before the moment. The journal
goes on through later backups of the chain, and so do the files with large messages, since messages that were published
after the first backup are in the later ones.

A file with large messages only grows, until nothing in it is wanted: then it is removed, or cut to its head. So the
largest copy has everything that any copy has, and of two that are equally large the later one: it may have been
written to where it had room.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import Manifest, StoredFile, StoredSegment
from penstock.backup.restoring.chain import Chain
from penstock.backup.stored_path import is_shared_body_file, journal_path


@dataclass(frozen=True, slots=True)
class Moment:
    """Up to where the journal counts: all of it, up to an LSN, or up to a time."""

    lsn: int | None = None
    wall_us: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    files: list[StoredFile]
    # Whose checkpoint is used.
    backup: Manifest
    moment: Moment


def make_plan(chain: Chain, moment: Moment) -> Plan:
    """Return what to copy; raises BackupError when the chain does not have the moment."""
    manifests = [link.manifest for link in chain.links]
    index = _begin_with(manifests, moment)
    start = manifests[index]
    last = index
    if moment.lsn is not None:
        while manifests[last].last_lsn < moment.lsn:
            last += 1
    elif moment.wall_us is not None:
        while manifests[last].last_us < moment.wall_us:
            last += 1
    segments = _segments(manifests[index : last + 1], moment, start)
    files = {file.path: file for file in start.files if not file.path.startswith("journal/")}
    for manifest in manifests[index + 1 : last + 1]:
        for file in manifest.files:
            if is_shared_body_file(file.path):
                known = files.get(file.path)
                if known is None or known.size <= file.size:
                    files[file.path] = file
    for _, file in segments:
        files[file.path] = file
    return Plan(list(files.values()), start, moment)


def _begin_with(manifests: list[Manifest], moment: Moment) -> int:
    """Return which backup has the checkpoint to begin with."""
    oldest, newest = manifests[0], manifests[-1]
    if moment.lsn is not None:
        begun = [index for index, manifest in enumerate(manifests) if manifest.first_lsn <= moment.lsn]
        if not begun or moment.lsn > newest.last_lsn:
            raise BackupError(
                f"LSN {moment.lsn} is not in the backup: it can be restored to LSNs from {oldest.first_lsn} to"
                f" {newest.last_lsn}"
            )
        return begun[-1]
    if moment.wall_us is not None:
        begun = [index for index, manifest in enumerate(manifests) if manifest.first_us <= moment.wall_us]
        if not begun or moment.wall_us > newest.last_us:
            raise BackupError(
                f"{shown_time(moment.wall_us)} is not in the backup: it can be restored to times from"
                f" {shown_time(oldest.first_us)} to {shown_time(newest.last_us)}"
            )
        return begun[-1]
    return len(manifests) - 1


def _segments(manifests: list[Manifest], moment: Moment, start: Manifest) -> list[tuple[StoredSegment, StoredFile]]:
    """Return the journal, each segment as the last of the backups has it; it must have no hole up to the moment."""
    found: dict[int, tuple[StoredSegment, StoredFile]] = {}
    for manifest in manifests:
        by_path = manifest.by_path()
        for segment in manifest.journal:
            file = by_path.get(journal_path(segment.number))
            if file is None:
                raise BackupError(f"the manifest of backup {manifest.id} misses {journal_path(segment.number)}")
            found[segment.number] = (segment, file)
    ordered = [found[number] for number in sorted(found)]
    if moment.lsn is not None:
        # A segment that begins there is empty, or comes later; that of the start is there in any case.
        first_numbers = {segment.number for segment in start.journal}
        ordered = [each for each in ordered if each[0].first_lsn < moment.lsn or each[0].number in first_numbers]
    for before, after in pairwise(ordered):
        if before[0].next_lsn < after[0].first_lsn and after[0].first_lsn > start.first_lsn:
            raise _hole(before[0].next_lsn)
    if moment.lsn is not None and ordered and ordered[-1][0].next_lsn < moment.lsn:
        raise _hole(ordered[-1][0].next_lsn)
    return ordered


def _hole(lsn: int) -> BackupError:
    return BackupError(
        f"the chain has no journal behind LSN {lsn}: it was removed before the next backup was made. Restore to a"
        " moment within one backup; `penstock backup verify` shows them"
    )


def shown_time(wall_us: int) -> str:
    """Return a wall clock for people, as `--to-time` takes it."""
    try:
        return datetime.fromtimestamp(wall_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{wall_us} µs"
