"""Imports the modules that the operator named on the command line, and makes the allow-list of them.

This is the one place that imports by name. Its callers are the command and programs that start a worker themselves;
nothing that came from a queue ever reaches it, and it is not used after the start."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from types import ModuleType

from penstock.worker.jobs.allow_list import AllowList, NotRunnable, Runnable, runnable_from
from penstock.worker.jobs.job import Job


def load_allow_list(apps: Iterable[str] = (), allowed: Iterable[str] = ()) -> AllowList:
    """Return the table for `--app MODULE` and `--allow [ALIAS=]MODULE:NAME`. Raises NotRunnable."""
    table = AllowList()
    for app in apps:
        for found in _jobs_of(_module(app)):
            table.allow(found)
    for spec in allowed:
        allow(table, spec)
    return table


def allow(table: AllowList, spec: str) -> list[Runnable]:
    """Add what one `--allow` names."""
    alias, equals, target = spec.rpartition("=")
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path) or (equals and not alias):
        raise NotRunnable(f"{spec!r}: write MODULE:NAME, MODULE:* or ALIAS=MODULE:NAME")
    module = _module(module_name)
    if path == "*":
        if alias:
            raise NotRunnable(f"{spec!r}: an alias is for one name, not for *")
        found = _public_of(module)
        if not found:
            raise NotRunnable(f"{spec!r}: {module_name} defines no public function and no class with a method perform")
    else:
        found = [runnable_from(target, _attribute(module, path, target))]
    for runnable in found:
        table.allow(runnable, alias or None)
    return found


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotRunnable(
                f"there is no module {name!r}; it is looked for in this folder and in PYTHONPATH"
            ) from error
        raise NotRunnable(f"module {name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise NotRunnable(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, path: str, target: str) -> object:
    found: object = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise NotRunnable(f"there is no {target!r}: {error}") from error
    return found


def _jobs_of(module: ModuleType) -> list[Runnable]:
    found = [runnable_from(value.name, value) for value in vars(module).values() if isinstance(value, Job)]
    if not found:
        raise NotRunnable(f"module {module.__name__!r} has no @job functions; use --allow for plain ones")
    return found


def _public_of(module: ModuleType) -> list[Runnable]:
    """What the module itself defines. What it only imported is not meant: `from os import system` allows nothing."""
    found = []
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Job):
            found.append(runnable_from(value.name, value))
        elif getattr(value, "__module__", None) == module.__name__ and (
            inspect.isfunction(value) or (inspect.isclass(value) and hasattr(value, "perform"))
        ):
            found.append(runnable_from(f"{module.__name__}:{name}", value))
    return found
