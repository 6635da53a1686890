"""What users type by mistake, or only once: they are told what helps, and nothing that is not so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.cli.conftest import Serve
from tests.cli.process import environment


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)


def test_a_broker_that_does_not_tell_its_queues_is_asked_by_name() -> None:
    with Broker() as broker:
        put = penstock("put", "orders", "one", "--url", broker.url)
        assert (put.returncode, put.stderr) == (0, "")
        nothing = penstock("queues", "--url", broker.url)
        assert (nothing.returncode, nothing.stdout) == (1, "")
        assert "name them" in nothing.stderr
        named = penstock("queues", "orders", "--url", broker.url, "--json")
        assert (named.returncode, json.loads(named.stdout)["ready_count"]) == (0, 1)


def test_a_first_put_is_no_error_in_the_log_of_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with Broker() as broker:
        assert penstock("put", "orders", "one", "--url", broker.url).returncode == 0
        assert penstock("put", "orders", "two", "--url", broker.url).returncode == 0
    assert "NOT_FOUND" not in caplog.text
    assert "closed:" not in caplog.text


def test_a_vhost_without_a_name_is_refused() -> None:
    ended = penstock("serve", "--in-memory", "--port", "0", "--vhost", "")
    assert ended.returncode == 1
    assert "give --vhost NAME" in ended.stderr


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc: no place where no folder can be made")
def test_a_folder_that_cannot_be_made_is_not_to_be_checked() -> None:
    ended = penstock("serve", "--port", "0", "--data-dir", "/proc/foo")
    assert ended.returncode == 1
    assert "cannot make the data folder /proc/foo" in ended.stderr
    assert "fsck" not in ended.stderr


def test_who_reads_the_first_lines_of_a_dump_sees_nothing_else(serve: Serve, tmp_path: Path) -> None:
    broker = serve("--port", "0", "--data-dir", str(tmp_path / "data")).ready()
    with broker.client() as client:
        for number in range(2000):
            client.declare(1, f"a queue with quite a long name {number}", durable=True)
    broker.stop()
    [segment] = (tmp_path / "data" / "journal").glob("*.pnj")
    command = [sys.executable, "-m", "penstock", "dump", str(segment), "--limit", "100000"]
    dumping = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert dumping.stdout is not None
    assert dumping.stderr is not None
    assert dumping.stdout.readline()
    dumping.stdout.close()
    assert dumping.stderr.read() == b""
    dumping.stderr.close()
    dumping.wait(60)
