"""The users of a broker and what they may do; changes are journaled, and the server hears of them.

Users come from two places. Those of the journal last. Those of the configuration (flags, environment) are made at each
start, as administrators, with full permissions where no others were set, and cover one of the journal with the same
name. The default user `guest` is one of the configuration, too. It leaves when another administrator comes, and
when it is deleted by hand; `change_password` makes it a user like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock import limits
from penstock.broker.access import access_records as records
from penstock.broker.access.access_error import BadAccess, NoSuchUser, UserExists
from penstock.broker.access.access_limits import USER_LIMITS, read_limits
from penstock.broker.access.access_records import AccessRecords, Json
from penstock.broker.access.password import PasswordHash, configured_password, waste_time
from penstock.broker.access.permission import Permission, TopicPermission
from penstock.broker.access.scram_verifier import ITERATIONS_IN_MEMORY, ScramVerifier, scram_verifier
from penstock.broker.access.user import ADMINISTRATOR, User, checked_tags, checked_user_name

if TYPE_CHECKING:
    from penstock.broker.definitions.definition_log import DefinitionLog

log = logging.getLogger("penstock.access")

FULL: Final = Permission()


class Users:
    def __init__(self, kept: AccessRecords | None = None) -> None:
        self.kept = AccessRecords() if kept is None else kept
        # Set when the broker is open: from then on changes are recorded.
        self.log: DefinitionLog | None = None
        self._configured: dict[str, User] = {}
        # The name of the default user while there is one.
        self._default = ""
        # Called with a user's name when its rights have changed, and when it was deleted.
        self.rights_changed: Callable[[str], None] = _unheard
        self.user_deleted: Callable[[str], None] = _unheard

    # --- looking up -----------------------------------------------------------------------------------

    def get(self, name: str) -> User | None:
        return self._configured.get(name) or self.kept.users.get(name)

    def find(self, name: str) -> User:
        user = self.get(name)
        if user is None:
            raise NoSuchUser(name)
        return user

    def all(self) -> list[User]:
        """Return all users, by name."""
        return [self.find(name) for name in sorted({*self._configured, *self.kept.users})]

    def permission(self, user: str, vhost: str) -> Permission | None:
        """Return what a user may do in a vhost; None: not even enter it."""
        found = self.kept.permissions.get((user, vhost))
        if user in self._configured:
            return found or FULL
        return found if user in self.kept.users else None

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        """Return the permission at an exchange; None: any routing key may be used."""
        return self.kept.topic_permissions.get((user, vhost, exchange))

    def topic_permissions_of(self, user: str) -> dict[tuple[str, str], TopicPermission]:
        """Return what a user may do at topic exchanges, by vhost and exchange."""
        return {
            (vhost, exchange): permission
            for (name, vhost, exchange), permission in self.kept.topic_permissions.items()
            if name == user
        }

    def is_configured(self, name: str) -> bool:
        return name in self._configured

    def authenticate(self, name: str, password: bytes) -> User | None:
        """Return the user, or None when name or password are wrong. Takes milliseconds where it is wrong."""
        user = self.get(name)
        return user if is_right(user, password) else None

    # --- the configuration ----------------------------------------------------------------------------

    def configure(self, name: str, password: str, is_default: bool = False) -> None:
        """Make a user of the configuration. The default one only while no administrator was made by hand."""
        if is_default:
            if self.kept.is_guest_deleted or name in self.kept.users or self._has_administrator():
                return
            self._default = name
        elif name in self.kept.users:
            log.warning("user %s was changed by hand; from this start on it is as the configuration says", ascii(name))
        raw = password.encode("utf-8", "surrogateescape")
        scram = scram_verifier(raw, iterations=ITERATIONS_IN_MEMORY)
        self._configured[name] = User(name, configured_password(raw), scram, (ADMINISTRATOR,))

    def _has_administrator(self) -> bool:
        return any(user.is_administrator for user in self.kept.users.values())

    def _retire_default(self) -> None:
        """The default user goes when another administrator has come."""
        name = self._default
        if name and self._has_administrator():
            log.warning("the default user '%s' is gone: there is another administrator now", name)
            self._default = ""
            self._configured.pop(name, None)
            self.user_deleted(name)

    def default_user(self) -> User | None:
        """Return the default user while there is one."""
        return self._configured.get(self._default)

    def restore_default(self, user: User) -> None:
        """Have the default user back: the change that made it go is taken back."""
        self._configured[user.name] = user
        self._default = user.name

    def _changeable(self, name: str) -> User:
        if name in self._configured:
            raise BadAccess(
                f"user '{name}' is as the configuration says: give it a password with change_password first, or change"
                " the configuration"
            )
        return self.find(name)

    # --- changes --------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        password: PasswordHash | None,
        scram: ScramVerifier | None = None,
        tags: Iterable[str] = (),
    ) -> User:
        if self.get(name) is not None:
            raise UserExists(name)
        user = User(checked_user_name(name), password, scram, checked_tags(list(tags)))
        self.put(user)
        return user

    def put(self, user: User) -> None:
        """Make a user of the journal, or replace it whole; its permissions stay."""
        if user.name not in self.kept.users and len(self.kept.users) >= limits.USERS_MAX:
            raise BadAccess(f"there are {limits.USERS_MAX} users already; delete some")
        if self._configured.pop(user.name, None) is not None and user.name == self._default:
            self._default = ""
        self.kept.users[user.name] = user
        self._record(records.user_changed(user))
        self._retire_default()
        self.rights_changed(user.name)

    def set_password(
        self, name: str, password: PasswordHash | None, scram: ScramVerifier | None, vhosts: Iterable[str] = ()
    ) -> None:
        """Give a user another password; None takes it away. Connections that are open stay.

        A user of the configuration becomes one of the journal, and keeps its permissions in the vhosts.
        """
        user = self.find(name)
        if name in self._configured:
            for vhost in vhosts:
                if (name, vhost) not in self.kept.permissions:
                    self.set_permission(name, vhost, FULL)
        self.put(replace(user, password=password, scram=scram))

    def set_tags(self, name: str, tags: Iterable[str]) -> None:
        checked = checked_tags(list(tags))
        if checked != self.find(name).tags:
            self.put(replace(self._changeable(name), tags=checked))

    def set_limits(self, name: str, given: object) -> None:
        """Set limits by name; those that are not named stay as they are."""
        user = self._changeable(name)
        self.put(replace(user, limits={**user.limits, **read_limits(given, USER_LIMITS)}))

    def clear_limits(self, name: str, which: str = "all") -> None:
        user = self._changeable(name)
        self.put(replace(user, limits=without_limit(user.limits, which, USER_LIMITS)))

    def delete(self, name: str) -> None:
        self.find(name)
        if name in self._configured:
            if name != self._default:
                raise BadAccess(f"user '{name}' comes from the configuration: take it out there, and start anew")
            self._default = ""
            del self._configured[name]
            self.kept.is_guest_deleted = True
            self._record(records.guest_deleted())
        self.kept.delete_user(name)
        self._record(records.user_deleted(name))
        self.user_deleted(name)

    def set_permission(self, user: str, vhost: str, permission: Permission) -> None:
        self.find(user)
        self._check_room()
        self.kept.permissions[user, vhost] = permission
        self._record(records.permission_set(user, vhost, permission))
        self.rights_changed(user)

    def clear_permission(self, user: str, vhost: str) -> None:
        self._changeable(user)
        self.kept.permissions.pop((user, vhost), None)
        self._record(records.permission_cleared(user, vhost))
        self.rights_changed(user)

    def set_topic_permission(self, user: str, vhost: str, exchange: str, permission: TopicPermission) -> None:
        self.find(user)
        self._check_room()
        self.kept.topic_permissions[user, vhost, exchange] = permission
        self._record(records.topic_permission_set(user, vhost, exchange, permission))
        self.rights_changed(user)

    def clear_topic_permissions(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Clear the permission at one exchange, or those at all exchanges of the vhost."""
        self.find(user)
        for name, at, each in list(self.kept.topic_permissions):
            if (name, at) == (user, vhost) and exchange in (None, each):
                del self.kept.topic_permissions[name, at, each]
                self._record(records.topic_permission_cleared(name, at, each))
        self.rights_changed(user)

    def vhost_deleted(self, vhost: str) -> None:
        """What users may do there goes with the vhost; the deletion itself is in the journal."""
        self.kept.delete_vhost(vhost)

    def _check_room(self) -> None:
        if len(self.kept.permissions) + len(self.kept.topic_permissions) >= limits.PERMISSIONS_MAX:
            raise BadAccess(f"there are {limits.PERMISSIONS_MAX} permissions already; clear some")

    def _record(self, change: Json) -> None:
        if self.log is not None:
            self.log.record(change)


def is_right(user: User | None, password: bytes) -> bool:
    """Return whether the user has this password. A refusal takes as long for whichever reason it is given."""
    stored = None if user is None else user.password
    # An empty password is refused, even for a user who was given one: as in RabbitMQ.
    if stored is not None and stored.matches(password) and password:
        return True
    if stored is None or not stored.is_slow:
        waste_time(password)
    return False


def without_limit(given: dict[str, int], which: str, known: tuple[str, ...]) -> dict[str, int]:
    if which == "all":
        return {}
    if which not in known:
        raise BadAccess(f"the limit '{which}' is not known; there are {' and '.join(known)}, or all")
    return {name: value for name, value in given.items() if name != which}


def _unheard(name: str) -> None:
    return None
