"""A machine without descriptors, and a disk that is slower than its publishers: everybody waits, nothing ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pamqp import commands

from tests.crash.broker_process import BrokerProcess
from tests.crash.ledger import QUEUE, Ledger, everything_in
from tests.crash.link import LinkLost
from tests.interop.deadline import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of a running process are Linux's")

MIB = 1024 * 1024
# So large a body gets a file of its own.
LARGE = 4_200_000


def set_descriptors(broker: BrokerProcess, soft: int) -> None:
    """Change the soft limit of a running broker: below what it has open, every open fails with EMFILE."""
    import resource

    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def resident_mib(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmRSS")


@contextmanager
def stopped_disk(broker: BrokerProcess) -> Iterator[None]:
    """No sync ends meanwhile."""
    (child,) = broker.children()
    os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)


def check_kept(tmp_path: Path, publisher: Ledger) -> None:
    with BrokerProcess(tmp_path / "data", tmp_path / "after.log").wait_until_ready() as broker:
        assert sorted(everything_in(broker)) == sorted(publisher.confirmed)
        assert broker.stop() == 0


def test_a_process_without_descriptors_lets_publishers_wait_and_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log").wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish(3, LARGE)
        other = broker.connect()
        set_descriptors(broker, 4)
        publisher.send(1, LARGE)
        wait_until(lambda: "the journal cannot be written now" in broker.text, "the broker says that it waits")
        # Nobody is told that the disk has failed, and what needs no file goes on.
        publisher.take_answers(0.2)
        assert (publisher.open_count, publisher.refused) == (1, [])
        assert other.call(commands.Queue.Declare(0, QUEUE, passive=True), commands.Queue.DeclareOk).message_count == 4
        set_descriptors(broker, 1024)
        publisher.wait_until(lambda: publisher.open_count == 0, "the confirms come")
        assert publisher.refused == []
        publisher.publish(3, LARGE)
        assert broker.connect()
        assert "Traceback" not in broker.text
        broker.kill()
    check_kept(tmp_path, publisher)


def test_idle_sockets_do_not_take_the_descriptors_of_the_store(tmp_path: Path) -> None:
    prefix = ["prlimit", "--nofile=256:256"]
    idle: list[socket.socket] = []
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log", prefix=prefix).wait_until_ready() as broker:
        publisher = Ledger(broker)

        def crowd() -> None:
            """As many idle sockets as the broker takes, and some more."""
            while len(idle) < 600:
                client = socket.socket()
                client.settimeout(5)
                client.connect(("127.0.0.1", broker.port))
                idle.append(client)

        crowd()
        assert descriptors(broker) < 200
        # Files of their own, as many as there would be no room for.
        publisher.publish(30, LARGE)
        assert (publisher.refused, broker.process.poll()) == ([], None)
        # A client from the same address gets in, as soon as one of the idle ones has had its second.
        wait_until(lambda: logs_in(broker), "a client logs in")
        for client in idle:
            client.close()
        assert "Traceback" not in broker.text
        broker.kill()
    check_kept(tmp_path, publisher)


def logs_in(broker: BrokerProcess) -> bool:
    try:
        broker.connect().close()
    except LinkLost:
        return False
    return True


def test_logins_beyond_what_the_process_can_have_are_refused_with_a_reason(tmp_path: Path) -> None:
    prefix = ["prlimit", "--nofile=160:160"]
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log", prefix=prefix).wait_until_ready() as broker:
        publisher = Ledger(broker)
        with pytest.raises(LinkLost, match=r"530 NOT_ALLOWED - connection refused: node connection limit \(\d+\)"):
            [broker.connect() for _ in range(200)]
        publisher.publish(10, LARGE)
        assert publisher.refused == []


@pytest.mark.parametrize("size", [3_000, 100_000], ids=["in the journal", "in the shared store"])
def test_a_disk_that_stands_still_holds_publishers_and_not_their_messages_in_memory(size: int, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", tmp_path / "broker.log").wait_until_ready() as broker:
        publisher = Ledger(broker)
        publisher.publish(20, size)
        other = broker.connect()
        before_mib = resident_mib(broker)
        count = 60 * MIB // size
        failures: list[BaseException] = []

        def send() -> None:
            try:
                for _ in range(count // 100):
                    publisher.send(100, size)
            except LinkLost as lost:
                failures.append(lost)

        with stopped_disk(broker):
            sender = threading.Thread(target=send)
            sender.start()
            # It comes to a halt: the broker does not take more.
            halted = wait_for_standstill(broker)
            assert sender.is_alive(), "everything was taken"
            assert halted - before_mib < 45, f"{halted - before_mib} MiB more"
            # Others are served meanwhile.
            other.call(commands.Queue.Declare(0, "transient"), commands.Queue.DeclareOk)
            assert publisher.refused == []
        publisher.wait_until(lambda: not sender.is_alive(), "all is sent")
        publisher.wait_until(lambda: publisher.open_count == 0, "the confirms come")
        assert (failures, publisher.refused) == ([], [])
        assert broker.process.poll() is None
        broker.kill()
    check_kept(tmp_path, publisher)


def wait_for_standstill(broker: BrokerProcess) -> int:
    """The broker's memory when it has stopped growing."""
    deadline = time.monotonic() + 60
    seen = resident_mib(broker)
    quiet = 0
    while quiet < 5 and time.monotonic() < deadline:
        assert broker.runs_for(0.1), broker.text[-2000:]
        now = resident_mib(broker)
        quiet = quiet + 1 if now - seen < 1 else 0
        seen = now
    return seen
