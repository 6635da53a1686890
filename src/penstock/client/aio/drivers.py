"""Which driver speaks which scheme. A fixed table: nothing in a URL names code.

Drivers are imported when a URL asks for them, so that a session over one thing needs nothing of the others.
"""

from __future__ import annotations

from penstock.client.aio.driver import AsyncDriver
from penstock.client.errors import SetupMissing

SCHEMES = "postgresql://, amqp://, amqps:// or file://"


def driver_for(url: str, *, schema: str, name: str | None, install: bool) -> AsyncDriver:
    """Return the driver for this URL. Does not connect."""
    if not isinstance(url, str):
        raise TypeError(f"a session's URL is a str, not {type(url).__name__}")
    scheme = url.partition(":")[0].lower()
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, schema, name, install)
    if scheme in ("amqp", "amqps"):
        from penstock.client.aio.amqp.driver import AsyncAmqpDriver

        return AsyncAmqpDriver(url)
    if scheme == "file":
        from penstock.client.aio.file.driver import AsyncFileDriver

        return AsyncFileDriver(url)
    # The URL itself may have a password in it, and is not repeated.
    raise ValueError(f"a session's URL starts with {SCHEMES}")


def _postgres(url: str, schema: str, name: str | None, install: bool) -> AsyncDriver:
    try:
        from penstock.client.aio.postgres.driver import AsyncPgDriver
    except ImportError as missing:
        # psycopg without a libpq says so in an ImportError that names no module.
        if (missing.name or "psycopg").partition(".")[0] != "psycopg":
            raise
        raise SetupMissing("sessions over PostgreSQL need psycopg: pip install 'penstock[postgres]'") from None
    return AsyncPgDriver(url, schema, name, install)
