"""Compiles the modules of the hot path with mypyc, from the same source, into a folder of their own.

    python tools/compile.py               build if need be; print the folder that goes in front of the path
    python tools/compile.py --required    the same, and fail where that cannot be done

Nothing is put beside the source: `build/compiled/<key>` has the libraries, and links to everything else of the source,
so that a change of a module that is not compiled counts at once. The key is made from the content of every module that
is compiled or that these import, of Python, mypyc, the compiler and this file: who changes one of them gets a new
folder, and a stale library is never loaded (docs/decisions/0018). `tools/wheel_hook.py` takes the libraries from here.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src"
PLACE: Final = ROOT / "build" / "compiled"

# What a message passes through, chosen by profiles of `python -m benches profile`. A class that one of them inherits
# from is compiled too. What is not here takes part as it is: a plain module of Python.
MODULES: Final = (
    "message clock",
    "wire/content wire/frames wire/mixed_run wire/octets wire/properties wire/property_edits wire/property_shapes",
    "wire/tables",
    "routing",
    "journal/entries journal/format journal/journal journal/segment",
    "store/node/node_store store/queue/live_map store/queue/stored_queue",
    "backing/backing_queue backing/nothing_yet backing/outcomes backing/volatile",
    "backing/variable/homes backing/variable/owed_confirms backing/variable/paging backing/variable/pending_acks",
    "backing/variable/picking backing/variable/put_back backing/variable/rates backing/variable/tail",
    "backing/variable/variable backing/zones",
    "queues/arrivals queues/consumers queues/queue queues/queue_owner",
    "queues/settling queues/taking",
    "broker/vhost/direct_reply broker/vhost/route_memory",
    "server/channel/channel server/channel/confirms server/channel/delivery server/channel/publishing",
    "server/channel/queue_consumer server/channel/subscription server/channel/unacked",
    "server/connection/connection server/connection/dispatch server/connection/reader",
    "server/settling/settlements server/settling/sliced server/settling/span_slices",
    "server/turn/flow server/turn/parse_turns server/turn/scheduler server/turn/store_turns",
)
# The library; every compiled module is a door into it.
LIBRARY: Final = "penstock_compiled"
# Of gcc and clang. The doors are a few lines each.
OPTIMISED: Final = "1"
# Folders of earlier sources that stay, for who goes back and forth.
KEPT_MAX: Final = 4


class NotPossible(Exception):
    """It cannot be compiled here; the text says why."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--required", action="store_true", help="fail where it cannot be compiled")
    options = parser.parse_args()
    try:
        folder, seconds = compiled()
    except NotPossible as error:
        if options.required:
            sys.exit(f"not compiled: {error}")
        say(f"penstock runs interpreted, and slower: {error}")
        print(SOURCE)
        return
    built = f"built in {seconds:.0f} s" if seconds else "nothing to build"
    say(f"penstock runs compiled: {folder.relative_to(ROOT)} ({built})")
    print(folder)


def compiled() -> tuple[Path, float]:
    """Return the folder with the compiled modules and all others, and the seconds that its build took, 0 for none."""
    began = time.monotonic()
    files = modules()
    folder = PLACE / key(files)
    is_new = not (folder / "made").exists()
    if is_new:
        PLACE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PLACE, prefix="half-") as half:
            libraries = Path(half) / "lib"
            compile_into(libraries, Path(half) / "c", files)
            link_source(libraries, SOURCE)
            (libraries / "made").touch()
            # Another one may have been as fast.
            with contextlib.suppress(OSError):
                libraries.rename(folder)
        remove_old(folder)
    link_source(folder, SOURCE)
    (folder / "made").touch()
    return folder, time.monotonic() - began if is_new else 0.0


def modules() -> list[Path]:
    """The files to compile."""
    found: list[Path] = []
    for name in " ".join(MODULES).split():
        path = SOURCE / "penstock" / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        found += [file for file in files if file.name != "__init__.py"]
    return found


def libraries(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every library in the folder, and where it belongs in a package."""
    for path in sorted(folder.rglob("*" + suffix())):
        yield path, path.relative_to(folder).as_posix()


def suffix() -> str:
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


# --- the key ----------------------------------------------------------------------------------------


def key(files: list[Path]) -> str:
    """A name for what would be built now."""
    digest = hashlib.sha256()
    for word in (
        sys.version,
        suffix(),
        mypyc_version(),
        compiler_version(),
        Path(__file__).read_text(encoding="utf-8"),
    ):
        digest.update(word.encode() + b"\0")
    for path in sorted(with_imports(files)):
        digest.update(path.relative_to(SOURCE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def with_imports(files: list[Path]) -> set[Path]:
    """The files, and the modules of penstock that they import, directly or not: constants and types come from those."""
    found = set(files)
    to_look = list(files)
    while to_look:
        for path in imported(to_look.pop()):
            if path not in found:
                found.add(path)
                to_look.append(path)
    return found


def imported(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            path = SOURCE.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("penstock.") and path.exists():
                yield path


def mypyc_version() -> str:
    try:
        return version("mypy")
    except PackageNotFoundError:
        raise NotPossible("mypyc is not installed (pip install 'mypy[mypyc]')") from None


def compiler_version() -> str:
    if sys.platform == "win32":
        return ""
    command = c_compiler()
    try:
        found = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise NotPossible(f"there is no C compiler ({command[0]})") from None
    return found.stdout


def c_compiler() -> list[str]:
    return str(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()


# --- the build --------------------------------------------------------------------------------------


def compile_into(libraries: Path, scratch: Path, files: list[Path]) -> None:
    """Compile the files; the libraries are laid out as packages are."""
    with Progress(f"compiling {len(files)} modules, once") as progress:
        try:
            extensions = extensions_of(files, scratch)
        except ImportError as error:
            raise NotPossible(str(error)) from None
        sources = [(extension, source) for extension in extensions for source in extension.sources]
        progress.of(len(sources) + len(extensions))
        from setuptools import Distribution
        from setuptools.command.build_ext import build_ext

        command = build_ext(Distribution())
        command.finalize_options()
        compiler = new_compiler()
        include = sysconfig.get_path("include")

        def to_object(work: tuple[Any, str]) -> tuple[str, list[str]]:
            extension, source = work
            optimised = [*extension.extra_compile_args]
            if not extension.name.endswith("__mypyc"):
                optimised = [flag.replace(f"-O{OPTIMISED}", "-O0") for flag in optimised]
            objects = compiler.compile(
                [source],
                output_dir=str(scratch),
                include_dirs=[include, *extension.include_dirs],
                extra_postargs=optimised,
            )
            progress.step()
            return extension.name, objects

        def to_library(extension: Any) -> None:
            path = libraries.joinpath(*extension.name.split(".")).with_suffix(suffix())
            path.parent.mkdir(parents=True, exist_ok=True)
            compiler.link_shared_object(
                objects[extension.name],
                str(path),
                export_symbols=command.get_export_symbols(extension),
                build_temp=str(scratch),
            )
            progress.step()

        # The largest first, so that none of them is alone at the end.
        sources.sort(key=lambda work: -Path(work[1]).stat().st_size)
        objects: dict[str, list[str]] = {}
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for name, made in pool.map(to_object, sources):
                objects.setdefault(name, []).extend(made)
            list(pool.map(to_library, extensions))


def extensions_of(files: list[Path], scratch: Path) -> list[Any]:
    """Have mypyc write C."""
    import setuptools  # noqa: F401  must come before mypyc, which takes its compiler from there
    from mypyc.build import mypycify

    paths = [str(path.relative_to(SOURCE)) for path in files]
    # Types are checked by `make types`; here packages may be missing that only others need.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--no-incremental"]
    words = io.StringIO()
    try:
        with contextlib.chdir(SOURCE), contextlib.redirect_stdout(words):
            return mypycify(
                [*options, *paths],
                only_compile_paths=paths,
                multi_file=True,
                opt_level=OPTIMISED,
                debug_level="0",
                target_dir=str(scratch),
                group_name=LIBRARY,
            )
    except SystemExit as error:
        raise SystemExit(f"mypyc does not take the source:\n{words.getvalue()}") from error


def new_compiler() -> Any:
    """The compiler of setuptools, as it is set up for this Python."""
    from setuptools._distutils import ccompiler
    from setuptools._distutils.sysconfig import customize_compiler

    compiler = ccompiler.new_compiler()
    customize_compiler(compiler)
    if hasattr(compiler, "initialize"):
        compiler.initialize()
    return compiler


# --- the folder -------------------------------------------------------------------------------------


def link_source(folder: Path, source: Path) -> None:
    """Put links to everything in the source beside the libraries; take those away that lead nowhere."""
    folder.mkdir(exist_ok=True)
    for path in list(folder.iterdir()):
        if path.is_symlink() and not path.exists():
            path.unlink()
    for path in source.iterdir():
        if path.name == "__pycache__":
            continue
        place = folder / path.name
        if path.is_dir() and place.is_dir() and not place.is_symlink():
            link_source(place, path)
        elif not place.is_symlink():
            with contextlib.suppress(FileExistsError):
                place.symlink_to(path)


def remove_old(folder: Path) -> None:
    others = [path for path in PLACE.iterdir() if path != folder and (path / "made").exists()]
    others.sort(key=lambda path: (path / "made").stat().st_mtime, reverse=True)
    for path in others[KEPT_MAX - 1 :]:
        shutil.rmtree(path, ignore_errors=True)


class Progress:
    """One line that grows while there is something to wait for."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = 0
        self._count = 0
        self._on_terminal = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        say(f"{self._what}: mypyc writes C ...")
        return self

    def __exit__(self, *_: object) -> None:
        if self._on_terminal:
            print(file=sys.stderr)

    def of(self, count: int) -> None:
        self._count = count
        self._show()

    def step(self) -> None:
        self._done += 1
        self._show()

    def _show(self) -> None:
        tenth = self._count // 10 or 1
        if self._on_terminal:
            print(f"\r{self._what}: {self._done} of {self._count}", end="", file=sys.stderr, flush=True)
        elif self._done % tenth == 0:
            say(f"{self._what}: {self._done} of {self._count}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
