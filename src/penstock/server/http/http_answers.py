"""What HTTP asks of the broker itself: who may come in, the counters of the queues, the messages in a queue.

All calls are made on the broker's loop. They return within one turn, but for a login that has to wait because
passwords were guessed.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.operations.call_errors import CallError, find_queue
from penstock.broker.operations.messages.message_walk import HELD, Seen, Walk
from penstock.history.endpoint import Access, NoSuchQueue
from penstock.history.indexing import parse_queue_label
from penstock.server.connection.admission import address_key
from penstock.server.connection.login_guard import LOOK_AGAIN_S, LoginGuard
from penstock.server.connection.password_checks import PasswordChecks
from penstock.store.queue.stored_queue import Counters

# Of one page: in base64 these are 4 MiB.
PAGE_BYTES_MAX: Final = 3 * 1024 * 1024


class BrokerAnswers:
    def __init__(self, broker: Broker, guard: LoginGuard, checks: PasswordChecks) -> None:
        self._checks = checks
        self._broker = broker
        self._guard = guard

    async def access(self, name: str, password: bytes, peer: str) -> Access:
        """Check a login. History shows everything, so it is for users who may do everything."""
        address = address_key(peer)
        await self._wait_for_turn(address, name, password)
        users = self._broker.users
        user = await self._checks.check_soon(name, password)
        if user is None or (name in self._broker.config.loopback_users and not is_loopback(peer)):
            self._guard.refused(address, name)
            return Access.UNKNOWN
        self._guard.succeeded(address, name)
        for vhost in self._broker.vhosts:
            permission = users.permission(name, vhost)
            if permission is None or not permission.allows_everything():
                return Access.FORBIDDEN
        return Access.GRANTED

    async def _wait_for_turn(self, address: str, name: str, password: bytes) -> None:
        """Return when a login may be looked at, or when another one of this user from there has succeeded."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._guard.wait_s(address, name)
        if due_s > loop.time() or not self._checks.is_known(name, password):
            self._guard.take_turn(address, name)
        while (left_s := due_s - loop.time()) > 0 and self._guard.wait_s(address, name) > 0:
            await asyncio.sleep(min(left_s, LOOK_AGAIN_S))

    def counters(self) -> dict[str, Any]:
        """What the durable queues hold, and the LSN below which the journal's events explain it.

        A queue that never had a message is not among them: the journal does not know it either.
        """
        node = self._broker.node
        if node is None:
            return {"lsn": 0, "queues": []}
        # A queue that has taken messages from their places still has them; the levels of one with priorities do not.
        ready = {
            queue.queue_id: queue.ready_count()
            for vhost in self._broker.vhosts.values()
            for queue in vhost.all_queues()
            if not queue.crashed
        }
        queues = []
        for queue_no, stored in sorted(node.registry.open_queues.items()):
            name = node.registry.names.name(queue_no)
            if name is not None:
                label = parse_queue_label(name.label())
                queues.append(_counters(queue_no, label, stored.counters(), ready.get(name.queue_id)))
        return {"lsn": node.journal.next_lsn, "queues": queues}

    def messages(self, vhost_name: str, queue_name: str, from_seq: int, count: int) -> dict[str, Any]:
        """Return messages from a number on, with those that are with consumers; nothing is disturbed."""
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            raise NoSuchQueue
        try:
            queue = find_queue(vhost, queue_name)
        except CallError:
            raise NoSuchQueue from None
        walk = Walk(queue, from_seq, count, with_unacked=True, bytes_max=PAGE_BYTES_MAX)
        found: list[dict[str, Any]] = []
        room = PAGE_BYTES_MAX
        for seen in walk.messages():
            room -= len(seen.entry[1]) + len(seen.entry[0].properties)
            if found and room < 0:
                return {"messages": found, "next": seen.seq_id}
            found.append(_message(seen))
        return {"messages": found, "next": walk.next_seq_id}


def is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.split("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _counters(queue_no: int, label: dict[str, Any], stored: Counters, ready: int | None) -> dict[str, Any]:
    stored_ready, depth, persistent_count, persistent_bytes = stored
    ready = stored_ready if ready is None else ready
    return {
        "queue_no": queue_no,
        "vhost": label["vhost"],
        "queue": label["queue"],
        "ready": ready,
        "unacked": depth - ready,
        "persistent_count": persistent_count,
        "persistent_bytes": persistent_bytes,
    }


def _message(seen: Seen) -> dict[str, Any]:
    envelope, body, props = seen.entry
    expiry_ms = -1 if props is None or seen.state == HELD else props.expiry_ms
    return {
        "seq": seen.seq_id,
        "state": seen.state,
        "redelivered": seen.redelivered,
        "exchange": _text(envelope.exchange),
        "routing_key": _text(envelope.routing_key),
        "persistent": envelope.persistent,
        "priority": envelope.priority,
        # Wall clock, milliseconds.
        "expires": None if expiry_ms < 0 else expiry_ms,
        # The last octet of a stored body is not the publisher's.
        "size": len(body) - 1,
        "properties": envelope.properties,
        "body": body[:-1],
    }


def _text(name: str) -> str:
    """Names that are not UTF-8 are kept as they came; JSON has no such characters."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
