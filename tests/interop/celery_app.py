"""The Celery app of test_celery: made by the tests, and by the worker processes they start.

A worker is told by its environment which broker, result backend and queue names to use.
"""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Queue
from kombu.common import Broadcast

BROKER, BACKEND, PREFIX = "INTEROP_CELERY_BROKER", "INTEROP_CELERY_BACKEND", "INTEROP_CELERY_PREFIX"
# The certificate of the authority, where the broker is spoken to within TLS.
CA = "INTEROP_CELERY_CA"


def tls_options(ca: str) -> dict[str, Any] | bool:
    return {"ca_certs": ca, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "localhost"} if ca else False


def make_app(broker: str, backend: str, prefix: str) -> Celery:
    """An app whose queues all carry the prefix, so that tests share a broker without meeting."""
    app = Celery("interop", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        task_default_queue=prefix,
        task_queues=[
            Queue(prefix),
            Queue(f"{prefix}.priority", queue_arguments={"x-max-priority": 10}),
            Broadcast(f"{prefix}.broadcast", queue=f"{prefix}.broadcast.{os.getpid()}"),
        ],
        task_routes={"interop.announce": {"exchange": f"{prefix}.broadcast", "exchange_type": "fanout"}},
        worker_send_task_events=True,
        worker_prefetch_multiplier=1,
        task_track_started=False,
        result_expires=300,
        result_chord_retry_interval=0.1,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=10,
        # kombu pools connections by their parameters: with its own name an app has its own pool to close.
        broker_transport_options={"client_properties": {"connection_name": prefix}},
        worker_hijack_root_logger=False,
        broker_use_ssl=tls_options(os.environ.get(CA, "")),
    )
    define_tasks(app)
    return app


def define_tasks(app: Celery) -> None:
    @app.task(name="interop.add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="interop.total", shared=False)
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(name="interop.fail", shared=False)
    def fail(text: str) -> None:
        raise ValueError(text)

    @app.task(name="interop.flaky", shared=False, bind=True, max_retries=5)
    def flaky(self: Any, failures: int) -> int:
        """Fails so many times before it answers how often it was retried."""
        if self.request.retries < failures:
            raise self.retry(countdown=0.2)
        return int(self.request.retries)

    @app.task(name="interop.announce", shared=False, ignore_result=True)
    def announce(folder: str) -> None:
        """Leaves a file named after the worker's process."""
        Path(folder, str(os.getpid())).touch()

    @app.task(name="interop.wait_for_file", shared=False, bind=True, acks_late=True, reject_on_worker_lost=True)
    def wait_for_file(self: Any, folder: str) -> bool:
        """Says in a file that it started, waits for the file `go`, answers whether it was redelivered."""
        started = Path(folder, f"started.{os.getpid()}")
        started.touch()
        deadline = time.monotonic() + 30
        while not Path(folder, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return bool(self.request.delivery_info["redelivered"])


if BROKER in os.environ:
    app = make_app(os.environ[BROKER], os.environ[BACKEND], os.environ[PREFIX])
