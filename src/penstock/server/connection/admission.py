"""Who may connect: how many connections there are, and how many that have not logged in, from where.

A connection that does not log in costs only a descriptor, so it is easy to open many. They are counted by address. When
an address has its share, its oldest handshake makes room if it has had a second, which is more than a login needs; else
the newcomer is refused. So idle sockets lock no client out, and a thousand clients that come back at once are served in
the order in which they came.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING

from penstock import limits
from penstock.clock import Clock
from penstock.errors import not_allowed
from penstock.server.descriptors import DescriptorBudget

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

log = logging.getLogger("penstock.connection")


class Admission:
    def __init__(self, budget: DescriptorBudget, clock: Clock) -> None:
        self._budget = budget
        self._clock = clock
        # By address, the oldest first, with the time at which they came.
        self._handshakes: dict[str, dict[Connection, float]] = {}
        self._handshake_count = 0
        self._opened_count = 0
        # What was logged last, and how often it has happened since: a flood must not fill the log.
        self._said_s: dict[str, float] = {}
        self._unsaid = 0

    def admit(self, connection: Connection) -> bool:
        """Let a new connection begin its handshake; False when it is to be closed."""
        address = connection.address
        waiting = self._handshakes.get(address)
        if waiting is not None and len(waiting) >= self._budget.handshakes_per_address:
            if not self._make_room(address):
                limit = self._budget.handshakes_per_address
                self._say(f"connections from {address} are refused: {limit} of them have not logged in")
                return False
        elif self._handshake_count >= self._budget.handshakes:
            crowd = max(self._handshakes, key=lambda each: len(self._handshakes[each]))
            if not self._make_room(crowd):
                self._say(f"connections are refused: {self._handshake_count} of them have not logged in")
                return False
        self._handshakes.setdefault(address, {})[connection] = self._clock.monotonic_s()
        self._handshake_count += 1
        return True

    def _make_room(self, address: str) -> bool:
        """Drop the oldest handshake of an address; False when it is young."""
        oldest, since_s = next(iter(self._handshakes[address].items()))
        if self._clock.monotonic_s() - since_s < limits.PRE_AUTH_GRACE_S:
            return False
        self._say(f"connections from {address} that do not log in are closed: there are too many")
        self.handshake_over(oldest)
        oldest.drop()
        return True

    def handshake_over(self, connection: Connection) -> bool:
        """The connection has logged in, or is gone; False when that is known."""
        waiting = self._handshakes.get(connection.address)
        if waiting is None or waiting.pop(connection, None) is None:
            return False
        self._handshake_count -= 1
        if not waiting:
            del self._handshakes[connection.address]
        return True

    def open(self, connection: Connection) -> None:
        """The connection has logged in. Raises NOT_ALLOWED when there are as many as there can be."""
        if self._opened_count >= self._budget.connections:
            self._say(f"a login is refused: there are {self._opened_count} connections")
            raise not_allowed(f"connection refused: node connection limit ({self._budget.connections}) is reached")
        self.handshake_over(connection)
        self._opened_count += 1

    def closed(self, connection: Connection) -> None:
        self.handshake_over(connection)
        if connection.opened:
            self._opened_count -= 1

    def _say(self, text: str) -> None:
        """Log a line, each at most once in a while."""
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s.get(text, -limits.REFUSALS_LOGGED_S) >= limits.REFUSALS_LOGGED_S:
            if len(self._said_s) >= limits.REFUSALS_REMEMBERED_MAX:
                self._said_s.clear()
            self._said_s[text] = now_s
            log.warning("%s (%d more since the last line)", text, self._unsaid)
            self._unsaid = 0
        else:
            self._unsaid += 1


def address_key(host: str) -> str:
    """What counts as one address: an IPv4 address, or the 64 bits of an IPv6 address that one customer has."""
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
