"""What a backup says about itself: `manifest.json`, written last.

    {"manifest": {…}, "sha256": "…"}

The checksum is that of the manifest as canonical JSON: keys sorted, no spaces, ASCII. docs/formats/backup.md has the
fields. Whatever is read here is checked before it is used; what a later version adds is passed over.

Invariants
  1. A backup without a manifest is incomplete, and is not used.
  2. `first_lsn` and `last_lsn` are ends of batches. The backup's own files can be restored to each end of a batch
     between them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final

from penstock.backup.backup_error import BackupError
from penstock.backup.stored_path import check_stored_path

VERSION: Final = 1
MANIFEST_NAME: Final = "manifest.json"
# Some millions of files.
MANIFEST_BYTES_MAX: Final = 1 << 30
_NUMBER_MAX: Final = 2**63 - 1
_HEX: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the data folder, and which backup of the chain has its bytes."""

    path: str
    size: int
    sha256: str
    backup_id: str


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """What a journal segment of the backup holds: the events from `first_lsn` up to `next_lsn`."""

    number: int
    first_lsn: int
    next_lsn: int


@dataclass(frozen=True, slots=True)
class BaseBackup:
    """The backup that an incremental one adds to. `path` leads there from the folder that this one is in."""

    id: str
    manifest_sha256: str
    path: str


@dataclass(slots=True)
class Manifest:
    id: str
    made_us: int
    penstock_version: str
    data_format: str
    log_id: str
    # Of a broker that was running.
    online: bool
    # 0: the folder has none yet.
    checkpoint: int
    first_lsn: int
    last_lsn: int
    # Wall clock of the batch that ends with the first LSN, and of the moment at which the last one was the last.
    first_us: int
    last_us: int
    base: BaseBackup | None = None
    journal: list[StoredSegment] = field(default_factory=list)
    files: list[StoredFile] = field(default_factory=list)

    def by_path(self) -> dict[str, StoredFile]:
        return {file.path: file for file in self.files}

    def encode(self) -> bytes:
        body = {"format": VERSION, "product": "penstock", **asdict(self)}
        return json.dumps({"manifest": body, "sha256": _digest(body)}, indent=1).encode() + b"\n"

    def digest(self) -> str:
        return _digest({"format": VERSION, "product": "penstock", **asdict(self)})


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Return what `Manifest.encode` made; raises BackupError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BackupError(f"{where} has a manifest that is not JSON: it is damaged, or not a backup") from None
    body = document.get("manifest") if isinstance(document, dict) else None
    if not isinstance(body, dict):
        raise BackupError(f"{where} has a manifest that is not one of penstock's")
    version = body.get("format")
    if isinstance(version, int) and version > VERSION:
        raise BackupError(
            f"{where} has backup format {version}, and this penstock reads up to {VERSION}: use the version that made"
            f" it ({str(body.get('penstock_version'))[:40]!a}), or a later one"
        )
    if version != VERSION or document.get("sha256") != _digest(body):
        raise BackupError(f"the manifest of {where} is damaged: its checksum is wrong. Use another copy")
    try:
        return _manifest(body)
    except (KeyError, TypeError, ValueError) as error:
        raise BackupError(f"the manifest of {where} is malformed: {str(error)[:100]!a}") from None


def _manifest(body: dict[str, Any]) -> Manifest:
    base = body["base"]
    return Manifest(
        id=_hex(body["id"], 32),
        made_us=_number(body["made_us"]),
        penstock_version=_text(body["penstock_version"]),
        data_format=_text(body["data_format"]),
        log_id=_text(body["log_id"]),
        online=bool(body["online"]),
        checkpoint=_number(body["checkpoint"]),
        first_lsn=_number(body["first_lsn"]),
        last_lsn=_number(body["last_lsn"]),
        first_us=_number(body["first_us"]),
        last_us=_number(body["last_us"]),
        base=None
        if base is None
        else BaseBackup(_hex(base["id"], 32), _hex(base["manifest_sha256"], 64), _text(base["path"])),
        journal=[
            StoredSegment(_number(each["number"]), _number(each["first_lsn"]), _number(each["next_lsn"]))
            for each in body["journal"]
        ],
        files=_unique(
            [
                StoredFile(
                    check_stored_path(each["path"]),
                    _number(each["size"]),
                    _hex(each["sha256"], 64),
                    _hex(each["backup_id"], 32),
                )
                for each in body["files"]
            ]
        ),
    )


def _unique(files: list[StoredFile]) -> list[StoredFile]:
    if len({file.path for file in files}) != len(files):
        raise ValueError("a file is named twice")
    return files


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!a} is not a number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise ValueError("a text is missing, or too long")
    return value


def _hex(value: object, digits: int) -> str:
    if not isinstance(value, str) or len(value) != digits or value.strip(_HEX):
        raise ValueError(f"{value!a} is not {digits} hex digits")
    return value


def _digest(body: dict[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
