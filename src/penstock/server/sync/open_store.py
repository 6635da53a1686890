"""Opens the data folder of a server, and says what to do when that is not possible."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace

from penstock.backing.postgres.queues import PgBackingQueues
from penstock.broker.broker import Broker
from penstock.broker.memory.alarms import default_disk_bytes_min
from penstock.broker.vhost.callbacks import Post
from penstock.clock import SystemClock
from penstock.config import Config
from penstock.disk.os_files import OsFiles
from penstock.disk.spare_descriptors import SpareDescriptors
from penstock.errors import StartupError
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import Syncer
from penstock.server.sync.quick_syncer import QuickSyncer
from penstock.server.sync.syncers import ProcessSyncer, ThreadSyncer, process_syncer_possible
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions
from penstock.store.queue.places import StoreError
from penstock.store.shared.body_reader import BodyReader

log = logging.getLogger("penstock.store")

# Makes a syncer, or a reader, for a loop; the function is called after each answer.
MakeSyncer = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Syncer]
MakeReader = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], BodyReader]
OTHER_FOLDER = "choose another folder with --data-dir, or --in-memory to keep nothing"


def best_syncer(loop: asyncio.AbstractEventLoop, after_answer: Callable[[], None]) -> Syncer:
    """What a server of its own uses."""
    elsewhere = ProcessSyncer(loop, after_answer) if process_syncer_possible() else ThreadSyncer(loop, after_answer)
    return QuickSyncer(elsewhere, SystemClock())


def open_broker(
    config: Config,
    data_dir: str,
    loop: asyncio.AbstractEventLoop,
    make_syncer: MakeSyncer,
    make_reader: MakeReader,
    turn_soon: Callable[[], None],
    post: Post,
    postgres: PgBackingQueues | None,
    spares: SpareDescriptors,
    open_files_max: int,
) -> Broker:
    """Return a broker with everything that the folder holds. Raises StartupError; then nothing is left open."""
    clock = SystemClock()
    options = StoreOptions(
        JournalOptions(sync_window_s=config.sync_window_s, confirm_sync=config.confirm_sync),
        embed_below=config.embed_bytes_below,
        ram_cap=config.queue_ram_messages,
        ram_slack=config.queue_ram_slack_messages,
        checkpoint_bytes=config.checkpoint_bytes,
        checkpoint_s=config.checkpoint_s,
        retention_bytes=config.history_bytes_max,
        retention_s=config.history_hours_max * 3600,
        readers_bytes_max=config.readers_bytes_max,
        handles_max=open_files_max,
    )
    if config.confirm_sync != "fsync":
        log.warning("confirm_sync is '%s': confirmed messages can be lost; see docs/durability.md", config.confirm_sync)
    try:
        files = OsFiles(data_dir, spares)
        # Before the syncer: a folder that is not usable should not cost a process.
        files.make_dir("")
        if config.disk_bytes_min <= 0:
            config = replace(config, disk_bytes_min=default_disk_bytes_min(shutil.disk_usage(data_dir).total))
        syncer = make_syncer(loop, turn_soon)
        reader = make_reader(loop, turn_soon)
    except OSError as error:
        raise StartupError(folder_complaint(data_dir, error)) from error
    node = NodeStore(files, syncer, clock, options, secrets.randbits, reader)
    try:
        return Broker(config, clock, node, post, postgres)
    except (StartupError, StoreError, OSError) as error:
        node.abandon()
        # Compiled code does not set the cause.
        cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
        if isinstance(cause, OSError):
            raise StartupError(folder_complaint(data_dir, cause)) from error
        raise StartupError(f"cannot use the data folder {data_dir}: {error}") from error


def folder_complaint(data_dir: str, error: OSError) -> str:
    """What is wrong with the folder, and what helps."""
    why = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"cannot use the data folder {data_dir}: {why}{_whose(data_dir)}."
            f" Give this user the right to write there, or {OTHER_FOLDER}."
        )
    if error.errno == errno.EROFS:
        return (
            f"cannot use the data folder {data_dir}: it is on a disk that is read-only. Remount it, or {OTHER_FOLDER}."
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot use the data folder {data_dir}: {why}. Make room on that disk, or {OTHER_FOLDER}."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"cannot use {data_dir}: it is not a folder. Please {OTHER_FOLDER}."
    if not os.path.isdir(data_dir):
        return f"cannot make the data folder {data_dir}: {why}. Please {OTHER_FOLDER}."
    return f"cannot use the data folder {data_dir}: {error}. `penstock fsck` says more about what is in it."


def _whose(data_dir: str) -> str:
    """Whose folder it is, or the nearest one above it that exists."""
    path = os.path.abspath(data_dir)
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return ""
    return f" ({path} belongs to user {owner}, this is user {os.getuid()})" if hasattr(os, "getuid") else ""
