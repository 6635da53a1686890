"""The counters of queues in PostgreSQL, beside the rows that they count.

Everything is read in one snapshot, so that programs that work meanwhile make no difference. `repair` calls `SELECT
penstock.update_queue_counts()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import StartupError
from penstock.pipeline.reconcile.result import POSTGRES, Difference, Reconciliation, compare

if TYPE_CHECKING:
    import psycopg

COUNTERS: Final = ("ready_count", "reserved_count", "scheduled_count", "buried_count", "finalized_count")


def recount(url: str, schema: str = "penstock") -> Reconciliation:
    """Return every counter of every queue, compared with its rows."""
    from psycopg import IsolationLevel, sql

    statement = sql.SQL(Path(__file__).with_name("recount.sql").read_text()).format(schema=sql.Identifier(schema))
    with asking(url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        rows = connection.execute(statement).fetchall()
    differences: list[Difference] = []
    for name, *values in rows:
        pairs = {counter: (values[2 * n], values[2 * n + 1]) for n, counter in enumerate(COUNTERS)}
        differences += compare(POSTGRES, None, name, pairs)
    return Reconciliation(None, len(rows), len(rows) * len(COUNTERS), tuple(differences))


def repair(url: str, schema: str = "penstock") -> None:
    """Set the counters right."""
    from psycopg import sql

    with asking(url) as connection:
        connection.execute(sql.SQL("SELECT {}.update_queue_counts()").format(sql.Identifier(schema)))


@contextmanager
def asking(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection for one transaction. StartupError when something goes wrong with it."""
    try:
        import psycopg
    except ImportError:
        raise StartupError("PostgreSQL needs its client: pip install 'penstock[postgres]'") from None
    try:
        with psycopg.connect(url, application_name="penstock reconcile") as connection:
            yield connection
    except psycopg.Error as error:
        # The first line is the reason; the others show the statement.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StartupError(f"PostgreSQL cannot be asked: {reason}; check --postgres and --schema") from error
