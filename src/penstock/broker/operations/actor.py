"""Who asks for an act, and from where.

The tags are RabbitMQ's. An administrator may do everything; a policymaker may set policies and parameters in the vhosts
that they may enter; a monitor may look at everything; a user with the tag management may look at what is in the vhosts
that they may enter. Each of the first three has the rights of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.broker.access.user import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER
from penstock.broker.operations.call_errors import NotAllowed

TAGS_THAT_MAY_LOOK: Final = frozenset((ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT))

# The names that the audit has for the owner of the data folder, who needs no user, and for what happens by itself.
OWNER: Final = "(owner)"
BROKER: Final = "(broker)"


class Actor:
    def __init__(
        self, name: str, tags: Iterable[str], address: str, via: str, may_enter: Callable[[str], bool]
    ) -> None:
        """`address` is the peer's, for the audit; `via` names the door: amqp, control, http."""
        self.name = name
        self.tags = frozenset(tags)
        self.address = address
        self.via = via
        self._may_enter = may_enter

    def require_administrator(self) -> None:
        if ADMINISTRATOR not in self.tags:
            raise NotAllowed(f"user '{self.name}' is not an administrator")

    def require_policymaker(self, vhost: str) -> None:
        """Raise unless the actor may set policies and parameters of the vhost."""
        if not self.tags & {ADMINISTRATOR, POLICYMAKER}:
            raise NotAllowed(f"user '{self.name}' is neither an administrator nor a policymaker")
        self.require_vhost(vhost)

    def require_monitoring(self) -> None:
        """Raise unless the actor may look at all vhosts, connections and the node."""
        if not self.tags & {ADMINISTRATOR, MONITORING}:
            raise NotAllowed(f"user '{self.name}' is neither an administrator nor a monitor")

    def require_management(self, vhost: str) -> None:
        """Raise unless the actor may look at what is in the vhost."""
        if not self.tags & TAGS_THAT_MAY_LOOK:
            raise NotAllowed(f"user '{self.name}' has none of the tags {', '.join(sorted(TAGS_THAT_MAY_LOOK))}")
        if not self.tags & {ADMINISTRATOR, MONITORING}:
            self.require_vhost(vhost)

    def require_vhost(self, vhost: str) -> None:
        if not self._may_enter(vhost):
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{self.name}'")


def owner(via: str) -> Actor:
    """Return the owner of the data folder, who could read and write all of it anyway."""
    return Actor(OWNER, [ADMINISTRATOR], "", via, _every_vhost)


def broker_itself() -> Actor:
    """Return who acts when nobody asked: a queue expires, an auto-delete exchange loses its last binding."""
    return Actor(BROKER, [], "", "broker", _every_vhost)


def _every_vhost(vhost: str) -> bool:
    return True
