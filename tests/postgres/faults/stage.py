"""A PostgreSQL of its own, and two brokers on it, each behind a proxy; clients have a proxy as well."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from penstock.pg.embedded import EmbeddedPostgres
from tests.crash.broker_process import BrokerProcess
from tests.interop.deadline import wait_until
from tests.pg_proxy import PgProxy

# What was committed is there after a crash of the server. A crash of the machine is not tried: no fsync.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "on",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "max_connections": "100",
    "restart_after_crash": "on",
}
SECONDS_TO_RECOVER = 60.0
NODE_COUNT = 2


class Node:
    """A `penstock serve` with a data folder, which is killed and started again on the same port."""

    def __init__(self, folder: Path, proxy: PgProxy) -> None:
        self.proxy = proxy
        self._folder = folder
        self._broker = self._started(0)
        self._port = self._broker.port

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._port}/?blocked_connection_timeout=60&socket_timeout=60"

    @property
    def log(self) -> str:
        return self._broker.text

    def _started(self, port: int) -> BrokerProcess:
        arguments = ["--port", str(port), "--postgres", self.proxy.url]
        return BrokerProcess(self._folder / "data", self._folder / "broker.log", arguments).wait_until_ready()

    def kill(self) -> None:
        self._broker.kill()

    def stop(self) -> None:
        code = self._broker.stop()
        assert code == 0, f"the broker has ended with {code}:\n{self.log[-2000:]}"

    def restart(self) -> None:
        self._broker = self._started(self._port)


class Stage:
    """Everything that outlives a round."""

    def __init__(self, server: EmbeddedPostgres | None = None) -> None:
        """`server` has our `SETTINGS`; it is removed at the end, as one of our own would be."""
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-faults-"))
        self.server = server or EmbeddedPostgres(tempfile.mkdtemp(prefix="penstock-pg-"), SETTINGS)
        self._sql: psycopg.Connection[Any] | None = None
        self.nodes: list[Node] = []
        self._proxies: list[PgProxy] = []

    def __enter__(self) -> Stage:
        try:
            self.server.start()
            self.clients = self._proxy("clients")
            for number in range(NODE_COUNT):
                folder = self.folder / f"node-{number}"
                folder.mkdir()
                self.nodes.append(Node(folder, self._proxy(f"proxy-{number}")))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _proxy(self, name: str) -> PgProxy:
        proxy = PgProxy(self.server.url, self.folder / name)
        self._proxies.append(proxy)
        return proxy

    @property
    def proxies(self) -> list[PgProxy]:
        return list(self._proxies)

    def close(self) -> None:
        if self._sql is not None:
            self._sql.close()
        for node in self.nodes:
            node.kill()
        for proxy in self._proxies:
            proxy.close()
        self.server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- looking ------------------------------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the server, past all proxies; while it recovers, ask again."""
        deadline = time.monotonic() + SECONDS_TO_RECOVER
        while True:
            try:
                if self._sql is None:
                    self._sql = psycopg.connect(self.server.url, autocommit=True, application_name="stage")
                return self._sql.execute(query.encode(), values or None).fetchall()
            except psycopg.OperationalError:
                if self._sql is not None:
                    self._sql.close()
                    self._sql = None
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def value(self, query: str, *values: object) -> Any:
        return self.rows(query, *values)[0][0]

    def wait_for_value(self, wanted: object, query: str, *values: object, seconds: float = SECONDS_TO_RECOVER) -> None:
        wait_until(lambda: self.value(query, *values) == wanted, f"{wanted} = {query} {values}", timeout_s=seconds)
