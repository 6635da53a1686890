"""The integration tests that py-amqp, kombu and Celery ship in their source packages, run as they are.

Nothing is downloaded here: PENSTOCK_CLIENT_SUITES names a folder with the unpacked packages, which
`client_suites.sh` prepares. See README.md next to this file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

FOLDER = os.environ.get("PENSTOCK_CLIENT_SUITES")


@dataclass(frozen=True)
class Suite:
    """What to run in the unpacked package `project`-*, and for how long at most."""

    project: str
    arguments: tuple[str, ...]
    timeout_s: int


SUITES = [
    # The tests of TLS need certificates that the package does not contain, and hosts on the internet.
    Suite("amqp", ("t/integration/test_rmq.py", "-k", "not tls"), 60),
    Suite("kombu", ("t/integration/test_py_amqp.py",), 120),
    # test_retry and test_trace_log_arguments fail on RabbitMQ too when results do not go through Redis;
    # test_replaced_task_nesting_level resets its flag after sending the task, which a quick broker overtakes.
    Suite(
        "celery",
        (
            "t/integration/test_inspect.py",
            "t/integration/test_tasks.py",
            "-k",
            "not test_retry and not test_trace_log_arguments and not test_replaced_task_nesting_level",
        ),
        400,
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.skipif(not FOLDER, reason="PENSTOCK_CLIENT_SUITES is not set (tests/interop/client_suites.sh sets it)")
@pytest.mark.parametrize("suite", SUITES, ids=[suite.project for suite in SUITES])
def test_the_integration_tests_of_the_client_pass(broker_url: str, suite: Suite) -> None:
    assert FOLDER is not None
    unpacked = [path for path in sorted(Path(FOLDER).glob(f"{suite.project}-*")) if path.is_dir()]
    assert unpacked, f"no unpacked {suite.project} in {FOLDER}"
    own_python = Path(FOLDER, "venv", "bin", "python")
    python = str(own_python) if own_python.exists() else sys.executable
    parts = urlsplit(broker_url)
    environment = {
        **os.environ,
        "RABBITMQ_HOST": str(parts.hostname),
        "RABBITMQ_5672_TCP": str(parts.port),
        "TEST_BROKER": f"pyamqp://guest:guest@{parts.hostname}:{parts.port}//",
        "TEST_BACKEND": "rpc://",
    }
    # Warnings of an older or newer pytest are the clients' business; their cache stays out of the folder.
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *suite.arguments]
    run = subprocess.run(
        command,
        cwd=unpacked[-1],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=suite.timeout_s,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
