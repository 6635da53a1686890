"""Opens a folder without a server, and says what to do when that is not possible.

It is the folder of a server, in the same format: what one has left, the other reads. It does not keep as much for bad
times as a server does: less room is set aside for a full disk, and less of the journal is kept as history.
"""

from __future__ import annotations

import errno
import logging
import secrets
import shutil
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.broker.broker import Broker
from penstock.broker.memory.alarms import default_disk_bytes_min
from penstock.client.errors import ClientError, ConnectionLost
from penstock.clock import Clock
from penstock.config import Config
from penstock.disk.files import FolderLocked
from penstock.disk.os_files import OsFiles
from penstock.errors import AmqpError, StartupError
from penstock.journal.syncer import InlineSyncer
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions

log = logging.getLogger("penstock.client")

RETENTION_BYTES: Final = 64 << 20
RESERVE_BYTES: Final = 16 << 20


def folder_of(url: str) -> str:
    """Return the folder that a file:// URL means."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or len(unquote(parts.path).strip("/")) == 0:
        raise ClientError(f"{url!r} is no folder: write file:///path/to/folder, with three slashes")
    if parts.query or parts.fragment:
        raise ClientError(f"{url!r}: a file:// URL has no options. Write %3F and %23 for ? and # in a path")
    path = unquote(parts.path)
    if "\0" in path:
        raise ClientError(f"{url!r} is no folder: a path cannot have a NUL character")
    return path


def open_folder(folder: str, clock: Clock) -> tuple[Broker, NodeStore]:
    """A broker with everything that the folder holds, and its store. Raises ConnectionLost; then nothing is left open.

    Syncs happen on the thread that asks for them.
    """
    options = StoreOptions(retention_bytes=RETENTION_BYTES, reserve_bytes=RESERVE_BYTES)
    try:
        files = OsFiles(folder)
        files.make_dir("")
        disk_bytes_min = default_disk_bytes_min(shutil.disk_usage(folder).total)
    except OSError as error:
        raise ConnectionLost(complaint(folder, error)) from error
    node = NodeStore(files, InlineSyncer(), clock, options, secrets.randbits)
    try:
        broker = Broker(Config(data_dir=folder, disk_bytes_min=disk_bytes_min), clock, node)
    except (StartupError, AmqpError, OSError) as error:
        node.abandon()
        raise ConnectionLost(complaint(folder, error)) from error
    for line in broker.recovery_report:
        log.warning("%s: %s", folder, line)
    return broker, node


def complaint(folder: str, error: Exception) -> str:
    """What is wrong with the folder, and what helps."""
    # Compiled code does not set the cause.
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(cause, FolderLocked):
        return (
            f"{folder} is in use: {cause}. One process at a time has a folder: end that one, use another folder,"
            f" or let `penstock serve --data-dir {folder}` have it and connect all of them over amqp://"
        )
    if isinstance(cause, OSError):
        why = cause.strerror or str(cause)
        if cause.errno in (errno.EACCES, errno.EPERM):
            return f"cannot use the folder {folder}: {why}. Give this user the right to write there"
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"cannot use the folder {folder}: {why}. Make room on that disk"
        if cause.errno in (errno.ENOTDIR, errno.EEXIST):
            return f"cannot use {folder}: it is not a folder"
        return f"cannot use the folder {folder}: {why}. `penstock fsck {folder}` says more about what is in it"
    if isinstance(error, AmqpError):
        return f"cannot use the folder {folder} without a server: {error}"
    return f"cannot use the folder {folder}: {error}"
