"""Two nodes on one database, with sessions terminated, a database that crashes, and Celery."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pika
import pika.exceptions
import psycopg
import pytest

from penstock.config import Config
from penstock.pg.embedded import EmbeddedPostgres
from penstock.testing import Broker
from tests.crash import celery_tasks
from tests.crash.test_celery_restart import celery_worker, names
from tests.interop.deadline import wait_until
from tests.postgres_server import new_server
from tests.server.brokers import check_health
from tests.server.postgres_nodes import PERSISTENT, POSTGRES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WORKER_S = 90.0
DRAIN_S = 60.0


@pytest.fixture
def crashing_server() -> Iterator[EmbeddedPostgres]:
    server = new_server({"synchronous_commit": "on"})
    yield server
    server.remove()


class Clients:
    """Publishers and consumers on several nodes, and what they saw."""

    def __init__(self, brokers: list[Broker]) -> None:
        self._brokers = brokers
        self.confirmed: list[bytes] = []
        self.seen: Counter[bytes] = Counter()
        self._stop_publishing = threading.Event()
        self._stop_consuming = threading.Event()
        self._publishers = [threading.Thread(target=self._publish, args=(number,)) for number in range(3)]
        self._consumers = [threading.Thread(target=self._consume, args=(number,)) for number in range(4)]
        for thread in [*self._publishers, *self._consumers]:
            thread.start()

    def stop_publishing(self) -> None:
        self._stop_publishing.set()
        for thread in self._publishers:
            thread.join()

    def stop(self) -> None:
        self.stop_publishing()
        self._stop_consuming.set()
        for thread in self._consumers:
            thread.join()

    def _connect(self, number: int) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(self._brokers[number % len(self._brokers)].url))

    def _publish(self, number: int) -> None:
        connection = self._connect(number)
        channel = connection.channel()
        channel.confirm_delivery()
        count = 0
        while not self._stop_publishing.is_set():
            count += 1
            body = b"%d-%d" % (number, count)
            with suppress(pika.exceptions.NackError):
                channel.basic_publish("", "q", body, PERSISTENT)
                self.confirmed.append(body)
        connection.close()

    def _consume(self, number: int) -> None:
        """In sessions of some messages each, with some refusals between."""
        chance = random.Random(number)
        while not self._stop_consuming.is_set():
            connection = self._connect(number)
            channel = connection.channel()
            channel.basic_qos(prefetch_count=chance.choice([1, 5, 50]))

            def take(ch: object, method: object, properties: object, body: bytes) -> None:
                tag = method.delivery_tag  # type: ignore[attr-defined]
                if chance.random() < 0.05:
                    channel.basic_nack(tag, requeue=True)  # noqa: B023
                else:
                    self.seen[body] += 1
                    channel.basic_ack(tag)  # noqa: B023

            channel.basic_consume("q", take)
            for _ in range(chance.randrange(20, 80)):
                connection.process_data_events(0.02)
                if self._stop_consuming.is_set():
                    break
            connection.close()


def end_a_session(url: str, chance: random.Random) -> None:
    with psycopg.connect(url, autocommit=True) as sql:
        pids = sql.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'penstock %'").fetchall()
        if pids:
            sql.execute("SELECT pg_terminate_backend(%s)", chance.choice(pids))


@pytest.mark.parametrize("crashes", [False, True], ids=["sessions", "crashes"])
def test_nothing_confirmed_is_lost_whatever_breaks(crashing_server: EmbeddedPostgres, crashes: bool) -> None:
    chance = random.Random(crashes)
    server = crashing_server
    with ExitStack() as running:
        brokers = [running.enter_context(Broker(postgres_url=server.url)) for _ in range(2)]
        for broker in brokers:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            connection.channel().queue_declare("q", durable=True, arguments=POSTGRES)
            connection.close()
        clients = Clients(brokers)
        running.callback(clients.stop)

        def grown(count: int) -> Callable[[], bool]:
            return lambda: len(clients.confirmed) >= count

        for step in range(12):
            wait_until(grown(len(clients.confirmed) + 100), f"messages are confirmed ({step})", timeout_s=DRAIN_S)
            if crashes and step % 4 == 3:
                server.stop("immediate")
                server.start()
            else:
                end_a_session(server.url, chance)
        clients.stop_publishing()
        with psycopg.connect(server.url, autocommit=True) as sql:
            wait_until(
                lambda: sql.execute("SELECT count(*) FROM penstock.messages").fetchone() == (0,),
                "all is consumed",
                timeout_s=DRAIN_S,
            )
        clients.stop()
        assert set(clients.confirmed) <= set(clients.seen)
        for broker in brokers:
            check_health(broker)


def test_celery_workers_on_two_nodes_share_the_tasks(penstock_url: str, tmp_path: Path) -> None:
    """The app is any app: the nodes put its queue into the database."""
    marks = tmp_path / "marks"
    marks.mkdir()
    wanted = {f"task-{number}" for number in range(12)}
    with ExitStack() as running:
        config = Config(postgres_url=penstock_url, postgres_queues=["crash.*"])
        urls = [running.enter_context(Broker(config)).url for _ in range(2)]
        logs = [tmp_path / f"worker-{number}.log" for number in range(2)]
        apps = [celery_tasks.make_app(url) for url in urls]
        for url, log in zip(urls, logs, strict=True):
            running.enter_context(celery_worker(url, log))
        for number, name in enumerate(sorted(wanted)):
            apps[number % 2].send_task(celery_tasks.TASK, (str(marks), name))
        # Two at a time on each worker: both have some.
        wait_until(lambda: len(names(marks, "started")) == 4, "four tasks run", timeout_s=WORKER_S)
        (marks / "go").touch()
        wait_until(lambda: names(marks, "done") == wanted, "all tasks are done", timeout_s=WORKER_S)
        for app in apps:
            app.pool.force_close_all()
            app.close()
        with psycopg.connect(penstock_url, autocommit=True) as sql:
            wait_until(
                lambda: sql.execute("SELECT finalized_count FROM penstock.queue_stats").fetchone() == (12,),
                "each task is settled once",
            )
