"""A broker without sockets, in memory or on a simulated disk, and short ways to fill its queues and to read them."""

from __future__ import annotations

import random
from typing import Any

from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.broker.broker import Broker
from penstock.broker.vhost.vhost import VHost
from penstock.clock import ManualClock
from penstock.config import Config
from penstock.fields import Table
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer, Syncer
from penstock.message import ConfirmToken, Envelope, Incoming, body_bytes
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.queue import Queue
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions
from penstock.wire.properties import Properties, encode_properties
from penstock.wire.tables import table_from_python


class Puller(Consumer):
    """Gets what it pulls."""

    def __init__(self) -> None:
        super().__init__("c", 0, True, False, False)

    def notify_work(self) -> None:
        pass

    def cancelled_by_queue(self) -> None:
        pass


class House:
    """One broker. Its durable queues are there after `restart` and `crash`, if it has a disk."""

    def __init__(self, has_disk: bool, syncer: Syncer | None = None) -> None:
        self.has_disk = has_disk
        self._syncer = syncer or InlineSyncer()
        self.clock = ManualClock()
        self.disk = SimFiles(FaultPlan(Survival.NOTHING))
        self._start()

    def _start(self) -> None:
        node: NodeStore | None = None
        if self.has_disk:
            options = StoreOptions(JournalOptions(), reserve_bytes=0)
            node = NodeStore(self.disk, self._syncer, self.clock, options, random.Random(1).getrandbits)
        self.broker = Broker(Config(), self.clock, node)

    @property
    def vhost(self) -> VHost:
        return self.broker.vhosts["/"]

    def end_turn(self) -> None:
        if self.broker.node is not None:
            self.broker.node.end_turn()

    def restart(self) -> None:
        self.end_turn()
        self.broker.stop()
        self.disk = self.disk.copy()
        self._start()

    def crash(self) -> None:
        """The power fails: what was not synced is gone."""
        self.disk = self.disk.crash(random.Random(0).randrange)
        self._start()

    # --- queues ---------------------------------------------------------------------------------------

    def declare(self, name: str, **arguments: Any) -> Queue:
        """A queue that lasts as long as it can; x_max_length is x-max-length."""
        table: Table = table_from_python({key.replace("_", "-"): value for key, value in arguments.items()})
        return self.vhost.declare_queue(name, self.has_disk, False, None, table)

    def exchange(self, name: str, type_name: str, **arguments: Any) -> None:
        table = table_from_python({key.replace("_", "-"): value for key, value in arguments.items()})
        self.vhost.declare_exchange(name, type_name, self.has_disk, False, False, table)

    def bind(self, exchange: str, queue: str, key: str) -> None:
        self.vhost.bind_queue(exchange, self.vhost.queues[queue], key, {})

    def publish(
        self,
        *texts: str,
        queue: str = "q",
        exchange: str = "",
        key: str | None = None,
        headers: dict[str, object] | None = None,
        confirm: ConfirmToken | None = None,
        **properties: Any,
    ) -> None:
        """Persistent messages, each with an envelope of its own."""
        table = None if headers is None else table_from_python(headers)
        raw = encode_properties(Properties(delivery_mode=2, headers=table, **properties))
        routing_key = queue if key is None else key
        for text in texts:
            expiration = properties.get("expiration")
            envelope = Envelope(
                exchange,
                routing_key,
                raw,
                True,
                properties.get("priority") or 0,
                -1 if expiration is None else int(expiration),
            )
            for target in self.vhost.route(exchange, [routing_key], table):
                target.publish(Incoming(envelope, [text.encode() + b"\xce"]), confirm)

    def get(self, queue: str = "q") -> int:
        """Get the next message and keep it unacknowledged; its number."""
        run = self.vhost.queues[queue].get(False)
        assert run is not None
        return run.first_seq_id

    def bodies(self, queue: str = "q") -> list[str]:
        """What is ready, as a consumer gets it. The queue is empty then."""
        found: list[str] = []
        while (run := self.vhost.queues[queue].get(True)) is not None:
            found.extend([body_bytes(entry[1]).decode() for entry in run.entries])
        return found

    def pass_ms(self, milliseconds: int) -> None:
        """Time passes, and the timers of the server fire."""
        self.clock.advance(milliseconds / 1000)
        self.broker.expiries.run_due(self.clock.wall_ms())
        self.broker.tend_memory()

    def check(self) -> None:
        for queue in self.vhost.all_queues():
            queue.backing.check_invariants()
            if queue.selection is not None:
                queue.selection.check_invariants()
