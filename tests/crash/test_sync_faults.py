"""A disk that fails: confirms stop, the broker ends and says so, and the next start finds what was confirmed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.broker_process import BrokerProcess
from tests.crash.ledger import Ledger, everything_in
from tests.crash.link import LinkLost
from tests.server.amqp_client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the broker's own processes are found through Linux's /proc"),
]

# No segment of the journal is larger.
SEGMENTS_MAX_MIB = 200

# Both are what os.pwritev may be.
WRITES = "pwritev,pwritev2"


def check_strace() -> None:
    """Skips where it cannot be used."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace): no real EIO")
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"strace may not trace here: {tried.stderr.strip()}")


def inject(folder: Path, calls: str, how: str) -> list[str]:
    """A prefix that makes system calls of the broker or of its syncing process fail; counted in each thread."""
    check_strace()
    trace = ["-e", f"trace={calls}", "-e", f"inject={calls}:{how}"]
    return ["strace", "-f", "-qq", "-o", str(folder / "strace.log"), *trace]


def publish_until_it_fails(publisher: Ledger) -> None:
    """Until the broker has closed the connection or is gone."""
    with pytest.raises(LinkLost):
        publisher.publish_until(lambda: False, "the broker gives up")


def check_restart(tmp_path: Path, publisher: Ledger) -> None:
    """Everything that was confirmed is there, and the broker works."""
    assert publisher.confirmed, "nothing was confirmed before the fault: the test proves nothing"
    for life in range(2):
        with BrokerProcess(tmp_path / "data", tmp_path / f"after-{life}.log").wait_until_ready() as broker:
            left = everything_in(broker)
            assert not set(publisher.confirmed) - set(left)
            assert "damaged" not in broker.text
            # For the next life.
            publisher = Ledger(broker, name=f"p{life}")
            publisher.publish(100)
            assert len(publisher.confirmed) == 100
            assert broker.stop() == 0


@pytest.mark.parametrize(
    ("calls", "how"),
    [
        ("fdatasync", "error=EIO:when=12+"),
        # Once is enough: a sync that works afterwards proves nothing about the pages that were dropped.
        ("fdatasync", "error=EIO:when=12"),
        (WRITES, "error=EIO:when=12+"),
    ],
    ids=["fdatasync", "one fdatasync", "write"],
)
def test_an_error_of_the_disk_ends_the_broker_and_its_confirms(calls: str, how: str, tmp_path: Path) -> None:
    prefix = inject(tmp_path, calls, how)
    log = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", log, prefix=prefix).wait_until_ready() as broker:
        publisher = Ledger(broker)
        publish_until_it_fails(publisher)
        assert broker.wait_for_exit() == 1
        assert "stopped because the disk failed" in broker.text
        assert "Traceback" not in broker.text
    check_restart(tmp_path, publisher)


def test_a_write_that_finds_no_room_for_a_while_costs_refusals_only(tmp_path: Path) -> None:
    prefix = inject(tmp_path, WRITES, "error=ENOSPC:when=12..40")
    log = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", log, prefix=prefix).wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish_until(lambda: bool(publisher.refused), "a publish is refused")
        seen = len(publisher.confirmed)
        publisher.publish_until(lambda: len(publisher.confirmed) > seen + 50, "publishes are confirmed again")
        os.kill(broker.pid, signal.SIGKILL)
    check_restart(tmp_path, publisher)


def test_a_broker_whose_syncing_process_dies_ends_and_starts_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log").wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish(200)
        (child,) = broker.children()
        os.kill(child, signal.SIGKILL)
        publish_until_it_fails(publisher)
        assert broker.wait_for_exit() == 1
        assert "stopped because the disk failed" in broker.text
        assert "Traceback" not in broker.text
    check_restart(tmp_path, publisher)


def test_a_sync_that_hangs_holds_confirms_and_nothing_else(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log").wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish(200)
        (child,) = broker.children()
        os.kill(child, signal.SIGSTOP)
        # More than the broker would sync by itself.
        publisher.send(100, 3_900)
        reader = broker.connect()
        # It still takes connections and answers what needs no disk; and the confirms do not come.
        for _ in range(5):
            publisher.take_answers(0.1)
        assert publisher.open_count == 100
        # Heartbeats come, too: more of them than would fit in before the first second has passed.
        peer = Client("127.0.0.1", broker.port).handshake(heartbeat_s=1)
        for _ in range(4):
            peer.expect_heartbeat()
            peer.send_heartbeat()
        peer.drop()
        os.kill(child, signal.SIGCONT)
        publisher.wait_until(lambda: publisher.open_count == 0, "the confirms come")
        assert publisher.refused == []
        reader.close()
        broker.kill()
    check_restart(tmp_path, publisher)


def test_a_stop_does_not_wait_for_ever_for_a_sync_that_hangs(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", log, module="tests.crash.small_store").wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish(200)
        (child,) = broker.children()
        os.kill(child, signal.SIGSTOP)
        publisher.send(100, 3_900)
        publisher.take_answers(0.1)
        assert broker.stop() == 1
        assert broker.text.count("What was not synced was not confirmed") == 1
        assert "stopped because the disk failed" in broker.text
        assert "Traceback" not in broker.text
        assert not Path(f"/proc/{child}").exists()
    check_restart(tmp_path, publisher)


def test_the_loop_never_syncs_on_a_slow_disk(tmp_path: Path) -> None:
    """New segments of the journal, large bodies and definitions: all of it is synced by the process that syncs."""
    prefix = inject(tmp_path, "fsync,fdatasync", "delay_exit=5000")
    data = tmp_path / "data"
    trace = tmp_path / "strace.log"
    with BrokerProcess(data, tmp_path / "broker.log", prefix=prefix).wait_until_ready() as broker:
        (syncing,) = broker.children()
        started = len(trace.read_text().splitlines())
        publisher = Ledger(broker)
        for _ in range(20):
            # One that waits alone for its confirm is what may be synced on the spot.
            publisher.publish(1)
        for _ in range(SEGMENTS_MAX_MIB):
            publisher.publish(10, 100_000)
            publisher.publish(250, 3_900)
            if len(list((data / "journal").iterdir())) > 1:
                break
        else:
            pytest.fail("the journal has one segment still: the test proves nothing")
        syncs = trace.read_text().splitlines()[started:]
        broker.kill()
    assert len(syncs) > 20
    assert not [line for line in syncs if line.split()[0] != str(syncing)]
