"""Opens the PostgreSQL of a server's queues: a URL, or one of its own in the data folder. Says what to do if it cannot.

psycopg is imported from here on and not before: a broker without such queues does not need it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.backing.postgres.queues import PgBackingQueues
from penstock.broker.features.postgres_facts import WirePropertyFacts
from penstock.clock import Clock
from penstock.config import Config
from penstock.errors import StartupError

if TYPE_CHECKING:
    from penstock.pg.embedded import EmbeddedPostgres
    from penstock.server.postgres.link import ServerPgLink

EMBEDDED = "embedded"
log = logging.getLogger("penstock.postgres")


class OpenPostgres:
    """The link, and the database if it is our own."""

    def __init__(self, link: ServerPgLink, clock: Clock, own: EmbeddedPostgres | None) -> None:
        self._link = link
        self._own = own
        self.queues = PgBackingQueues(link, WirePropertyFacts(), clock)

    async def stop(self) -> None:
        """After the queues were terminated."""
        await self._link.stop()
        if self._own is not None:
            self._own.stop()

    def abandon(self) -> None:
        self._link.abandon()


def open_postgres(
    config: Config, loop: asyncio.AbstractEventLoop, clock: Clock, after_work: Callable[[], None]
) -> OpenPostgres:
    """Raises StartupError; then nothing is left open."""
    assert config.postgres_url is not None
    try:
        from penstock.server.postgres.link import ServerPgLink
    except ImportError as error:
        raise StartupError(f"queues in PostgreSQL need psycopg ({error}): pip install 'penstock[postgres]'") from error
    own = _start_own(config) if config.postgres_url == EMBEDDED else None
    url = config.postgres_url if own is None else own.url
    try:
        link = ServerPgLink(loop, url, config.postgres_schema, after_work)
        link.start()
    except BaseException:
        if own is not None:
            own.stop()
        raise
    return OpenPostgres(link, clock, own)


def _start_own(config: Config) -> EmbeddedPostgres:
    from penstock.pg.binaries import PostgresMissing
    from penstock.pg.embedded import EmbeddedPostgres
    from penstock.pg.server_user import PostgresFailed

    if config.data_dir is None:
        raise StartupError("--postgres embedded keeps its database in the data folder: give --data-dir, or a URL")
    try:
        own = EmbeddedPostgres(os.path.join(config.data_dir, "postgres"), ours=config.data_dir)
        own.start()
    except (PostgresFailed, PostgresMissing) as error:
        raise StartupError(f"the embedded PostgreSQL does not start: {error}") from error
    # For sessions and psql beside the broker; the socket's folder is what keeps others out, there is no password.
    log.info("embedded PostgreSQL: %s", own.url)
    return own
