"""How far refinement is: `refine.json`, `refine.next.json` and the open lives, in the lake's own folder.

`refine.json` is replaced last in each version, and points to the files of lives that are open behind it. What is to be
done next is noted in `refine.next.json` before anything is written. So after a crash the same range is refined again
under the same version, and the tables leave what they have.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table_file import LakeError, NewFile

APPLICATION: Final = "refine"


@dataclass(frozen=True, slots=True)
class Refined:
    """What is done. Version 0 is the beginning: nothing."""

    # Everything below is in silver and gold, or among the open lives.
    lsn: int = 0
    version: int = 0
    # Folder of the open lives, in the folder of refinement, and the files in it that count: tasks may have left others.
    open: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A version that was begun: the range [lsn, to) of bronze."""

    version: int
    lsn: int
    to: int


def folder_of(lake: Lake) -> Path:
    return lake.own / APPLICATION


def refined(lake: Lake) -> Refined:
    """What is done. LakeError when the tables know of more: then progress was lost, and going on would do harm."""
    found = _read(folder_of(lake) / "refine.json")
    done = Refined() if found is None else Refined(**{**found, "files": tuple(found["files"])})
    plan = planned(lake)
    known = done.version if plan is None else max(done.version, plan.version)
    for name in ("silver", "gold"):
        table = lake.table(name)
        if table.exists() and table.version_of(APPLICATION) > known:
            raise LakeError(
                f"the table {name} of {lake.path} has more than {folder_of(lake) / 'refine.json'} says: the file is of"
                " another time. Bring back the right one, or remove silver, gold and that folder, and refine anew"
            )
    return done


def planned(lake: Lake) -> Planned | None:
    """Return the version that was begun last; it may be done."""
    found = _read(folder_of(lake) / "refine.next.json")
    return None if found is None else Planned(**found)


def plan(lake: Lake, step: Planned) -> None:
    """The version is begun: from now on it is this range, or none."""
    durable.replace_json(folder_of(lake) / "refine.next.json", asdict(step))


def finish(lake: Lake, done: Refined) -> None:
    """The version is done. Open lives of others are removed."""
    durable.replace_json(folder_of(lake) / "refine.json", asdict(done))
    for path in folder_of(lake).iterdir():
        if path.is_dir() and path.name != done.open:
            shutil.rmtree(path, ignore_errors=True)


def keep_open_lives(lake: Lake, version: int, files: Sequence[NewFile]) -> tuple[str, ...]:
    """Give the files of tasks the names by which `refine.json` knows them."""
    folder = folder_of(lake) / str(version)
    durable.make_folder(folder)
    names = []
    for file in files:
        source = folder / file.path
        names.append(f"{source.stem}.parquet")
        durable.move(source, folder / names[-1])
    return tuple(names)


def open_life_files(lake: Lake, done: Refined) -> list[str]:
    """Return paths of the files of open lives."""
    return [str(folder_of(lake) / done.open / name) for name in done.files]


def count_open(lake: Lake, done: Refined) -> int:
    """Return how many lives are open."""
    return sum(pq.read_metadata(path).num_rows for path in open_life_files(lake, done))


def only_one(lake: Lake) -> AbstractContextManager[None]:
    """Two refinements of one lake would do the same work twice."""
    complaint = f"the lake {lake.path} is being refined by another process; there can be one"
    return durable.only_one(lake.own / "refine.lock", complaint)


def _read(path: Path) -> dict[str, Any] | None:
    found = durable.read_json(path)
    if found is not None and not (isinstance(found, dict) and isinstance(found.get("version"), int)):
        raise LakeError(f"{path} is damaged: bring back the right one, or remove silver, gold and its folder")
    return found
