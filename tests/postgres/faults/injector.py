"""The faults. Each returns when it has happened and what it broke is started again; it does not wait for recovery."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import closing

import psycopg

from tests.interop.deadline import wait_until
from tests.pg_proxy import PgProxy
from tests.postgres.faults.consumers import SessionProcess
from tests.postgres.faults.stage import Stage

# Of statements that commit: the brokers', the sessions', and of who has a transaction.
BROKER_PUT = b"put_rows"
BROKER_WORK = (b".reserve(", b".finalize_many(")
CLIENT_WORDS = (b".put(", b".put_many(", b"COMMIT", b".finalize", b".reserve(")
# Nobody is killed, and no consumer loses anything: then every message comes out once, and in order.
GENTLE = ("broker commit unknown", "deaf broker", "deaf clients", "pinned horizon", "killed sweep")
ROUGH = (
    "terminated session",
    "terminated session",
    "killed backend",
    "killed node",
    "stopped node",
    "broker away",
    "killed consumer",
    "frozen consumer",
    "stopped server",
    "cut broker",
    "client commit unknown",
    "broker work unknown",
)
CUT_S = 30.0
LEASE_END_S = 60.0
AWAY_S = 60.0


class Injector:
    """Breaks things on a stage while a round runs."""

    def __init__(self, stage: Stage, processes: list[SessionProcess], seed: int) -> None:
        self._stage = stage
        self._processes = processes
        self._random = random.Random(seed)
        self._pins: list[psycopg.Connection[tuple[object, ...]]] = []
        self._faults: dict[str, Callable[[], None]] = {
            "broker commit unknown": lambda: self._cut_broker_at(BROKER_PUT),
            "deaf broker": self._deafen_broker,
            "deaf clients": self._deafen_clients,
            "pinned horizon": self._pin,
            "killed sweep": self._kill_sweep,
            "terminated session": self._terminate,
            "killed backend": self._kill_backend,
            "killed node": self._kill_node,
            "stopped node": self._stop_node,
            "broker away": self._keep_broker_away,
            "killed consumer": self._kill_consumer,
            "frozen consumer": self._freeze_consumer,
            "stopped server": self._stop_server,
            "cut broker": self._cut_broker,
            "client commit unknown": self._cut_client,
            "broker work unknown": lambda: self._cut_broker_at(*BROKER_WORK),
        }
        assert self._faults.keys() == {*GENTLE, *ROUGH}

    def happen(self, kind: str) -> None:
        self._faults[kind]()

    def heal(self) -> None:
        """What lasts for a round ends."""
        for proxy in self._stage.proxies:
            proxy.is_deaf = False
            proxy.open()
            proxy.cancel_cut()
        for pin in self._pins:
            pin.close()
        self._pins.clear()

    # --- nobody is killed -----------------------------------------------------------------------------------

    def _cut_broker_at(self, *statements: bytes) -> None:
        """At each of them twice: one is carried out and one is not."""
        proxy = self._random.choice(self._stage.nodes).proxy
        for words in statements:
            self._cut(proxy, words, True)
            self._cut(proxy, words, False)

    def _cut(self, proxy: PgProxy, words: bytes, is_carried_out: bool) -> None:
        before = proxy.cut_count
        proxy.cut_at(words, is_carried_out, needs_rows=b"reserve" in words)
        wait_until(lambda: proxy.cut_count > before, f"somebody sends {words!r}", timeout_s=CUT_S)

    def _deafen_broker(self) -> None:
        self._random.choice(self._stage.nodes).proxy.is_deaf = True

    def _deafen_clients(self) -> None:
        self._stage.clients.is_deaf = True

    def _pin(self) -> None:
        """A transaction that has looked, and then does nothing for the rest of the round."""
        pin = psycopg.connect(self._stage.server.url, application_name="pin")
        self._pins.append(pin)
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT count(*) FROM penstock.messages")

    def _kill_sweep(self) -> None:
        """It has given back, folded and removed; and then none of it has happened. Meanwhile nobody else sweeps."""
        with closing(psycopg.connect(self._stage.server.url, application_name="doomed sweep")) as doomed:
            doomed.execute("SELECT pg_advisory_xact_lock(penstock._lock_class(), 0)")
            doomed.execute("SELECT * FROM penstock.sweep()")
            pid = doomed.info.backend_pid
            self._stage.rows("SELECT pg_terminate_backend(%s, 20000)", pid)

    # --- somebody is killed -----------------------------------------------------------------------------------

    def _a_session(self) -> int | None:
        found = self._stage.rows(
            "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^(penstock|plain sql)' ORDER BY pid"
        )
        return self._random.choice(found)[0] if found else None

    def _terminate(self) -> None:
        self._stage.rows("SELECT pg_terminate_backend(%s, 20000)", self._a_session())

    def _kill_backend(self) -> None:
        """The server takes shared memory for damaged, ends everybody, and recovers."""
        pid = self._a_session()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self._stage.wait_for_value(0, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid)

    def _kill_node(self) -> None:
        node = self._random.choice(self._stage.nodes)
        node.kill()
        node.restart()

    def _stop_node(self) -> None:
        node = self._random.choice(self._stage.nodes)
        node.stop()
        node.restart()

    def _keep_broker_away(self) -> None:
        """For so long that what it had is given to others while its own consumers still work on it."""
        node = self._random.choice(self._stage.nodes)
        pids = "SELECT p.pid FROM penstock.participants p WHERE p.grace > interval '0'"
        before = {pid for (pid,) in self._stage.rows(pids)}
        node.proxy.shut()
        try:
            wait_until(
                lambda: before - {pid for (pid,) in self._stage.rows(pids)}, "it is taken for gone", timeout_s=AWAY_S
            )
        finally:
            node.proxy.open()

    def _kill_consumer(self) -> None:
        process = self._random.choice(self._processes)
        self._freeze_with_messages(process)
        process.restart_after_kill()

    def _freeze_consumer(self) -> None:
        """Until what it had reserved has outlived its lease. Then it goes on as if nothing had been."""
        process = self._random.choice(self._processes)
        held = self._freeze_with_messages(process)
        try:
            wait_until(lambda: not set(held) & set(self._held_by_sessions()), "the lease ends", timeout_s=LEASE_END_S)
        finally:
            process.thaw()

    def _freeze_with_messages(self, process: SessionProcess) -> list[tuple[int, int]]:
        """In a moment when it has some; which ones."""

        def frozen() -> list[tuple[int, int]]:
            process.freeze()
            # What it has sent is answered first.
            self._stage.wait_for_value(
                0,
                "SELECT count(*) FROM pg_stat_activity a JOIN penstock.participants p ON p.pid = a.pid"
                " WHERE p.grace = interval '0' AND p.role = 'consumer' AND a.state <> 'idle'",
            )
            held = self._held_by_sessions()
            if not held:
                process.thaw()
            return held

        found: list[tuple[int, int]] = wait_until(frozen, "the consumer has messages", timeout_s=LEASE_END_S)
        return found

    def _held_by_sessions(self) -> list[tuple[int, int]]:
        """Messages and their owners. Brokers have a grace, sessions have none."""
        return [
            (id, owner)
            for id, owner in self._stage.rows(
                "SELECT m.id, m.owner FROM penstock.messages m JOIN penstock.participants p ON p.id = m.owner"
                " WHERE m.state = 1 AND p.grace = interval '0'"
            )
        ]

    def _stop_server(self) -> None:
        self._stage.server.stop(self._random.choice(("immediate", "immediate", "fast")))
        self._stage.server.start()

    def _cut_broker(self) -> None:
        self._random.choice(self._stage.nodes).proxy.drop_all()

    def _cut_client(self) -> None:
        for is_carried_out in (True, False):
            self._cut(self._stage.clients, self._random.choice(CLIENT_WORDS), is_carried_out)
