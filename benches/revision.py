"""penstock of another git revision as one more broker: its source in a scratch folder, the same interpreter."""

from __future__ import annotations

import contextlib
import subprocess
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


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[type[Broker]]:
    """The broker of that revision, as long as its source is there."""
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
