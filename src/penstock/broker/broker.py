"""The broker without its sockets: vhosts, users, the expiry schedule, alarms."""

from __future__ import annotations

from penstock.backing.volatile import VolatileBackingQueues
from penstock.broker.alarms import MemoryAlarm
from penstock.broker.direct_reply import DirectReplies
from penstock.broker.users import Permission, User, Users
from penstock.broker.vhost import VHost
from penstock.clock import Clock, SystemClock
from penstock.config import Config
from penstock.queues.expiry import ExpirySchedule


class Broker:
    """Everything that all connections share."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.expiries = ExpirySchedule()
        self.users = Users()
        self.vhosts: dict[str, VHost] = {}
        self.direct_replies = DirectReplies()
        self.memory_alarm = MemoryAlarm(config.memory_bytes_max, self.ram_bytes)
        for name in config.vhosts:
            self.add_vhost(name)
        for user_config in config.users:
            user = User(user_config.name, user_config.password, user_config.loopback_only)
            for vhost in config.vhosts:
                user.permissions[vhost] = Permission()
            self.users.add(user)

    def add_vhost(self, name: str) -> VHost:
        vhost = VHost(name, VolatileBackingQueues(), self.clock, self.expiries)
        self.vhosts[name] = vhost
        return vhost

    def ram_bytes(self) -> int:
        """What waiting messages cost, over all queues."""
        return sum(vhost.ram_bytes() for vhost in self.vhosts.values())

    def connection_closed(self, owner: object) -> None:
        """A connection is gone: its exclusive queues go too."""
        for vhost in self.vhosts.values():
            vhost.connection_closed(owner)
