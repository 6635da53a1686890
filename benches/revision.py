"""penstock of another git revision, or of another build, as one more broker, on the same interpreter."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from benches.brokers import ROOT, Broker, Penstock
from benches.scratch import disk_folder
from benches.summary import BEFORE


class RevisionError(Exception):
    """There is no such revision, or no git."""


def git(arguments: Sequence[str]) -> bytes:
    try:
        result = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not installed; --against needs it") from None
    if result.returncode != 0:
        raise RevisionError(f"git {arguments[0]}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


class PenstockInterpreted(Penstock):
    name = BEFORE


def compiled_penstock() -> type[Broker]:
    """penstock with its hot path compiled, after a build if need be."""
    command = [sys.executable, str(ROOT / "tools" / "compile.py"), "--required"]
    folder = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    if not folder:
        raise RevisionError("penstock cannot be compiled here; see above")

    class PenstockCompiled(Penstock):
        source: ClassVar[Path] = Path(folder)

    return PenstockCompiled


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[type[Broker]]:
    """The broker of that revision, as long as its source is there; of this source, for `interpreted`."""
    if revision == "interpreted":
        yield PenstockInterpreted
        return
    # Text behind a dash would be an option for git; what is not a commit has no source.
    commit = git(["rev-parse", "--short", "--verify", "--end-of-options", f"{revision}^{{commit}}"]).decode().strip()
    with tempfile.TemporaryDirectory(prefix="bench-revision-", dir=disk_folder()) as folder:
        archive = git(["archive", "--format=tar", commit, "src"])
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)

        class PenstockBefore(Penstock):
            name = BEFORE
            source: ClassVar[Path] = Path(folder) / "src"

            @classmethod
            def version(cls) -> str:
                return commit

        yield PenstockBefore
