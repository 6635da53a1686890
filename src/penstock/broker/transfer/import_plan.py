"""What an import is going to make, checked against the broker and against itself. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.access_limits import VHOST_LIMITS, read_limits
from penstock.broker.access.permission import Permission, TopicPermission
from penstock.broker.access.user import User
from penstock.broker.definitions import arguments as args
from penstock.broker.definitions.postgres_arguments import check_backing, with_backing
from penstock.broker.definitions.restore import PREDECLARED_NAMES
from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.policies.parameters import check_component, check_parameter
from penstock.broker.policies.policy import Policy
from penstock.broker.policies.policy_check import checked_policy
from penstock.broker.transfer.imported_user import read_user
from penstock.broker.transfer.sections import Entry
from penstock.errors import AmqpError
from penstock.fields import Table
from penstock.limits import SHORT_STRING_BYTES_MAX
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding
from penstock.routing.factory import EXCHANGE_TYPES
from penstock.wire.tables import table_from_python

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

OPERATOR_POLICY: Final = "operator_policy"
LIMITS_COMPONENT: Final = "vhost-limits"


class WantedVHost(NamedTuple):
    name: str
    description: str
    tags: tuple[str, ...]


class WantedPermission(NamedTuple):
    user: str
    vhost: str
    permission: Permission


class WantedTopicPermission(NamedTuple):
    user: str
    vhost: str
    exchange: str
    permission: TopicPermission


class WantedParameter(NamedTuple):
    # None: a global one.
    vhost: str | None
    component: str
    name: str
    value: Any


class WantedPolicy(NamedTuple):
    vhost: str
    policy: Policy
    is_operator: bool


class WantedExchange(NamedTuple):
    vhost: str
    name: str
    type_name: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table


class WantedQueue(NamedTuple):
    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: Table


class WantedBinding(NamedTuple):
    vhost: str
    binding: Binding


class WantedLimits(NamedTuple):
    vhost: str
    limits: dict[str, int]


Wanted = (
    WantedVHost
    | User
    | WantedPermission
    | WantedTopicPermission
    | WantedParameter
    | WantedPolicy
    | WantedExchange
    | WantedQueue
    | WantedBinding
    | WantedLimits
)


class ImportPlan:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._vhosts = set(broker.vhosts)
        self._users = {user.name for user in broker.users.all()}
        # By vhost and name, of those that the file makes.
        self._exchanges: set[tuple[str, str]] = set()
        self._queues: set[tuple[str, str]] = set()
        self._readers: Final[dict[str, Callable[[Entry], Wanted | None]]] = {
            "vhosts": self._vhost,
            "users": self._user,
            "permissions": self._permission,
            "topic_permissions": self._topic_permission,
            "global_parameters": self._global_parameter,
            "parameters": self._parameter,
            "policies": self._policy,
            "exchanges": self._exchange,
            "queues": self._queue,
            "bindings": self._binding,
        }

    def read(self, section: str, entry: Entry) -> Wanted | None:
        """Return what an entry asks for; None when it is there in every broker. Raises BadRequest.

        Sections are read in their order: an entry may name what those before it make.
        """
        try:
            return self._readers[section](entry)
        except (BadAccess, AmqpError) as error:
            text = error.reply_text if isinstance(error, AmqpError) else str(error)
            raise entry.bad(f"cannot be taken: {text}") from None
        except BadRequest as error:
            raise (error if str(error).startswith(entry.where) else entry.bad(f"cannot be taken: {error}")) from None

    def _vhost(self, entry: Entry) -> WantedVHost:
        name = _name(entry, "name")
        about = Entry(entry.where, entry.table("metadata")) if "metadata" in entry else entry
        description, tags = about.text("description", ""), about.words("tags")
        self._vhosts.add(name)
        return WantedVHost(name, description, tuple(tags))

    def _user(self, entry: Entry) -> User:
        user = read_user(entry)
        self._users.add(user.name)
        return user

    def _permission(self, entry: Entry) -> WantedPermission:
        user, vhost = self._user_and_vhost(entry)
        permission = Permission(entry.text("configure"), entry.text("write"), entry.text("read"))
        return WantedPermission(user, vhost, permission)

    def _topic_permission(self, entry: Entry) -> WantedTopicPermission:
        user, vhost = self._user_and_vhost(entry)
        permission = TopicPermission(entry.text("write"), entry.text("read"))
        return WantedTopicPermission(user, vhost, entry.text("exchange"), permission)

    def _global_parameter(self, entry: Entry) -> WantedParameter:
        name, value = entry.text("name"), entry.value("value")
        check_parameter(name, value, 0)
        return WantedParameter(None, "", name, value)

    def _parameter(self, entry: Entry) -> WantedParameter | WantedPolicy | WantedLimits:
        vhost, component = self._known_vhost(entry), entry.text("component")
        if component == OPERATOR_POLICY:
            # RabbitMQ writes operator policies as parameters, with the policy as the value.
            return self._checked_policy(
                Entry(entry.where, {"name": entry.text("name"), **entry.table("value")}), vhost, True
            )
        if component == LIMITS_COMPONENT:
            return WantedLimits(vhost, read_limits(entry.table("value"), VHOST_LIMITS))
        check_component(component)
        name, value = entry.text("name"), entry.value("value")
        check_parameter(name, value, 0)
        return WantedParameter(vhost, component, name, value)

    def _policy(self, entry: Entry) -> WantedPolicy:
        return self._checked_policy(entry, self._known_vhost(entry), False)

    def _checked_policy(self, entry: Entry, vhost: str, is_operator: bool) -> WantedPolicy:
        policy = checked_policy(
            entry.text("name"),
            entry.text("pattern"),
            entry.table("definition"),
            entry.number("priority", 0),
            entry.text("apply-to", "all"),
            is_operator,
        )
        return WantedPolicy(vhost, policy, is_operator)

    def _exchange(self, entry: Entry) -> WantedExchange | None:
        vhost, name = self._known_vhost(entry), _name(entry, "name", least=0)
        if name in PREDECLARED_NAMES or name.startswith("amq."):
            return None
        type_name = entry.text("type")
        if type_name not in EXCHANGE_TYPES:
            raise entry.bad(f"has the type '{type_name[:64]}'; there are {', '.join(EXCHANGE_TYPES)}")
        arguments = _arguments(entry)
        args.check_exchange_arguments(arguments, f"exchange '{name}' in vhost '{vhost}'")
        self._exchanges.add((vhost, name))
        flags = (entry.flag("durable", True), entry.flag("auto_delete", False), entry.flag("internal", False))
        return WantedExchange(vhost, name, type_name, *flags, arguments)

    def _queue(self, entry: Entry) -> WantedQueue:
        vhost, name = self._known_vhost(entry), _name(entry, "name")
        durable, auto_delete = entry.flag("durable", True), entry.flag("auto_delete", False)
        described = f"queue '{name}' in vhost '{vhost}'"
        given = _arguments(entry)
        broker = self._broker
        arguments = with_backing(name, durable, auto_delete, False, given, broker.config.postgres_queues)
        args.check_queue_arguments(arguments, described)
        check_backing(name, durable, auto_delete, False, arguments, broker.postgres is not None, described)
        args.check_quorum_properties(arguments, durable, auto_delete, False, described)
        self._queues.add((vhost, name))
        return WantedQueue(vhost, name, durable, auto_delete, given)

    def _binding(self, entry: Entry) -> WantedBinding | None:
        vhost, source = self._known_vhost(entry), entry.text("source")
        kind, name = entry.text("destination_type"), entry.text("destination")
        if kind not in (QUEUE, EXCHANGE):
            raise entry.bad(f"needs a destination_type, '{QUEUE}' or '{EXCHANGE}'")
        if source == "":
            # Every queue is bound to the default exchange, by its name.
            return None
        if not self._has(vhost, EXCHANGE, source):
            raise entry.bad(f"is from exchange '{source[:64]}', which is neither in the file nor in the broker")
        if not self._has(vhost, kind, name):
            raise entry.bad(f"leads to {kind} '{name[:64]}', which is neither in the file nor in the broker")
        key = _name(entry, "routing_key", least=0)
        return WantedBinding(vhost, Binding(source, (kind, name), key, _arguments(entry)))

    def _has(self, vhost: str, kind: str, name: str) -> bool:
        planned = self._queues if kind == QUEUE else self._exchanges
        if (vhost, name) in planned or (kind == EXCHANGE and name in PREDECLARED_NAMES):
            return True
        there = self._broker.vhosts.get(vhost)
        return there is not None and name in (there.queues if kind == QUEUE else there.exchanges)

    def _known_vhost(self, entry: Entry) -> str:
        vhost = entry.text("vhost")
        if vhost not in self._vhosts:
            raise entry.bad(f"is in vhost '{vhost[:64]}', which is neither in the file nor in the broker")
        return vhost

    def _user_and_vhost(self, entry: Entry) -> tuple[str, str]:
        user = entry.text("user")
        if user not in self._users:
            raise entry.bad(f"is for user '{user[:64]}', who is neither in the file nor in the broker")
        return user, self._known_vhost(entry)


def _name(entry: Entry, key: str, least: int = 1) -> str:
    name = entry.text(key)
    if not least <= len(name.encode("utf-8", "surrogatepass")) <= SHORT_STRING_BYTES_MAX:
        raise entry.bad(f"needs '{key}', a text of {least} to {SHORT_STRING_BYTES_MAX} bytes")
    return name


def _arguments(entry: Entry) -> Table:
    try:
        return table_from_python(entry.table("arguments"))
    except (TypeError, ValueError) as error:
        raise entry.bad(f"has arguments that AMQP cannot have: {error}") from None
