"""Ends a whole archive job by kill -9 at one point. The folder `PENSTOCK_TEST_JOB` says where, in `point.json`.

Every Python process of the job imports this file when it starts, because its folder is on their PYTHONPATH: the driver,
the process that counts offsets, the tasks, the one that commits. Without the variable it does nothing.

A job that has a JVM of its own dies with it. One that uses a JVM of others (`jvm.py`) loses every process but that
one, and what the JVM starts for it afterwards ends before it has done anything.

Which batch Spark is at is read from its checkpoint: offsets/n says that batch n was begun, commits/n that it is done.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

JOB = os.environ.get("PENSTOCK_TEST_JOB", "")
Condition = Callable[..., bool]


def asked() -> Any:
    """The point, the batch, the checkpoint, the sessions of the job's processes, and which of them are not its own."""
    return json.loads(Path(JOB, "point.json").read_text())


def end(point: str) -> None:
    """Everything at once, as if the machine were gone."""
    from tests.pipeline.spark_process import members

    job = asked()
    Path(JOB, "killed").write_text(f"{point} {job['batch']}")
    sessions = [int(Path(JOB, "driver").read_text()), *job["sessions"]]
    own = {*job["spared"], os.getpid()}
    while found := [pid for session in sessions for pid in members(session) if pid not in own]:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    os.kill(os.getpid(), signal.SIGKILL)


def end_if_dead() -> None:
    """In a process that a JVM has started after the death of its job."""
    if Path(JOB, "killed").exists():
        os.kill(os.getpid(), signal.SIGKILL)


def last(folder: str) -> int:
    path = Path(asked()["checkpoint"]) / folder
    if not path.is_dir():
        return -1
    return max((int(each.name) for each in path.iterdir() if each.name.isdigit()), default=-1)


def is_begun(*_: Any, **__: Any) -> bool:
    """Batch n is in the offset log, and not done."""
    return last("offsets") == asked()["batch"] and last("commits") == asked()["batch"] - 1


def is_next(*_: Any, **__: Any) -> bool:
    """Batch n comes next: it is not in the offset log, and the one before is done."""
    return last("offsets") == last("commits") == asked()["batch"] - 1


def is_done(*_: Any, **__: Any) -> bool:
    """Batch n is in the commit log, and the next one is not begun."""
    return last("offsets") == last("commits") == asked()["batch"]


def is_table(name: str) -> Condition:
    def condition(table: Any, files: Any, application: str, version: int) -> bool:
        return Path(table.folder).name == name and version == asked()["batch"]

    return condition


def is_manifest(path: Path, _: Any) -> bool:
    return path.name == "manifest.json" and path.parent.parent.name == "bronze" and is_begun()


def kill_at(owner: Any, name: str, before: str, after: str, condition: Condition) -> None:
    """Wrap a function: the job ends before its call, or after it, when the condition holds at that moment."""
    real = getattr(owner, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        point = asked()["point"]
        if before and before == point and condition(*args, **named):
            end(before)
        answer = real(*args, **named)
        if after and after == point and condition(*args, **named):
            end(after)
        return answer

    setattr(owner, name, wrapped)


def of_log(module: Any) -> None:
    kill_at(module.FolderLog, "set_cursor", "before the cursor", "after the cursor", is_begun)
    kill_at(module.FolderLog, "set_cursor", "before the last cursor", "after the last cursor", is_done)


def of_source(module: Any) -> None:
    # Spark: latestOffset, offset log, cursor of the batch before, partitions, tasks, commit of the sink, commit log.
    kill_at(module.LogStreamReader, "latestOffset", "after the commit log", "", is_done)
    kill_at(module.LogStreamReader, "latestOffset", "", "before the offset log", is_next)
    kill_at(module.LogStreamReader, "partitions", "after the offset log", "", is_begun)


def of_files(module: Any) -> None:
    kill_at(module._PendingFile, "finish", "in the middle of a file", "", is_begun)


def of_sink(module: Any) -> None:
    kill_at(module, "write_rows", "", "files written", is_begun)
    kill_at(module, "commit_rows", "before the commit of the sink", "before the commit log", is_begun)


def of_tables(module: Any) -> None:
    kill_at(module.LakeTable, "append", "before bronze", "after bronze", is_table("bronze"))
    kill_at(module.LakeTable, "append", "before poison", "after poison", is_table("poison"))


def of_disk(module: Any) -> None:
    # Plain Parquet: the files of the transaction are in their place, the manifest does not have them.
    kill_at(module, "replace_json", "before the manifest", "after the manifest", is_manifest)


class Installer:
    """Changes modules as they are imported. Importing them here would make the start of every process slow."""

    modules: ClassVar[dict[str, Callable[[Any], None]]] = {
        "penstock.history.folder_log": of_log,
        "penstock.pipeline.source.log_stream": of_source,
        "penstock.pipeline.lake.writing": of_files,
        "penstock.pipeline.lake.sink": of_sink,
        "penstock.pipeline.lake.table": of_tables,
        "penstock.pipeline.lake.durable": of_disk,
    }

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        change = self.modules.pop(name, None)
        if change is None:
            return None
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_change(module: Any) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


if JOB:
    end_if_dead()
    # Tasks are processes that a process of Spark has forked.
    os.register_at_fork(after_in_child=end_if_dead)
    sys.meta_path.insert(0, Installer())
