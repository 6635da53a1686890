"""The Celery app of test_celery_restart: made by the test, and by the worker process that it starts."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

BROKER = "CRASH_CELERY_BROKER"
TASK = "crash.note"


def make_app(broker: str) -> Celery:
    app = Celery("crash", broker=broker, set_as_current=False)
    app.conf.update(
        task_default_queue="crash.celery",
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"confirm_publish": True},
        worker_hijack_root_logger=False,
    )

    @app.task(name=TASK, shared=False)
    def note(folder: str, name: str) -> None:
        """Says in a file that it started, waits for the file `go`, and says that it is done."""
        Path(folder, f"started.{name}").touch()
        deadline = time.monotonic() + 60
        while not Path(folder, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        Path(folder, f"done.{name}").touch()

    return app


if BROKER in os.environ:
    app = make_app(os.environ[BROKER])
