"""Checkpoint files: what a start needs to know so that it replays only the end of the journal.

The records of a file are the definitions, the names of queue numbers, and one state per durable queue
(docs/formats/checkpoint.md). A `CheckpointDraft` is written record by record under a name that no start reads, then
synced by the caller, then renamed, and the folder synced by the caller. The two newest good ones are kept.
`read_checkpoint` believes nothing that its checksums do not vouch for.

Invariants
  1. A file with a number as its name was synced before it got the name.
  2. Every record is covered by a checksum that also covers its place in the file and the file's salt, so that a piece
     of another checkpoint is never taken for a piece of this one.
  3. A checkpoint is good as a whole or not used at all: with a queue missing, its messages would be gone in silence.
  4. The journal is kept from the replay start of the older of the two on, and so are the bodies that it needs.

A crash leaves drafts that were not published; the next checkpoint overwrites and removes them.
"""

from __future__ import annotations

import struct
from typing import Final, final

from penstock.disk.checksum import crc32
from penstock.disk.files import File, Files, read_file, write_all
from penstock.store.node.queue_names import QueueName, parse_label
from penstock.store.queue.places import UnknownVersion
from penstock.store.queue.queue_state import BadState, QueueState, decode_state

FOLDER: Final = "checkpoint"
SUFFIX: Final = ".ckpt"
DRAFT_SUFFIX: Final = ".tmp"
KEPT: Final = 2

MAGIC: Final = b"PNCK"
VERSION: Final = 1
CLEAN: Final = 1

# magic, version, flags, salt, number, next queue number, wall ms, definitions LSN, replay segment, next segment,
# replay position, replay LSN, segment needed
_HEADER: Final = struct.Struct("<4sHHQIiqqiiqqq")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
# payload bytes, kind, crc
_RECORD: Final = struct.Struct("<IBI")
_SEED: Final = struct.Struct("<QQIB")
_NUMBER: Final = struct.Struct("<i")
# records before it, crc of their crcs
_FOOTER: Final = struct.Struct("<QI")

DEFINITIONS: Final = 1
NAME: Final = 2
STATE: Final = 3
FOOTER: Final = 4

# Records are gathered up to this size before they are written.
_WRITE_BYTES: Final = 256 * 1024


class BadCheckpoint(Exception):
    """The file cannot be used; the text says why."""


class UnreadableCheckpoint(BadCheckpoint):
    """The disk cannot read the file now. What is in it may be good, so it stays where it is."""


@final
class CheckpointHeader:
    """What stands in front."""

    __slots__ = (
        "clean",
        "definitions_lsn",
        "needed_segment",
        "next_queue_no",
        "next_segment",
        "number",
        "replay_lsn",
        "replay_pos",
        "replay_segment",
        "salt",
        "wall_ms",
    )

    def __init__(self, number: int, salt: int, wall_ms: int, clean: bool) -> None:
        self.number = number
        # Random: tells the pieces of two checkpoints apart.
        self.salt = salt
        self.wall_ms = wall_ms
        # Nothing came after it: the node was stopped. Believed only if the journal says so too.
        self.clean = clean
        # DEFINE rows below are contained in the definitions.
        self.definitions_lsn = 0
        # Where replay begins, and the LSN of the first row there.
        self.replay_segment = 1
        self.replay_pos = 0
        self.replay_lsn = 0
        # The segment that the next start opens. If there is one already, a broker was started after this checkpoint.
        self.next_segment = 1
        self.next_queue_no = 1
        # The oldest segment that holds a body which this checkpoint needs.
        self.needed_segment = 0

    def encode(self) -> bytes:
        head = _HEADER.pack(
            MAGIC,
            VERSION,
            CLEAN if self.clean else 0,
            self.salt,
            self.number,
            self.next_queue_no,
            self.wall_ms,
            self.definitions_lsn,
            self.replay_segment,
            self.next_segment,
            self.replay_pos,
            self.replay_lsn,
            self.needed_segment,
        )
        return head + _CRC.pack(crc32(head))


@final
class Checkpoint:
    __slots__ = ("definitions", "header", "names", "states")

    def __init__(self, header: CheckpointHeader) -> None:
        self.header = header
        self.definitions = b""
        self.names: list[tuple[int, QueueName]] = []
        self.states: list[QueueState] = []


def checkpoint_path(number: int) -> str:
    return f"{FOLDER}/{number:08d}{SUFFIX}"


def checkpoint_numbers(files: Files) -> list[int]:
    """Return numbers of the published ones, oldest first."""
    names = [name.removesuffix(SUFFIX) for name in files.list_dir(FOLDER) if name.endswith(SUFFIX)]
    return sorted([int(name) for name in names if name.isascii() and name.isdigit()])


@final
class CheckpointDraft:
    """A checkpoint that is being written. The header comes last, into the room in front."""

    __slots__ = ("_checksums", "_file", "_files", "_pieces", "_pieces_bytes", "_pos", "count", "header", "path")

    def __init__(self, files: Files, header: CheckpointHeader) -> None:
        self.header = header
        self.path = checkpoint_path(header.number) + DRAFT_SUFFIX
        self.count = 0
        self._files = files
        self._checksums = 0
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._pos = HEADER_BYTES
        files.unlink(self.path)
        self._file = files.create(self.path)

    def add(self, kind: int, payload: bytes) -> None:
        crc = _record_crc(self.header.salt, self.count, kind, payload)
        self._checksums = crc32(_CRC.pack(crc), self._checksums)
        self.count += 1
        self._pieces.append(_RECORD.pack(len(payload), kind, crc))
        self._pieces.append(payload)
        self._pieces_bytes += _RECORD.size + len(payload)
        if self._pieces_bytes >= _WRITE_BYTES:
            self._write()

    def add_name(self, number: int, name: QueueName) -> None:
        self.add(NAME, _NUMBER.pack(number) + name.label())

    def finish(self) -> File:
        """Write the rest; the caller has the file synced, and then publishes."""
        self.add(FOOTER, _FOOTER.pack(self.count, self._checksums))
        self._write()
        write_all(self._file, [self.header.encode()], 0)
        return self._file

    def publish(self) -> File:
        """The file is synced: give it its name. The caller has the folder synced that is returned, and closes it."""
        folder = self._files.open_folder(FOLDER)
        try:
            self._file.close()
            self._files.rename(self.path, checkpoint_path(self.header.number))
        except OSError:
            folder.close()
            raise
        return folder

    def give_up(self) -> None:
        """Leave no trace, as far as the disk lets us."""
        try:
            self._file.close()
            self._files.unlink(self.path)
        except OSError:
            # Nothing reads it, and the next draft removes it.
            return

    def _write(self) -> None:
        self._pos = write_all(self._file, self._pieces, self._pos)
        self._pieces = []
        self._pieces_bytes = 0


def _record_crc(salt: int, index: int, kind: int, payload: bytes) -> int:
    return crc32(payload, crc32(_SEED.pack(salt, index, len(payload), kind)))


def read_header(files: Files, number: int) -> CheckpointHeader:
    """Return the header alone; raises BadCheckpoint."""
    try:
        file = files.open(checkpoint_path(number))
        try:
            return _header_of(file.pread(HEADER_BYTES, 0), number)
        finally:
            file.close()
    except OSError as error:
        raise UnreadableCheckpoint(f"it cannot be read: {error}") from error


def read_checkpoint(files: Files, number: int) -> Checkpoint:
    """Return the whole checkpoint; raises BadCheckpoint when any of it is damaged, UnknownVersion when it is newer."""
    try:
        data = read_file(files, checkpoint_path(number))
    except OSError as error:
        raise UnreadableCheckpoint(f"it cannot be read: {error}") from error
    checkpoint = Checkpoint(_header_of(data[:HEADER_BYTES], number))
    definitions: list[bytes] = []
    for kind, payload in read_records(data, checkpoint.header.salt):
        if kind == DEFINITIONS:
            definitions.append(payload)
        elif kind == NAME:
            queue_no, label = split_name(payload)
            name = parse_label(label)
            if name is None:
                raise BadCheckpoint("the name of a queue is malformed")
            checkpoint.names.append((queue_no, name))
        elif kind == STATE:
            try:
                checkpoint.states.append(decode_state(payload))
            except BadState as error:
                raise BadCheckpoint(str(error)) from error
        else:
            raise BadCheckpoint(f"it has a record of the unknown kind {kind}")
    checkpoint.definitions = b"".join(definitions)
    return checkpoint


def split_name(payload: bytes) -> tuple[int, bytes]:
    """Number and label of a NAME record."""
    if len(payload) < _NUMBER.size:
        raise BadCheckpoint("the name of a queue is malformed")
    return _NUMBER.unpack_from(payload, 0)[0], payload[_NUMBER.size :]


def _header_of(data: bytes, number: int) -> CheckpointHeader:
    header = decode_header(data)
    if header.number != number:
        raise BadCheckpoint(f"it is checkpoint {header.number} under another name")
    return header


def decode_header(data: bytes) -> CheckpointHeader:
    """Return the header at the beginning of a file; raises BadCheckpoint, or UnknownVersion."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        raise BadCheckpoint("it does not begin like a checkpoint")
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        raise BadCheckpoint("the header is damaged")
    fields = _HEADER.unpack_from(data, 0)
    if fields[1] != VERSION:
        raise UnknownVersion(
            f"{checkpoint_path(fields[4])} has format version {fields[1]}, and this penstock reads version {VERSION}:"
            " start the version of penstock that wrote it, or upgrade this one"
        )
    header = CheckpointHeader(fields[4], fields[3], fields[6], bool(fields[2] & CLEAN))
    header.next_queue_no = fields[5]
    header.definitions_lsn = fields[7]
    header.replay_segment, header.next_segment = fields[8], fields[9]
    header.replay_pos, header.replay_lsn = fields[10], fields[11]
    header.needed_segment = fields[12]
    return header


def read_records(data: bytes, salt: int) -> list[tuple[int, bytes]]:
    """(kind, payload) of every record, checked up to the footer, which is left out."""
    records: list[tuple[int, bytes]] = []
    checksums = 0
    pos = HEADER_BYTES
    while True:
        if pos + _RECORD.size > len(data):
            raise BadCheckpoint("it ends before its footer")
        size, kind, crc = _RECORD.unpack_from(data, pos)
        payload = data[pos + _RECORD.size : pos + _RECORD.size + size]
        if len(payload) != size or crc != _record_crc(salt, len(records), kind, payload):
            raise BadCheckpoint(f"record {len(records)} at byte {pos} is damaged")
        pos += _RECORD.size + size
        if kind == FOOTER:
            break
        checksums = crc32(_CRC.pack(crc), checksums)
        records.append((kind, payload))
    if payload != _FOOTER.pack(len(records), checksums) or pos != len(data):
        raise BadCheckpoint("the footer does not fit to the records")
    return records
