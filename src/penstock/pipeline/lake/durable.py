"""Small steps on disk that survive a crash: replace a file, move one, remove one.

Every change that a table or a lake makes to its folder goes through here, so the list of functions is the list of
points at which a crash can fall between two steps. Each step is whole or has not happened, and is on disk when it
returns.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.pipeline.lake.table_file import LakeError


def sync_folder(folder: Path) -> None:
    """Names that came, went or changed in the folder are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """What was written to the file is durable; its name is not yet."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """The folder is there, and its name is durable. One that is made here is its owner's alone: messages are in it."""
    if not path.is_dir():
        # One after the other: the name of each must last.
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def replace_json(path: Path, value: Any) -> None:
    """The file has this value, and before it had the old one or was not there: a part is never seen."""
    draft = _draft(path, value)
    os.replace(draft, path)
    sync_folder(path.parent)


def create_json(path: Path, value: Any) -> bool:
    """As `replace_json`, for a file that is not there; False, and nothing done, when another process was faster."""
    draft = _draft(path, value)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    sync_folder(path.parent)
    return True


def read_json(path: Path) -> Any:
    """Return the value of the file; None when there is no such file. LakeError when it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise LakeError(f"{path} is damaged: bring it back from a copy of the lake") from None


def move(source: Path, target: Path) -> None:
    """The file has the other name. Moving what was moved already is fine: steps are repeated after a crash."""
    try:
        os.replace(source, target)
    except FileNotFoundError:
        if not target.exists():
            raise
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """The file is gone; so it may be already."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def _draft(path: Path, value: Any) -> Path:
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(value, indent=1, sort_keys=True), encoding="utf-8")
    sync_file(draft)
    return draft


@contextmanager
def only_one(path: Path, complaint: str) -> Iterator[None]:
    """Hold the lock file: LakeError with this complaint if another process has it. It goes with the process."""
    make_folder(path.parent)
    with open(path, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeError(complaint) from None
        yield
