"""What a queue costs that nobody has published to: a hundred thousand of them are to fit into 400 MiB."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path

import pytest

from penstock.backing.nothing_yet import NOTHING_YET
from penstock.broker.broker import Broker
from penstock.broker.vhost.vhost import VHost
from penstock.clock import ManualClock
from penstock.config import Config
from penstock.disk.os_files import OsFiles
from penstock.errors import AmqpError
from penstock.journal.syncer import InlineSyncer
from penstock.message import Envelope, Incoming
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions
from penstock.store.node.queue_names import NUMBER_MAX, NUMBERS_KEPT, QueueName

QUEUES = 1000
# That is 200 MiB for all, besides what the broker itself takes.
BYTES_EACH_MAX = 2_000


def broker_in(folder: Path | None) -> Broker:
    if folder is None:
        return Broker(Config())
    clock = ManualClock()
    files = OsFiles(str(folder))
    return Broker(
        Config(), clock, NodeStore(files, InlineSyncer(), clock, StoreOptions(), random.Random(1).getrandbits)
    )


def declare(vhost: VHost, count: int) -> None:
    for number in range(count):
        vhost.declare_queue(f"queue-{number}", True, False, None, {})


def traced(vhost: VHost) -> int:
    """Bytes that each of many new queues takes."""
    gc.collect()
    tracemalloc.start()
    try:
        declare(vhost, QUEUES)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // QUEUES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["in memory", "on disk"])
def test_an_idle_queue_takes_little_more_than_its_name(kind: str, tmp_path: Path) -> None:
    broker = broker_in(None if kind == "in memory" else tmp_path)
    vhost = broker.vhosts["/"]
    vhost.declare_queue("first", True, False, None, {})
    assert traced(vhost) < BYTES_EACH_MAX
    broker.stop()


def test_a_queue_opens_its_backing_for_its_first_message_and_keeps_what_it_was_declared_with(tmp_path: Path) -> None:
    broker = broker_in(tmp_path)
    vhost = broker.vhosts["/"]
    idle, used = [vhost.declare_queue(name, True, False, None, {}) for name in ("idle", "used")]
    used.publish(Incoming(Envelope("", "used", b"\x00\x00", persistent=True), [b"one\xce"]), None)
    assert idle.backing is NOTHING_YET
    assert len(used) == 1
    assert idle.purge() == 0
    broker.stop()
    again = broker_in(tmp_path)
    queues = again.vhosts["/"].queues
    assert sorted(queues) == ["idle", "used"]
    assert queues["idle"].backing is NOTHING_YET
    assert len(queues["used"]) == 1
    again.vhosts["/"].delete_queue(queues["idle"], False, False)
    again.vhosts["/"].delete_queue(queues["used"], False, False)
    again.stop()
    assert not broker_in(tmp_path).vhosts["/"].queues


def test_idle_queues_are_not_asked_for_their_memory() -> None:
    broker = Broker(Config())
    declare(broker.vhosts["/"], QUEUES)
    assert len(broker.memory) == 0
    broker.vhosts["/"].queues["queue-7"].publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x\xce"]), None)
    assert len(broker.memory) == 1


def test_when_the_numbers_of_durable_queues_run_out_a_declaration_is_refused_and_what_is_declared_works(
    tmp_path: Path,
) -> None:
    broker = broker_in(tmp_path)
    vhost = broker.vhosts["/"]
    assert broker.node is not None
    names = broker.node.registry.names
    names.next_number = NUMBER_MAX - NUMBERS_KEPT
    vhost.declare_queue("last", True, False, None, {})
    names.next_number += 1
    with pytest.raises(AmqpError, match="PRECONDITION_FAILED - the numbers of durable queues are used up"):
        vhost.declare_queue("too many", True, False, None, {})
    assert "too many" not in vhost.queues
    vhost.declare_queue("transient", False, False, None, {})
    names.next_number = NUMBER_MAX
    vhost.queues["last"].publish(Incoming(Envelope("", "last", b"\x00\x00", persistent=True), [b"x\xce"]), None)
    assert len(vhost.queues["last"]) == 1
    with pytest.raises(OverflowError):
        names.new_number(QueueName("v", "q", b""))
    broker.stop()
    again = broker_in(tmp_path)
    assert len(again.vhosts["/"].queues["last"]) == 1
    again.stop()
