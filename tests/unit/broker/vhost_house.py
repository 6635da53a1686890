"""A vhost with short ways to declare, bind and ask where messages go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.backing.volatile import VolatileBackingQueues
from penstock.broker.vhost.queue_backings import QueueBackings
from penstock.broker.vhost.vhost import VHost
from penstock.clock import ManualClock
from penstock.errors import AmqpError
from penstock.fields import Table
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue


class Reader(Consumer):
    """A consumer that does nothing but note that it was cancelled."""

    def __init__(self) -> None:
        super().__init__("c", 0, True, True, False)
        self.cancelled = False

    def notify_work(self) -> None:
        pass

    def cancelled_by_queue(self) -> None:
        self.cancelled = True


class Connection:
    """An owner of exclusive queues."""


class House:
    def __init__(self) -> None:
        self.vhost = VHost("/", QueueBackings(VolatileBackingQueues(), None, None), ManualClock(), ExpirySchedule())

    def queue(
        self,
        name: str = "q",
        durable: bool = False,
        auto_delete: bool = False,
        owner: Connection | None = None,
        arguments: Table | None = None,
    ) -> Queue:
        return self.vhost.declare_queue(name, durable, auto_delete, owner, arguments or {})

    def server_named_queue(self, arguments: Table | None = None) -> Queue:
        name = self.vhost.new_queue_name()
        return self.vhost.declare_server_named_queue(name, False, False, None, arguments or {})

    def exchange(
        self,
        name: str = "x",
        type_name: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        self.vhost.declare_exchange(name, type_name, durable, auto_delete, internal, arguments or {})

    def bind(self, source: str, queue: str, key: str = "", arguments: Table | None = None) -> None:
        self.vhost.bind_queue(source, self.vhost.queues[queue], key, arguments or {})

    def unbind(self, source: str, queue: str, key: str = "", arguments: Table | None = None) -> None:
        self.vhost.unbind_queue(source, queue, key, arguments or {})

    def link(self, source: str, destination: str, key: str = "") -> None:
        self.vhost.bind_exchange(source, destination, key, {})

    def unlink(self, source: str, destination: str, key: str = "") -> None:
        self.vhost.unbind_exchange(source, destination, key, {})

    def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        return self.vhost.delete_queue(self.vhost.queues[name], if_unused, if_empty)

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        self.vhost.delete_exchange(name, if_unused)

    def route(self, exchange: str, *keys: str, headers: Table | None = None) -> list[str]:
        return [queue.name for queue in self.vhost.route(exchange, list(keys) or [""], headers)]

    def declared(self) -> set[str]:
        """Exchanges that are not there from the start."""
        return {name for name in self.vhost.exchanges if name and not name.startswith("amq.")}

    def check_registries(self) -> None:
        """Bindings are registered at both ends, and nothing is left of what is gone."""
        vhost = self.vhost
        at_sources = {binding.key for exchange in vhost.exchanges.values() for binding in exchange.bindings()}
        at_destinations = {key for bindings in vhost._bindings_to.values() for key in bindings}
        assert at_sources == at_destinations
        assert vhost._bindings_count == len(at_sources)
        assert all(vhost._bindings_to.values())
        for kind, name in vhost._bindings_to:
            assert name in (vhost.queues if kind == "queue" else vhost.exchanges)


def check_refused(text: str, call: Callable[[], object]) -> None:
    """The call is refused with this reply text, which begins with the name of its code."""
    with pytest.raises(AmqpError) as refused:
        call()
    assert refused.value.reply_text == text
