"""The Celery app of test_celery_two_nodes: made by the tests, and by the worker processes that they start.

Its tasks are in a queue that two brokers share through PostgreSQL. Results are files: brokers that are no cluster have
no reply queue in common.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Queue

BROKER, RESULTS, QUEUE = "TWO_NODES_BROKER", "TWO_NODES_RESULTS", "TWO_NODES_QUEUE"
GO_S = 60


def make_app(broker: str, results: str, queue: str) -> Celery:
    app = Celery("two_nodes", broker=broker, backend=results, set_as_current=False)
    app.conf.update(
        task_default_queue=queue,
        task_queues=[Queue(queue, queue_arguments={"x-backing": "postgres"})],
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        result_chord_retry_interval=0.1,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # kombu pools connections by their parameters: each app has its own.
        broker_transport_options={"confirm_publish": True, "client_properties": {"connection_name": broker}},
        worker_hijack_root_logger=False,
    )
    define_tasks(app)
    return app


def define_tasks(app: Celery) -> None:
    @app.task(name="two_nodes.note", shared=False)
    def note(folder: str, name: str) -> str:
        """Leaves a file for each time that it was run."""
        Path(folder, f"{name}.{os.getpid()}.{uuid.uuid4().hex}").touch()
        return name

    @app.task(name="two_nodes.wait", shared=False, bind=True)
    def wait(self: Any, folder: str, name: str) -> bool:
        """Says that it has begun, waits for the file `go`, answers whether it was delivered before."""
        Path(folder, f"{name}.{os.getpid()}.{uuid.uuid4().hex}").touch()
        deadline = time.monotonic() + GO_S
        while not Path(folder, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return bool(self.request.delivery_info["redelivered"])

    @app.task(name="two_nodes.add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="two_nodes.total", shared=False)
    def total(numbers: list[int]) -> int:
        return sum(numbers)


if BROKER in os.environ:
    app = make_app(os.environ[BROKER], os.environ[RESULTS], os.environ[QUEUE])
