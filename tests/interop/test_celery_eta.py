"""Tasks with an ETA do not keep a Celery worker from the tasks behind them, in two generations of kombu.

A worker keeps tasks with an ETA unacknowledged and asks for a higher prefetch instead. How kombu asks depends on what
the broker calls itself, and on kombu's generation: up to 5.6, and from 5.7 on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.interop import celery_app
from tests.interop.test_celery import Worker, close, delete_queues, send

ANSWER_S = 60
INSTALL_S = 300
FAR_AWAY_S = 3_600
OLDER = ("celery==5.6.2", "kombu==5.6.2", "amqp==5.3.1")


@pytest.fixture(scope="module")
def older_celery() -> Path:
    """A folder with Celery and kombu 5.6; it is kept for the next run of the tests."""
    folder = Path(tempfile.gettempdir()) / f"penstock-tests-{os.getuid()}-{'-'.join(OLDER).replace('==', '-')}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(dir=folder.parent))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(fresh), *OLDER]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if installed.returncode:
            shutil.rmtree(fresh)
            pytest.skip(f"{', '.join(OLDER)} cannot be installed: PyPI is not reached")
        try:
            fresh.rename(folder)
        except OSError:
            # Another process of the tests was as quick.
            shutil.rmtree(fresh)
    return folder


@pytest.fixture
def packages(request: pytest.FixtureRequest) -> Path | None:
    """Where the worker's Celery is; None for the one that is installed here."""
    if request.param == "kombu 5.6":
        folder = request.getfixturevalue("older_celery")
        assert isinstance(folder, Path)
        return folder
    assert tuple(map(int, version("kombu").split(".")[:2])) >= (5, 7), "this is the older generation"
    return None


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S + 2 * ANSWER_S)
@pytest.mark.parametrize("packages", ["kombu 5.6", "kombu 5.7"], indirect=True)
@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_a_task_runs_although_earlier_ones_with_an_eta_fill_the_prefetch(
    broker_url: str, tmp_path: Path, packages: Path | None, pool: str
) -> None:
    app = celery_app.make_app(broker_url, "rpc://", f"interop.eta.{uuid.uuid4().hex[:8]}")
    worker = Worker(app, tmp_path, pool, packages, concurrency=1)
    try:
        for _ in range(4):
            send(app, "add", 0, 0, countdown=FAR_AWAY_S)
        assert send(app, "add", 2, 3).get(timeout=ANSWER_S) == 5, worker.log.read_text()
    finally:
        worker.stop()
        delete_queues(app, app.conf.task_default_queue, f"{app.conf.task_default_queue}.priority")
        close(app)
