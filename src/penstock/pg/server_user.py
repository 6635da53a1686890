"""The user that an embedded PostgreSQL runs as: it refuses to run as root."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import pwd

CANDIDATES: Final = ("postgres", "nobody")


class PostgresFailed(Exception):
    """The server did not start or did not stop. The text has what it said last, or what to do."""


@dataclass(frozen=True)
class ServerUser:
    """A user of the system that is not root."""

    name: str
    uid: int
    gid: int


def server_user() -> ServerUser | None:
    """Return the user that the server runs as; None: our own."""
    if sys.platform == "win32":
        raise PostgresFailed("There is no embedded PostgreSQL on Windows: name a server by its URL.")
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(name, entry.pw_uid, entry.pw_gid)
    raise PostgresFailed(f"PostgreSQL does not run as root: add a user named {' or '.join(CANDIDATES)}")


def may_enter(user: ServerUser | None, folder: Path) -> bool:
    """True if `user` may pass through `folder`, by its mode. None may: the rest is the system's to say."""
    if user is None:
        return True
    there = folder.stat()
    if there.st_uid == user.uid:
        return bool(there.st_mode & stat.S_IXUSR)
    if there.st_gid == user.gid:
        return bool(there.st_mode & stat.S_IXGRP)
    return bool(there.st_mode & stat.S_IXOTH)
