"""The parts of one variable queue, made without the queue: a node on a disk in memory, tiny files."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.backing.variable.homes import Homes
from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.variable.tail import Tail
from penstock.backing.zones.msg_status import MsgStatus
from penstock.backing.zones.zones import Zones
from penstock.clock import ManualClock
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer
from penstock.message import Entry, Envelope, Incoming, MessageProps
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions
from penstock.store.queue.live_map import LiveMap
from penstock.store.shared.message_store import MessageStoreOptions

VHOST = "5e"
SLOTS = 4


def run_at_once(work: Callable[[], None]) -> None:
    work()


class Parts:
    """Homes, live map, pending messages, zones and tail, as a queue has them."""

    def __init__(self, embed_below: int = 60, durable: bool = True, read_ahead_count: int = 100) -> None:
        options = StoreOptions(
            JournalOptions(),
            MessageStoreOptions(file_bytes=4096),
            index_slots=SLOTS,
            embed_below=embed_below,
            reserve_bytes=0,
        )
        self.disk = SimFiles(FaultPlan(Survival.NOTHING))
        self.clock = ManualClock()
        self.node = NodeStore(self.disk, InlineSyncer(), self.clock, options, random.Random(1).getrandbits)
        self.node.open()
        self.queue_no = self.node.queue_number(VHOST, "0f", b"") if durable else -1
        self.homes = Homes(self.node, VHOST, "0f", SLOTS, run_at_once)
        self.live = LiveMap(SLOTS)
        self.pending = PendingAcks(self.homes)
        self.lost: list[MsgStatus] = []
        self.zones = Zones(self.homes, self.live, self.pending, self.lose, self.set_aside, read_ahead_count, 1 << 20)
        self.tail = Tail(self.homes, self.zones, self.queue_no)

    def lose(self, status: MsgStatus) -> None:
        self.lost.append(status)
        self.live.remove(status.seq_id, status.count)

    def set_aside(self, status: MsgStatus, error: OSError) -> None:
        self.pending.record(status, None)

    def commit(self) -> None:
        self.node.journal.commit(urgent=True)

    def publish(
        self, *payloads: bytes, persistent: bool = True, props: MessageProps | None = None, delivered: bool = False
    ) -> bool:
        bodies = [payload + b"\xce" for payload in payloads]
        return self.tail.publish(Incoming(envelope(persistent), bodies), props, delivered)

    def take(self, count: int) -> MsgStatus:
        """From the head, with bodies, in one run or a part of one."""
        head = self.zones.head_in_ram()
        assert head is not None
        return self.zones.take(min(count, head.count))

    def hand_out(self, count: int) -> None:
        """So many become pending."""
        while count:
            status = self.take(count)
            count -= status.count
            self.pending.record(status, status.entries())


def envelope(persistent: bool = True) -> Envelope:
    return Envelope("", "key", b"\x00\x00", persistent)


def entry(payload: bytes, persistent: bool = True, expiry_ms: int = -1) -> Entry:
    return envelope(persistent), payload + b"\xce", None if expiry_ms < 0 else MessageProps(expiry_ms)
