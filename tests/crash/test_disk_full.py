"""A disk without room: publishers wait or are refused, everybody else goes on, and what was confirmed stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from tests.crash.broker_process import BrokerProcess
from tests.crash.disks import MIB, fill_disk, free_bytes, small_disk
from tests.crash.ledger import Ledger, Reader, everything_in
from tests.crash.link import Link, LinkLost
from tests.crash.messages import ack_frame
from tests.interop.deadline import wait_until

pytestmark = pytest.mark.slow
DISK_MIB = 160


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_MIB) as folder:
        yield folder


def start(disk: Path, *arguments: str) -> BrokerProcess:
    return BrokerProcess(disk / "data", disk.parent / "broker.log", arguments).wait_until_ready()


def declare_many(link: Link, answered: list[str], what: str) -> None:
    """Several: the last page of the journal is there already, and takes some."""
    for number in range(200):
        name = f"{what}{number:03d}".ljust(200, "x")
        link.call(commands.Queue.Declare(0, name, durable=True), commands.Queue.DeclareOk)
        answered.append(name)


def test_publishers_are_blocked_before_the_disk_is_full_and_go_on_when_there_is_room(disk: Path) -> None:
    with start(disk, "--disk-limit", "40") as broker:
        publisher = Ledger(broker)
        publisher.publish(500)
        ballast = fill_disk(disk, left_bytes=20 * MIB)
        publisher.publish_until(lambda: publisher.link.is_blocked, "the publisher is told that it is blocked")
        late = broker.connect()
        late.call(commands.Queue.Declare(0, "during", durable=True), commands.Queue.DeclareOk)
        reader = Reader(broker)
        reader.take_at_least(500)
        ballast.unlink()
        publisher.wait_until(lambda: not publisher.link.is_blocked, "the publisher is told that it may go on")
        publisher.publish(100)
        assert publisher.refused == []
        reader.link.drop()
        broker.kill()
    with start(disk) as broker:
        left = everything_in(broker)
        assert set(publisher.confirmed) <= {*reader.ids, *left}
        broker.connect().call(commands.Queue.Declare(0, "during", passive=True), commands.Queue.DeclareOk)


def test_a_disk_that_fills_up_at_once_costs_refusals_but_nothing_that_was_confirmed(disk: Path) -> None:
    with start(disk, "--disk-limit", "1") as broker:
        publisher = Ledger(broker)
        publisher.publish(300)
        reader = Reader(broker)
        ballast = fill_disk(disk)
        publisher.publish_until(
            lambda: bool(publisher.refused) or publisher.link.is_blocked, "it is refused or blocked", size=3000
        )
        # Acknowledgements cannot be written now, and must not cost more than that.
        reader.take_at_least(300)
        assert broker.process.poll() is None
        ballast.unlink()
        publisher.wait_until(lambda: not publisher.link.is_blocked and not publisher.open_count, "it goes on")
        before = len(publisher.confirmed)
        publisher.publish(200)
        assert len(publisher.confirmed) == before + 200
        reader.link.drop()
        broker.kill()
    with start(disk) as broker:
        left = everything_in(broker)
        assert set(publisher.confirmed) <= {*reader.ids, *left}
        assert broker.stop() == 0
    with start(disk) as broker:
        assert everything_in(broker) == []


def test_a_broker_that_is_killed_on_a_full_disk_starts_when_there_is_room_again(disk: Path) -> None:
    with start(disk, "--disk-limit", "1") as broker:
        publisher = Ledger(broker)
        publisher.publish(300)
        ballast = fill_disk(disk)
        publisher.publish_until(
            lambda: bool(publisher.refused) or publisher.link.is_blocked, "it is refused or blocked", size=3000
        )
        broker.kill()
    # With nothing free it starts or says what to do; it does not hang and does not harm anything.
    fill_disk(disk)
    full = BrokerProcess(disk / "data", disk.parent / "full.log")
    assert wait_until(lambda: full.process.poll() is not None or "startup complete" in full.text, "it starts or ends")
    if full.process.poll() is not None:
        assert full.process.returncode == 1
        assert "Make room on that disk" in full.text
        assert "Traceback" not in full.text
    full.kill()
    ballast.unlink()
    with start(disk) as broker:
        left = everything_in(broker)
        assert set(publisher.confirmed) <= set(left)


def test_a_change_that_cannot_be_written_is_not_answered_as_done(disk: Path) -> None:
    with start(disk, "--disk-limit", "1") as broker:
        link = broker.connect()
        fill_disk(disk)
        wait_until(lambda: free_bytes(disk) == 0, "the disk is full")
        answered: list[str] = []
        # The reserve is given up for them, and is taken by somebody else.
        declare_many(link, answered, "reserved")
        assert not (disk / "data" / "reserve").exists()
        ballast = fill_disk(disk)
        wait_until(lambda: free_bytes(disk) == 0, "the disk is full again")
        with pytest.raises(LinkLost, match="541 INTERNAL_ERROR"):
            declare_many(link, answered, "refused")
        ballast.unlink()
        wait_until(lambda: free_bytes(disk) > MIB, "there is room")
        link = broker.connect()
        link.call(commands.Queue.Declare(0, "after", durable=True), commands.Queue.DeclareOk)
        broker.kill()
    with start(disk) as broker:
        link = broker.connect()
        for name in [*answered, "after"]:
            link.call(commands.Queue.Declare(0, name, passive=True), commands.Queue.DeclareOk)


def test_consumers_that_take_large_messages_make_room_for_publishers(disk: Path) -> None:
    # A mark that is reached before the disk is full, however fast it fills up.
    with start(disk, "--disk-limit", "60") as broker:
        publisher = Ledger(broker)
        publisher.publish_until(lambda: publisher.link.is_blocked, "the disk is nearly full", size=200_000)
        Reader(broker).take_all()
        publisher.wait_until(lambda: not publisher.link.is_blocked, "the publisher may go on")
        publisher.publish(10)
        assert publisher.refused == []


def test_consumers_that_take_small_messages_make_room_for_publishers(disk: Path) -> None:
    with start(disk, "--disk-limit", "60") as broker:
        publisher = Ledger(broker)
        publisher.publish_until(lambda: publisher.link.is_blocked, "the disk is nearly full", size=3000)
        Reader(broker).take_all()
        publisher.wait_until(lambda: not publisher.link.is_blocked, "the publisher may go on", timeout_s=60)
        publisher.publish(10)
        assert publisher.refused == []


@pytest.mark.parametrize(
    "size_mib",
    [
        # Room for a small reserve only.
        100,
        # Room for the reserve.
        450,
    ],
)
def test_with_nothing_free_consumers_can_still_make_room(size_mib: int, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_mib) as disk, start(disk, "--disk-limit", "1") as broker:
        publisher = Ledger(broker)
        publisher.publish(200, size=200_000)
        fill_disk(disk)
        reader = Reader(broker, acknowledges=False)
        reader.take_at_least(200)
        # In an order that takes more than the page of the journal that is there already.
        reader.link.send(b"".join([ack_frame(tag, False) for tag in (*range(1, 201, 2), *range(2, 201, 2))]))
        wait_until(lambda: free_bytes(disk) > 30 * MIB, "there is room again")
        assert set(publisher.confirmed) == set(reader.ids)
