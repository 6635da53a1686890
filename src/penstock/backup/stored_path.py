"""The paths that a backup may hold: those of a data folder, and no others.

A backup comes from elsewhere, maybe from somebody else. A name in it is compared with these shapes before it is used,
so none leads out of the folder that is written.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.backup.backup_error import BackupError
from penstock.journal.format.layout import segment_path
from penstock.store.recovery.recovery import JOURNAL_FOLDER

_ID: Final = r"[0-9A-Za-z]{1,64}"
_SHAPES: Final = re.compile(
    r"journal/[0-9]{8,12}\.pnj"
    r"|checkpoint/[0-9]{8,12}\.ckpt"
    r"|audit/[0-9]{8,12}\.jsonl"
    rf"|vhosts/{_ID}/shared/persistent/[0-9]{{8,12}}(-c)?\.pms"
    rf"|vhosts/{_ID}/queues/{_ID}(-[0-9]{{1,3}})?/(idx/[0-9]{{8,20}}\.qi|qs/[0-9]{{8,20}}\.qs)"
)


def check_stored_path(path: object) -> str:
    """Return the path; raises BackupError when a data folder has no such file."""
    if not isinstance(path, str) or not _SHAPES.fullmatch(path):
        raise BackupError(f"the manifest names {str(path)[:200]!a}, which is no file of a data folder: do not use it")
    return path


def is_stored_path(path: str) -> bool:
    return _SHAPES.fullmatch(path) is not None


def is_shared_body_file(path: str) -> bool:
    return path.endswith(".pms")


def journal_path(number: int) -> str:
    return segment_path(JOURNAL_FOLDER, number)
