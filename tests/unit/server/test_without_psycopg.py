"""A broker without queues in PostgreSQL needs no client for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["penstock.server.server", "penstock.cli.serve", "penstock.testing"])
def test_a_broker_does_not_import_psycopg_before_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
