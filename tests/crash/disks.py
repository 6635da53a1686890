"""Small disks, and ways to fill them."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20


def needs_root() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk or change the user: run `make test` as root for these")


@contextlib.contextmanager
def small_disk(folder: Path, size_mib: int, options: str = "") -> Iterator[Path]:
    """A tmpfs of its own; skips the test where it cannot be mounted."""
    needs_root()
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m{options}", "penstock-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def fill_disk(folder: Path, left_bytes: int = 0) -> Path:
    """Take the room with a file, as another program might; returns the file."""
    ballast = folder / "ballast"
    with ballast.open("ab") as file:
        while (room := free_bytes(folder) - left_bytes) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), room)
            except OSError as error:
                # The broker took some of it meanwhile.
                if error.errno != errno.ENOSPC:
                    raise
            file.seek(0, os.SEEK_END)
    return ballast
