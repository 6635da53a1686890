"""The cursors of history's readers, and the id of the log: the folder `readers` of a data folder.

A *reader* is a name; its *cursor* is an LSN below which it has put every event somewhere safe. Retention keeps what a
reader has not read (`store.retention`).

Each reader has a small file, `readers/<first 32 hex digits of the name's SHA-256>.json`: a person chose the name, so it
is in the file and never in a path. The reader writes the file itself, with a broker or without; a broker reads it after
each checkpoint. `readers/log-id` has 32 hex digits that differ between data folders; the first start of a broker makes
it.

Invariants
  1. A cursor only grows. One name has one writer: of two, the one that is behind may set it back to its own place.
  2. A file is replaced by rename and is always whole. Each writer has a draft of its own, so two do not mix theirs.
  3. There are never more than READERS_MAX readers, as far as they are made one after the other.
  4. A file that is not a cursor, or not that of the name in it, is named and counts for nothing. A file that cannot be
     read raises: its reader may need everything.

A crash leaves the old cursor or the new one, and maybe a draft, which the next write of the same reader removes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Final, final

from penstock.disk.files import Files, read_file, write_all, write_file

FOLDER: Final = "readers"
LOG_ID_PATH: Final = "readers/log-id"
READERS_MAX: Final = 100
NAME_CHARACTERS_MAX: Final = 128
LSN_MAX: Final = 2**63 - 1
_HEX: Final = "0123456789abcdef"
_DIGEST_DIGITS: Final = 32
_LOG_ID: Final = "log-id"
_LOG_ID_DIGITS: Final = 32
_LOG_ID_BITS: Final = 128
# A name of 128 characters, each written as two escapes of six, fits twice.
_FILE_BYTES_MAX: Final = 4096
_ENDING: Final = ".json"
_DRAFT_ENDING: Final = ".tmp"


class ReaderRefused(Exception):
    """A name that is not allowed, or a reader too many. The text is for people, and says what to do next."""


@final
class ReaderCursor:
    """How far a reader has got."""

    __slots__ = ("lsn", "name", "updated_us")

    def __init__(self, name: str, lsn: int, updated_us: int) -> None:
        self.name = name
        # Everything below is safe with the reader.
        self.lsn = lsn
        # Wall clock of the last move, µs.
        self.updated_us = updated_us


def check_name(name: str) -> None:
    """Raises ReaderRefused when no reader can be called that."""
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise ReaderRefused(
            f"a reader's name has 1 to {NAME_CHARACTERS_MAX} characters, and this one has {len(name)}: choose another"
        )
    if not name.isprintable():
        raise ReaderRefused(f"the reader's name {name!a} has a character that cannot be printed: choose another")


def cursor_path(name: str) -> str:
    return f"{FOLDER}/{_digest(name)}{_ENDING}"


def read_cursors(files: Files) -> tuple[list[ReaderCursor], list[str]]:
    """All cursors by name, and the paths of files that are damaged or none of ours. OSError as in invariant 4."""
    cursors: list[ReaderCursor] = []
    strange: list[str] = []
    for file_name in files.list_dir(FOLDER):
        if file_name == _LOG_ID or file_name.endswith(_DRAFT_ENDING):
            continue
        path = f"{FOLDER}/{file_name}"
        try:
            cursor = _read_cursor(files, path) if _is_cursor(file_name) else None
        except FileNotFoundError:
            # Forgotten meanwhile.
            continue
        if cursor is None:
            strange.append(path)
        else:
            cursors.append(cursor)
    cursors.sort(key=_name_of)
    return cursors, strange


def read_cursor(files: Files, name: str) -> ReaderCursor | None:
    """One cursor; None when the reader is not known or its file is damaged."""
    check_name(name)
    try:
        return _read_cursor(files, cursor_path(name))
    except FileNotFoundError:
        return None


def write_cursor(files: Files, name: str, lsn: int, updated_us: int) -> bool:
    """Move a cursor, and make the reader if it is new; durable when this returns. False when it was there already.

    Raises ReaderRefused, and OSError.
    """
    check_name(name)
    if not 0 <= lsn <= LSN_MAX:
        raise ReaderRefused(f"{lsn} is not a position in a log: give a number from 0 to {LSN_MAX}")
    digest = _digest(name)
    file_names = files.list_dir(FOLDER)
    if digest + _ENDING in file_names:
        before = read_cursor(files, name)
        if before is not None and before.lsn >= lsn:
            return False
    elif len([file_name for file_name in file_names if file_name.endswith(_ENDING)]) >= READERS_MAX:
        raise ReaderRefused(
            f"there are {READERS_MAX} readers already: forget one that is not used any more with"
            " `penstock history forget NAME`"
        )
    if not file_names:
        files.make_dir(FOLDER)
        files.sync_dir("")
    for file_name in file_names:
        if _is_draft(digest, file_name):
            files.unlink(f"{FOLDER}/{file_name}")
    text = json.dumps({"name": name, "lsn": lsn, "updated_us": updated_us})
    _replace(files, f"{FOLDER}/{digest}-{lsn}-{updated_us}{_DRAFT_ENDING}", cursor_path(name), text.encode())
    return True


def forget_cursor(files: Files, name: str) -> bool:
    """The reader is gone and holds nothing any more; False when it was not known."""
    check_name(name)
    digest = _digest(name)
    found = False
    for file_name in files.list_dir(FOLDER):
        is_cursor = file_name == digest + _ENDING
        if is_cursor or _is_draft(digest, file_name):
            files.unlink(f"{FOLDER}/{file_name}")
            found = found or is_cursor
    if found:
        files.sync_dir(FOLDER)
    return found


def log_id(files: Files) -> str:
    """Return the id of the log in this folder; empty when it has none yet, or it is damaged."""
    try:
        text = read_file(files, LOG_ID_PATH).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    is_id = len(text) == _LOG_ID_DIGITS and not text.strip(_HEX)
    return text if is_id else ""


def make_log_id(files: Files, random: Callable[[int], int]) -> str:
    """Give the log an id. `random` takes a number of bits."""
    text = f"{random(_LOG_ID_BITS):032x}"
    files.make_dir(FOLDER)
    files.sync_dir("")
    write_file(files, LOG_ID_PATH, text.encode() + b"\n")
    return text


def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]


def _is_cursor(file_name: str) -> bool:
    """Return whether a reader may have it. Others are never opened: what they are called may not even be a path."""
    stem = file_name.removesuffix(_ENDING)
    return len(stem) == _DIGEST_DIGITS and stem != file_name and not stem.strip(_HEX)


def _is_draft(digest: str, file_name: str) -> bool:
    if not file_name.startswith(digest + "-") or not file_name.endswith(_DRAFT_ENDING):
        return False
    return not file_name[len(digest) : -len(_DRAFT_ENDING)].strip("-0123456789")


def _name_of(cursor: ReaderCursor) -> str:
    return cursor.name


def _read_cursor(files: Files, path: str) -> ReaderCursor | None:
    """None when the file is not a cursor, or that of another name."""
    file = files.open(path)
    try:
        data = file.pread(_FILE_BYTES_MAX + 1, 0)
    finally:
        file.close()
    if len(data) > _FILE_BYTES_MAX:
        return None
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    name = fields.get("name")
    lsn = _number(fields.get("lsn"))
    updated_us = _number(fields.get("updated_us"))
    if not isinstance(name, str) or lsn < 0 or updated_us < 0:
        return None
    try:
        check_name(name)
    except ReaderRefused:
        return None
    return ReaderCursor(name, lsn, updated_us) if cursor_path(name) == path else None


def _number(value: object) -> int:
    """Return a number that can be an LSN or a time; -1 when it is none."""
    # A bool is an int, and no number.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LSN_MAX:
        return -1
    return value


def _replace(files: Files, draft: str, path: str, data: bytes) -> None:
    """Like `write_file`, with a draft of its own."""
    file = files.create(draft)
    try:
        write_all(file, [data], 0)
        file.fdatasync()
    except OSError:
        file.close()
        files.unlink(draft)
        raise
    file.close()
    files.rename(draft, path)
    files.sync_dir(FOLDER)
