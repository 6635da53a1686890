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
from penstock.broker.access.access_limits import MAX_CHANNELS, MAX_CONNECTIONS, limit_of
from penstock.broker.access.user import User
from penstock.broker.vhost.vhost import VHost
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
        # Open connections by the name of their user, and of their vhost.
        self._of_user: dict[str, set[Connection]] = {}
        self._of_vhost: dict[str, set[Connection]] = {}
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
        self._of_user.setdefault(connection.user.name, set()).add(connection)
        self._of_vhost.setdefault(connection.vhost.name, set()).add(connection)

    def closed(self, connection: Connection) -> None:
        self.handshake_over(connection)
        if connection.opened:
            self._opened_count -= 1
            for known, name in ((self._of_user, connection.user.name), (self._of_vhost, connection.vhost.name)):
                alike = known.get(name)
                if alike is not None:
                    alike.discard(connection)
                    if not alike:
                        del known[name]

    def of_user(self, name: str) -> list[Connection]:
        """Return the open connections of a user."""
        return list(self._of_user.get(name, ()))

    def of_vhost(self, name: str) -> list[Connection]:
        return list(self._of_vhost.get(name, ()))

    def check_limits(self, user: User, vhost: VHost) -> None:
        """Raise NOT_ALLOWED when the vhost or the user has as many connections as it may have."""
        limit = limit_of(vhost.limits, MAX_CONNECTIONS)
        if 0 <= limit <= len(self._of_vhost.get(vhost.name, ())):
            raise not_allowed(
                f"access to vhost '{vhost.name}' refused for user '{user.name}': connection limit ({limit}) is reached"
            )
        limit = limit_of(user.limits, MAX_CONNECTIONS)
        if 0 <= limit <= len(self._of_user.get(user.name, ())):
            raise not_allowed(f"Connection refused for user '{user.name}': user connection limit ({limit}) is reached")

    def check_channels(self, user: User) -> None:
        """Raise NOT_ALLOWED when the user has as many channels as it may have, over all connections."""
        limit = limit_of(user.limits, MAX_CHANNELS)
        if limit < 0:
            return
        count = 0
        for connection in self._of_user.get(user.name, ()):
            count += len(connection.channels)
        if count >= limit:
            raise not_allowed(
                f"number of channels opened for user '{user.name}' has reached the maximum allowed user limit of"
                f" ({limit})"
            )

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
