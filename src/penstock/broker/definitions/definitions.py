"""What lasts of a broker: vhosts, durable exchanges and queues, bindings between these; users and what they may do.

It is written in two forms, both JSON: whole, at each checkpoint, and change by change in between. A start takes the
whole one and applies the changes that came after it. The whole one is written in pieces, over several turns, and may
contain changes that came meanwhile. That is harmless, since applying is idempotent: a declaration replaces, a deletion
of what is not there does nothing, and every later change is applied too. What a deletion takes along (the bindings of
an exchange or a queue) is not written again: it follows here as it followed then.

Unknown keys are passed over, so that a later version may add some. Ids become names of folders, so only hex digits are
accepted for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.broker.access.access_limits import VHOST_LIMITS, read_limits
from penstock.broker.access.access_records import APPLY_ACCESS, AccessRecords
from penstock.broker.definitions.field_json import table_from_json, table_to_json
from penstock.broker.definitions.policy_records import APPLY_POLICY, PolicyRecords
from penstock.fields import Table
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding, BindingKey, Destination

# No declaration is larger: its arguments came in one frame. Octets that are not text double when they are written.
CHANGE_BYTES_MAX: Final = 4 * 1024 * 1024
# About so much of the whole is encoded at once: a fraction of a turn.
PIECE_BYTES: Final = 16 * 1024
ID: Final = re.compile("[0-9a-f]{8,64}")

Json = dict[str, Any]
# A list of the whole, and the key under which it stands.
Section = tuple[str, Iterable[Json]]


class BadDefinitions(Exception):
    """These are not definitions that this version understands."""


class NoSuchVHost(BadDefinitions):
    """The change is of a vhost that is not there: it was deleted while the whole was written, or a change is lost."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a change in vhost {name!r}, which is not there")
        self.name = name


@dataclass(slots=True)
class ExchangeDefinition:
    name: str
    type_name: str
    auto_delete: bool
    internal: bool
    arguments: Table


@dataclass(slots=True)
class QueueDefinition:
    name: str
    queue_id: str
    auto_delete: bool
    arguments: Table
    # It hands out nothing until it is resumed.
    paused: bool = False


@dataclass(slots=True)
class VHostDefinitions:
    name: str
    vhost_id: str
    exchanges: dict[str, ExchangeDefinition] = field(default_factory=dict)
    queues: dict[str, QueueDefinition] = field(default_factory=dict)
    bindings: dict[BindingKey, Binding] = field(default_factory=dict)
    rules: PolicyRecords = field(default_factory=PolicyRecords)
    limits: dict[str, int] = field(default_factory=dict)
    # What people say about it.
    description: str = ""
    tags: tuple[str, ...] = ()
    _by_end: dict[Destination, dict[BindingKey, None]] = field(default_factory=dict)

    def bind(self, binding: Binding) -> None:
        if binding.key not in self.bindings:
            self.bindings[binding.key] = binding
            for end in _ends(binding):
                self._by_end.setdefault(end, {})[binding.key] = None

    def unbind(self, key: BindingKey) -> None:
        binding = self.bindings.pop(key, None)
        if binding is not None:
            for end in _ends(binding):
                self._by_end.get(end, {}).pop(key, None)

    def remove_bindings_of(self, end: Destination) -> None:
        for key in list(self._by_end.pop(end, {})):
            self.unbind(key)


def _ends(binding: Binding) -> tuple[Destination, Destination]:
    return (EXCHANGE, binding.source), binding.destination


class Definitions:
    def __init__(self) -> None:
        self.vhosts: dict[str, VHostDefinitions] = {}
        self.global_parameters: dict[str, Any] = {}
        self.deleted_vhosts: set[str] = set()
        self.access = AccessRecords()

    def vhost_of(self, change: Json) -> VHostDefinitions:
        """Return the vhost that a change is in; raises NoSuchVHost."""
        name = _name(change["vhost"])
        if name not in self.vhosts:
            raise NoSuchVHost(name)
        return self.vhosts[name]

    def apply(self, text: bytes) -> None:
        """Apply one change; raises BadDefinitions, and then has changed nothing."""
        if len(text) > CHANGE_BYTES_MAX:
            raise BadDefinitions(f"a change of {len(text)} bytes is larger than any that there can be")
        change = _parse(text)
        try:
            kind = change["kind"]
            if kind in APPLY_ACCESS:
                APPLY_ACCESS[kind](self.access, change)
            elif kind in APPLY_POLICY:
                APPLY_POLICY[kind](self.vhost_of(change).rules, change)
            else:
                APPLY[kind](self, change)
        except (KeyError, TypeError, ValueError) as error:
            # Changes of users have hashes of passwords in them; this text goes to the log.
            shown = b"a user" if b"password_hash" in text else text[:200]
            raise BadDefinitions(f"a change that is not understood: {shown!r}") from error

    def load(self, text: bytes) -> None:
        """Take what `encode_all` has made. However large it is: `limits` bound what clients can declare."""
        whole = _parse(text)
        try:
            for data in whole["vhosts"]:
                self._load_vhost(data)
            for parameter in whole.get("global_parameters", ()):
                _global_parameter_set(self, parameter)
            self.access.load(whole)
        except (KeyError, TypeError, ValueError) as error:
            raise BadDefinitions("the definitions are not understood") from error

    def _load_vhost(self, data: Json) -> None:
        vhost = VHostDefinitions(_name(data["name"]), _id(data["id"]))
        self.vhosts[vhost.name] = vhost
        vhost.limits = read_limits(data.get("limits", {}), VHOST_LIMITS)
        _describe(vhost, data)
        for exchange in data["exchanges"]:
            _add_exchange(vhost, exchange)
        for queue in data["queues"]:
            _add_queue(vhost, queue)
        for binding in data["bindings"]:
            vhost.bind(_binding(binding))
        vhost.rules.load(data)


def _parse(text: bytes) -> Json:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadDefinitions(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadDefinitions("not a JSON object")
    return data


# --- writing down -----------------------------------------------------------------------------------


# `json.dumps` would make one for each call.
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def encode_change(change: Json) -> bytes:
    return _TO_JSON.encode(change).encode()


def encode_all(vhosts: Iterable[Iterable[str]], sections: Iterable[Section] = ()) -> Iterator[bytes]:
    """Everything in pieces of about PIECE_BYTES: what `vhost_whole` makes of vhosts, and what else lasts, by key."""
    gathered: list[str] = []
    size = 0
    for text in _whole(vhosts, sections):
        gathered.append(text)
        size += len(text)
        if size >= PIECE_BYTES:
            yield "".join(gathered).encode()
            gathered.clear()
            size = 0
    yield "".join(gathered).encode()


def _whole(vhosts: Iterable[Iterable[str]], sections: Iterable[Section]) -> Iterator[str]:
    yield '{"version":1,"vhosts":['
    for number, vhost in enumerate(vhosts):
        if number:
            yield ","
        yield from vhost
    yield "]"
    for key, things in sections:
        yield from _listed(key, things)
    yield "}"


def vhost_whole(
    name: str,
    vhost_id: str,
    exchanges: Iterable[ExchangeDefinition],
    queues: Iterable[QueueDefinition],
    bindings: Iterable[Binding],
    sections: Iterable[Section] = (),
    about: Json | None = None,
) -> Iterator[str]:
    """One vhost as pieces of JSON, one for each thing in it; what it is made of is looked at piece by piece."""
    yield json.dumps({"name": name, "id": vhost_id, **(about or {})}, separators=(",", ":"))[:-1]
    yield from _listed("exchanges", map(exchange_json, exchanges))
    yield from _listed("queues", map(queue_json, queues))
    yield from _listed("bindings", map(binding_json, bindings))
    for key, things in sections:
        yield from _listed(key, things)
    yield "}"


def _listed(key: str, things: Iterable[Json]) -> Iterator[str]:
    separator = f',"{key}":['
    for thing in things:
        yield separator + json.dumps(thing, separators=(",", ":"))
        separator = ","
    yield "]" if separator == "," else separator + "]"


def exchange_json(exchange: ExchangeDefinition) -> Json:
    return {
        "name": exchange.name,
        "type": exchange.type_name,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table_to_json(exchange.arguments),
    }


def queue_json(queue: QueueDefinition) -> Json:
    data: Json = {
        "name": queue.name,
        "id": queue.queue_id,
        "auto_delete": queue.auto_delete,
        "arguments": table_to_json(queue.arguments),
    }
    if queue.paused:
        data["paused"] = True
    return data


def binding_json(binding: Binding) -> Json:
    kind, name = binding.destination
    return {
        "source": binding.source,
        "to": kind,
        "destination": name,
        "key": binding.routing_key,
        "arguments": table_to_json(binding.arguments),
    }


def vhost_declared(name: str, vhost_id: str, about: Json | None = None) -> Json:
    return {"kind": "vhost", "name": name, "id": vhost_id, **(about or {})}


def vhost_deleted(name: str, vhost_id: str) -> Json:
    return {"kind": "vhost deleted", "name": name, "id": vhost_id}


def vhost_limits_set(name: str, limits: dict[str, int]) -> Json:
    return {"kind": "vhost limits", "vhost": name, "limits": limits}


def exchange_declared(vhost: str, exchange: ExchangeDefinition) -> Json:
    return {"kind": "exchange", "vhost": vhost, **exchange_json(exchange)}


def exchange_deleted(vhost: str, name: str) -> Json:
    return {"kind": "exchange deleted", "vhost": vhost, "name": name}


def queue_declared(vhost: str, queue: QueueDefinition) -> Json:
    return {"kind": "queue", "vhost": vhost, **queue_json(queue)}


def queue_deleted(vhost: str, name: str) -> Json:
    return {"kind": "queue deleted", "vhost": vhost, "name": name}


def bound(vhost: str, binding: Binding) -> Json:
    return {"kind": "bound", "vhost": vhost, **binding_json(binding)}


def unbound(vhost: str, binding: Binding) -> Json:
    return {"kind": "unbound", "vhost": vhost, **binding_json(binding)}


def global_parameter_set(name: str, value: Any) -> Json:
    return {"kind": "global parameter", "name": name, "value": value}


def global_parameter_cleared(name: str) -> Json:
    return {"kind": "global parameter deleted", "name": name}


# --- reading ----------------------------------------------------------------------------------------


def _vhost_declared(definitions: Definitions, change: Json) -> None:
    name, vhost_id = _name(change["name"]), _id(change["id"])
    known = definitions.vhosts.get(name)
    if known is None or known.vhost_id != vhost_id:
        definitions.vhosts[name] = VHostDefinitions(name, vhost_id)
    _describe(definitions.vhosts[name], change)


def _describe(vhost: VHostDefinitions, data: Json) -> None:
    vhost.description = _name(data.get("description", ""))
    vhost.tags = tuple([_name(tag) for tag in data.get("tags", ())])


def _vhost_deleted(definitions: Definitions, change: Json) -> None:
    name, vhost_id = _name(change["name"]), _id(change["id"])
    definitions.deleted_vhosts.add(name)
    known = definitions.vhosts.get(name)
    if known is not None and known.vhost_id == vhost_id:
        del definitions.vhosts[name]
    if known is None or known.vhost_id == vhost_id:
        definitions.access.delete_vhost(name)


def _vhost_limits(definitions: Definitions, change: Json) -> None:
    definitions.vhost_of(change).limits = read_limits(change["limits"], VHOST_LIMITS)


def _exchange_declared(definitions: Definitions, change: Json) -> None:
    _add_exchange(definitions.vhost_of(change), change)


def _add_exchange(vhost: VHostDefinitions, data: Json) -> None:
    exchange = ExchangeDefinition(
        _name(data["name"]),
        _name(data["type"]),
        _flag(data["auto_delete"]),
        _flag(data["internal"]),
        table_from_json(data["arguments"]),
    )
    vhost.exchanges[exchange.name] = exchange


def _exchange_deleted(definitions: Definitions, change: Json) -> None:
    vhost = definitions.vhost_of(change)
    name = _name(change["name"])
    vhost.exchanges.pop(name, None)
    vhost.remove_bindings_of((EXCHANGE, name))


def _queue_declared(definitions: Definitions, change: Json) -> None:
    _add_queue(definitions.vhost_of(change), change)


def _add_queue(vhost: VHostDefinitions, data: Json) -> None:
    queue = QueueDefinition(
        _name(data["name"]),
        _id(data["id"]),
        _flag(data["auto_delete"]),
        table_from_json(data["arguments"]),
        _flag(data.get("paused", False)),
    )
    vhost.queues[queue.name] = queue


def _queue_deleted(definitions: Definitions, change: Json) -> None:
    vhost = definitions.vhost_of(change)
    name = _name(change["name"])
    vhost.queues.pop(name, None)
    vhost.remove_bindings_of((QUEUE, name))


def _bound(definitions: Definitions, change: Json) -> None:
    definitions.vhost_of(change).bind(_binding(change))


def _unbound(definitions: Definitions, change: Json) -> None:
    definitions.vhost_of(change).unbind(_binding(change).key)


def _global_parameter_set(definitions: Definitions, change: Json) -> None:
    definitions.global_parameters[_name(change["name"])] = change["value"]


def _global_parameter_cleared(definitions: Definitions, change: Json) -> None:
    definitions.global_parameters.pop(_name(change["name"]), None)


def _binding(data: Json) -> Binding:
    if data["to"] not in (QUEUE, EXCHANGE):
        raise ValueError("a binding leads to a queue or to an exchange")
    arguments = table_from_json(data["arguments"])
    return Binding(_name(data["source"]), (data["to"], _name(data["destination"])), _name(data["key"]), arguments)


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a name")
    return value


def _id(value: object) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise ValueError("not an id")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


APPLY: Final[dict[str, Callable[[Definitions, Json], None]]] = {
    "vhost": _vhost_declared,
    "vhost deleted": _vhost_deleted,
    "vhost limits": _vhost_limits,
    "exchange": _exchange_declared,
    "exchange deleted": _exchange_deleted,
    "queue": _queue_declared,
    "queue deleted": _queue_deleted,
    "bound": _bound,
    "unbound": _unbound,
    "global parameter": _global_parameter_set,
    "global parameter deleted": _global_parameter_cleared,
}
