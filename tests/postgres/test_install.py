"""Installing, upgrading and removing the schema."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from penstock.errors import StartupError
from penstock.pg import install as module
from penstock.pg.install import functions, install, migrations, uninstall, upgrade, version
from tests.postgres.plain_sql import PlainSql


@pytest.fixture
def sql(postgres_url: str) -> Iterator[PlainSql]:
    with PlainSql(postgres_url) as connection:
        yield connection


# As version 1 had them, as far as others saw.
OLD_PUT = """
CREATE FUNCTION {schema}.put(queue text, payload bytea, ready_at timestamptz DEFAULT NULL, ttl interval DEFAULT NULL)
RETURNS bigint LANGUAGE sql AS $body$ SELECT 1::bigint $body$;
CREATE FUNCTION {schema}.update_queue_counts() RETURNS SETOF {schema}.queue_stats LANGUAGE sql
AS $body$ SELECT * FROM {schema}.queue_stats $body$;
CREATE FUNCTION {schema}.keep_history() RETURNS integer LANGUAGE sql AS $body$ SELECT 0 $body$;
"""


def things_in(sql: PlainSql, schema: str) -> int:
    """Tables, indexes, sequences, views and functions."""
    return int(
        sql.one(
            "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)"
            " + (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid) FROM pg_namespace n WHERE nspname = %s",
            schema,
        )
    )


def test_installing_twice_is_upgrading(sql: PlainSql) -> None:
    newest = migrations()[-1][0]
    assert install(sql.connection) == newest
    sql.put("q", "x")
    before = things_in(sql, "penstock")
    assert install(sql.connection) == newest
    assert upgrade(sql.connection) == newest
    assert things_in(sql, "penstock") == before
    assert sql.stats("q") == {"ready_count": 1}
    assert sql.column("SELECT version FROM penstock.migrations ORDER BY 1") == [number for number, _ in migrations()]


def test_migrations_are_numbered_without_gaps_from_1() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_an_upgrade_from_version_1_brings_rows_and_counts(sql: PlainSql, monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = migrations()
    monkeypatch.setattr(module, "migrations", lambda: all_of_them[:1])
    monkeypatch.setattr(module, "functions", lambda: [OLD_PUT])
    assert install(sql.connection) == 1
    monkeypatch.undo()
    assert upgrade(sql.connection) == len(all_of_them)
    assert sql.rows("SELECT id, payload FROM penstock.put('q', 'x')") == [(1, b"x")]
    assert sql.stats("q") == {"ready_count": 1}


def test_a_new_migration_is_applied_once_and_functions_are_made_anew(
    sql: PlainSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(sql.connection)
    sql.put("q", "x")
    newest = migrations()[-1][0]
    more = [*migrations(), (newest + 1, "CREATE TABLE {schema}.added (number integer)")]
    sql.connection.execute("DROP FUNCTION penstock.count_ready(text)")
    monkeypatch.setattr(module, "migrations", lambda: more)
    assert upgrade(sql.connection) == newest + 1
    assert upgrade(sql.connection) == newest + 1
    assert sql.column("SELECT number FROM penstock.added") == []
    assert sql.one("SELECT penstock.count_ready('q')") == 1


def test_a_migration_that_fails_leaves_everything_as_it_was(sql: PlainSql, monkeypatch: pytest.MonkeyPatch) -> None:
    install(sql.connection)
    newest = migrations()[-1][0]
    more = [*migrations(), (newest + 1, "CREATE TABLE {schema}.added (number integer); SELECT 1 / 0")]
    monkeypatch.setattr(module, "migrations", lambda: more)
    with pytest.raises(psycopg.errors.DivisionByZero):
        upgrade(sql.connection)
    assert version(sql.connection) == newest
    assert sql.one("SELECT to_regclass('penstock.added')") is None


def test_a_schema_of_a_newer_penstock_is_left_alone(sql: PlainSql) -> None:
    install(sql.connection)
    sql.connection.execute("INSERT INTO penstock.migrations (version) VALUES (4711)")
    with pytest.raises(StartupError, match=r"4711.*newer penstock"):
        install(sql.connection)


def test_somebody_elses_schema_is_refused_and_an_empty_one_is_used(sql: PlainSql) -> None:
    sql.connection.execute("CREATE SCHEMA theirs")
    sql.connection.execute("CREATE TABLE theirs.messages (id integer)")
    with pytest.raises(StartupError, match=r"theirs.*--schema"):
        install(sql.connection, "theirs")
    assert things_in(sql, "theirs") == 1
    sql.connection.execute("CREATE SCHEMA empty")
    assert install(sql.connection, "empty") == migrations()[-1][0]


@pytest.mark.parametrize("name", ["Upper Case", "with-dash.and dot", "ünï", "n" * 63])
def test_a_schema_may_have_an_odd_name(sql: PlainSql, name: str) -> None:
    install(sql.connection, name)
    quoted = '"' + name + '"'
    assert sql.one(f"SELECT id FROM {quoted}.put('q', 'x')") == 1
    assert sql.column(f"SELECT id FROM {quoted}.reserve('q')") == [1]
    assert sql.rows(f"SELECT * FROM {quoted}.sweep()")
    uninstall(sql.connection, name)
    assert sql.column("SELECT nspname FROM pg_namespace WHERE nspname = %s", name) == []


@pytest.mark.parametrize("name", ["", "a'b", 'a"b', "a$$b", "n" * 64, "pg_mine", "public", "information_schema", "a;b"])
def test_a_name_that_could_do_harm_is_refused(sql: PlainSql, name: str) -> None:
    with pytest.raises(StartupError, match="schema"):
        install(sql.connection, name)


def test_two_installers_at_once_do_not_race(postgres_url: str, sql: PlainSql) -> None:
    ready = threading.Barrier(4)
    versions: list[int] = []

    def race() -> None:
        with PlainSql(postgres_url) as own:
            ready.wait()
            versions.append(install(own.connection))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert versions == [migrations()[-1][0]] * 4


def test_removing_leaves_nothing(sql: PlainSql) -> None:
    before = sql.one("SELECT count(*) FROM pg_class") + sql.one("SELECT count(*) FROM pg_proc")
    install(sql.connection)
    me = sql.attach("q")
    sql.put("q", "x")
    sql.column("SELECT penstock.finalize_many('q', %s, NULL, %s)", sql.reserve("q", 1, me), me)
    uninstall(sql.connection)
    assert sql.column("SELECT nspname FROM pg_namespace WHERE nspname = 'penstock'") == []
    assert sql.one("SELECT count(*) FROM pg_class") + sql.one("SELECT count(*) FROM pg_proc") == before
    with pytest.raises(StartupError, match="pg install"):
        uninstall(sql.connection)
    with pytest.raises(StartupError, match="pg install"):
        upgrade(sql.connection)


@pytest.mark.parametrize(
    "thing", ["VIEW mine AS SELECT * FROM penstock.stats", "VIEW mine AS SELECT penstock.count_ready('q')"]
)
def test_what_others_have_built_on_it_is_named_and_nothing_is_removed(sql: PlainSql, thing: str) -> None:
    install(sql.connection)
    sql.put("q", "x")
    sql.connection.execute(f"CREATE {thing}".encode())
    with pytest.raises(StartupError, match="mine"):
        uninstall(sql.connection)
    assert sql.stats("q") == {"ready_count": 1}
    sql.connection.execute("DROP VIEW mine")
    sql.connection.execute("CREATE TABLE penstock.mine (id integer)")
    with pytest.raises(StartupError, match="mine"):
        uninstall(sql.connection)


def test_every_function_is_described_where_it_is_made() -> None:
    for text in functions():
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("CREATE OR REPLACE FUNCTION"):
                assert lines[number - 1].startswith("--"), line
