"""Fixtures for tests on a real PostgreSQL. tests/conftest.py loads them, so that every folder has them.

One server per run and process (each worker of pytest-xdist has its own, started when a test first asks for it); one
database per test, new and gone afterwards. Where there is no PostgreSQL the tests are skipped, and the run's last lines
say why (tests/not_run.py).
"""

from __future__ import annotations

import atexit
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.pg.binaries import PostgresMissing, find
from penstock.pg.embedded import SETTINGS_FOR_TESTS, EmbeddedPostgres

TEMPLATE = "penstock_template"
# So long only where something is wrong.
SECONDS_TO_WAIT = 60.0
_numbers = itertools.count(1)


def new_server(settings: dict[str, str] | None = None) -> EmbeddedPostgres:
    """Started, in a folder that its `remove()` deletes. A server's user cannot enter pytest's own folders."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        pytest.skip("no PostgreSQL client: pip install 'penstock[postgres]'")
    try:
        find()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    # To copy what was made once takes a tenth of what it takes to make it. It belongs to the server's user.
    subprocess.run(["cp", "-a", _made_once() / "data", folder / "data"], check=True)
    server = EmbeddedPostgres(folder, {**SETTINGS_FOR_TESTS, **(settings or {})})
    server.start()
    return server


@cache
def _made_once() -> Path:
    """A folder with the data of a server that has stopped; it goes with this process."""
    server = EmbeddedPostgres(tempfile.mkdtemp(prefix="penstock-pg-"), SETTINGS_FOR_TESTS)
    atexit.register(server.remove)
    with server:
        return server.folder


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS_TO_WAIT) -> None:
    """Look again and again until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds:.0f} s"
        time.sleep(0.01)


def run_sql(url: str, *statements: str) -> None:
    """Each in a transaction of its own, as CREATE DATABASE wants it."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def install_schema(url: str) -> None:
    """penstock's schema into this database, for tests with a server of their own."""
    import psycopg

    from penstock.pg.install import install

    with psycopg.connect(url, autocommit=True) as connection:
        install(connection)


def new_database(server: EmbeddedPostgres, template: str) -> str:
    import psycopg

    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        # To copy the files takes half of what it takes to write their pages to the log; before 15 there was no choice.
        way = " STRATEGY FILE_COPY" if connection.info.server_version >= 150_000 else ""
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}{way}".encode())
    return name


def drop_database(server: EmbeddedPostgres, name: str) -> None:
    """With the connections that a test has left. A test that has stopped the server need not start it again."""
    if server.is_running:
        run_sql(server.url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """The run's server. Tests share it: who restarts or kills it takes `own_postgres` instead."""
    server = new_server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    """A database with penstock's schema: a copy of it is made much faster than the schema is installed."""
    run_sql(postgres_server.url, f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
    install_schema(postgres_server.url_for(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def postgres_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A new, empty database."""
    name = new_database(postgres_server, "template0")
    yield postgres_server.url_for(name)
    drop_database(postgres_server, name)


@pytest.fixture
def penstock_url(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """A new database with penstock's schema and nothing in it."""
    name = new_database(postgres_server, template_database)
    yield postgres_server.url_for(name)
    drop_database(postgres_server, name)


@pytest.fixture
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """A server for one test, which may stop, restart and kill it. Its `url` is an empty database."""
    server = new_server()
    yield server
    server.remove()
