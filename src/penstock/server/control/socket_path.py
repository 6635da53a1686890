"""Where the control socket is, also below a folder whose path is longer than a socket's may be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SOCKET_NAME: Final = "control.sock"
# sun_path has 108 bytes on Linux, 104 on macOS and the BSDs, with the zero at its end.
PATH_BYTES_MAX: Final = 103
# Linux: a folder that is open has a short name here.
DESCRIPTORS: Final = "/proc/self/fd"


@contextmanager
def socket_path(folder: str) -> Iterator[str]:
    """Give a path that a socket can be bound at or connected to. Raises OSError when there is none."""
    path = os.path.join(folder, SOCKET_NAME)
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield path
        return
    if not os.path.isdir(DESCRIPTORS):
        raise OSError(f"the path of the data folder is too long for a socket: {path}")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{DESCRIPTORS}/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
