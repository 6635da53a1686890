"""The permission matrix: every method that names something, by users with every combination of rights, in two vhosts.

The objects are made anew for each case by an administrator. A case's answer is the name of the method that came back,
or how the channel or the connection was closed.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from itertools import product
from typing import Any, Final

from pamqp import base, commands

from tests.frame_socket import ConnectionEnded
from tests.server.amqp_client import Client

PASSWORD: Final = "secret"
RIGHTS: Final = ("configure", "write", "read")
GRANTED: Final = r"^(m-.*|amq\.default|amq\.gen.*)$"
OWN, OTHER = "/", "other"
ADMIN: Final = "m-admin"
# Full rights in the other vhost, none here; and full rights here, with a permission for routing keys.
ELSEWHERE: Final = "m-elsewhere"
TOPICAL: Final = "m-topical"
TOPIC_PATTERN: Final = r"^{username}\.ok"
ALLOWED_KEY: Final = f"{TOPICAL}.ok"

# Names that the broker makes up.
GENERATED: Final = re.compile(r"amq\.gen-[\w-]+")

X, Q, E = commands.Exchange, commands.Queue, commands.Basic
ALTERNATE: Final = {"alternate-exchange": "m-x"}
DEAD_LETTERS: Final = {"x-dead-letter-exchange": "m-x"}

METHODS: Final[dict[str, base.Frame]] = {
    "exchange.declare": X.Declare(0, "m-new", "direct"),
    "exchange.declare of one that exists": X.Declare(0, "m-x", "direct"),
    "exchange.declare with an alternate exchange": X.Declare(0, "m-new", "direct", arguments=ALTERNATE),
    "exchange.declare passive": X.Declare(0, "m-x", "direct", passive=True),
    "exchange.declare passive of one that does not exist": X.Declare(0, "m-new", "direct", passive=True),
    "exchange.declare of a name of the broker": X.Declare(0, "amq.new", "direct"),
    "exchange.declare of an unknown type": X.Declare(0, "m-new", "nonsense"),
    "exchange.delete": X.Delete(0, "m-x"),
    "exchange.delete of one that does not exist": X.Delete(0, "m-new"),
    "exchange.delete of one of the broker": X.Delete(0, "amq.direct"),
    "exchange.bind": X.Bind(0, "m-y", "m-x", "k"),
    "exchange.bind to one that does not exist": X.Bind(0, "m-new", "m-x", "k"),
    "exchange.bind of the default exchange": X.Bind(0, "m-y", "", "k"),
    "exchange.unbind": X.Unbind(0, "m-y", "m-x", "k"),
    "queue.declare": Q.Declare(0, "m-new"),
    "queue.declare of one that exists": Q.Declare(0, "m-q"),
    "queue.declare with a dead letter exchange": Q.Declare(0, "m-new", arguments=DEAD_LETTERS),
    "queue.declare of one that exists, with a dead letter exchange": Q.Declare(0, "m-q", arguments=DEAD_LETTERS),
    "queue.declare with a name of the broker's choice": Q.Declare(0, ""),
    "queue.declare of a name of the broker": Q.Declare(0, "amq.new"),
    "queue.declare passive": Q.Declare(0, "m-q", passive=True),
    "queue.declare passive of one that does not exist": Q.Declare(0, "m-new", passive=True),
    "queue.delete": Q.Delete(0, "m-q"),
    "queue.delete of one that does not exist": Q.Delete(0, "m-new"),
    "queue.purge": Q.Purge(0, "m-q"),
    "queue.purge of one that does not exist": Q.Purge(0, "m-new"),
    "queue.bind": Q.Bind(0, "m-q", "m-x", "k"),
    "queue.bind of one that does not exist": Q.Bind(0, "m-new", "m-x", "k"),
    "queue.bind to an exchange that does not exist": Q.Bind(0, "m-q", "m-new", "k"),
    "queue.bind to the default exchange": Q.Bind(0, "m-q", "", "k"),
    "queue.bind to a topic exchange": Q.Bind(0, "m-q", "m-topic", "not.ok"),
    "queue.bind to a topic exchange with an allowed key": Q.Bind(0, "m-q", "m-topic", ALLOWED_KEY),
    "queue.unbind": Q.Unbind(0, "m-q", "m-x", "k"),
    "queue.unbind from a topic exchange": Q.Unbind(0, "m-q", "m-topic", "not.ok"),
    "basic.consume": E.Consume(0, "m-q", "t"),
    "basic.consume of one that does not exist": E.Consume(0, "m-new", "t"),
    "basic.get": E.Get(0, "m-q"),
    "basic.get of one that does not exist": E.Get(0, "m-new"),
    "basic.qos": E.Qos(0, 1),
    "basic.cancel": E.Cancel("t"),
    "basic.recover": E.Recover(True),
    "confirm.select": commands.Confirm.Select(),
    "tx.select": commands.Tx.Select(),
    "tx.commit": commands.Tx.Commit(),
    "channel.flow": commands.Channel.Flow(True),
    "channel.close": commands.Channel.Close(200, "", 0, 0),
}
# Exchange, routing key, properties.
PUBLISHES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "basic.publish to an exchange": ("m-x", "k", {}),
    "basic.publish to the default exchange": ("", "m-q", {}),
    "basic.publish to an exchange that does not exist": ("m-new", "k", {}),
    "basic.publish to an internal exchange": ("m-internal", "k", {}),
    "basic.publish to a topic exchange": ("m-topic", "not.ok", {}),
    "basic.publish to a topic exchange with an allowed key": ("m-topic", ALLOWED_KEY, {}),
    "basic.publish to a topic exchange with another key in CC": ("m-topic", ALLOWED_KEY, {"headers": {"CC": ["no"]}}),
    "basic.publish in another's name": ("m-x", "k", {"user_id": "m-else"}),
}
ACTS: Final = (*METHODS, *PUBLISHES)


def user_name(rights: tuple[bool, bool, bool]) -> str:
    return "m-" + "".join(name[0] if has else "-" for name, has in zip(RIGHTS, rights, strict=True))


COMBINATIONS: Final = {user_name(rights): rights for rights in product((False, True), repeat=3)}
USERS: Final = (*COMBINATIONS, TOPICAL, ELSEWHERE)


def permissions() -> list[dict[str, str]]:
    """Who may do what, as definitions have it."""
    full = dict.fromkeys(RIGHTS, ".*")
    rows = [{"user": ADMIN, "vhost": vhost, **full} for vhost in (OWN, OTHER)]
    for name, rights in COMBINATIONS.items():
        patterns = {kind: GRANTED if has else "" for kind, has in zip(RIGHTS, rights, strict=True)}
        rows.append({"user": name, "vhost": OWN, **patterns})
    rows.append({"user": TOPICAL, "vhost": OWN, **full})
    rows.append({"user": ELSEWHERE, "vhost": OTHER, **full})
    return rows


class Matrix:
    """Runs the cases on one broker."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    def run(self, user: str, vhost: str) -> dict[str, str]:
        """What the broker says to each act of the user; to the connection, when it is refused."""
        answers: dict[str, str] = {}
        with ExitStack() as open_ones:
            client = open_ones.enter_context(Client(self._host, self._port))
            refused = _opened(client, user, vhost)
            if refused:
                return {"connection.open": refused}
            admin = open_ones.enter_context(Client(self._host, self._port))
            admin.handshake(ADMIN, PASSWORD, vhost)
            admin.open_channel(1)
            for number, act in enumerate(ACTS, 1):
                _furnish(admin)
                answers[act] = _answer(client, number, act)
                if answers[act].startswith("connection"):
                    client = open_ones.enter_context(Client(self._host, self._port))
                    client.handshake(user, PASSWORD, vhost)
                elif answers[act].startswith("channel"):
                    client.send(number, commands.Channel.CloseOk())
                elif act != "channel.close":
                    client.call(number, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
            _clear(admin)
        return answers


def _answer(client: Client, number: int, act: str) -> str:
    client.open_channel(number)
    if act in METHODS:
        client.send(number, METHODS[act])
    else:
        exchange, key, properties = PUBLISHES[act]
        client.publish(number, key, b"x", exchange=exchange, **properties)
        # No right is needed for this one: it is answered when the publish went well.
        client.send(number, X.Declare(0, "amq.direct", "direct", passive=True))
    return _said(client, number)


def _opened(client: Client, user: str, vhost: str) -> str:
    try:
        client.handshake(user, PASSWORD, vhost)
    except ConnectionEnded as ended:
        return str(ended).partition(" while waiting")[0]
    return ""


def _furnish(admin: Client) -> None:
    _clear(admin)
    for name, kind, internal in (
        ("m-x", "direct", False),
        ("m-y", "direct", False),
        ("m-topic", "topic", False),
        ("m-internal", "direct", True),
    ):
        admin.call(1, X.Declare(0, name, kind, internal=internal), X.DeclareOk)
    admin.declare(1, "m-q")


def _clear(admin: Client) -> None:
    for name in ("m-x", "m-y", "m-topic", "m-internal", "m-new"):
        admin.call(1, X.Delete(0, name), X.DeleteOk)
    for name in ("m-q", "m-new"):
        admin.call(1, Q.Delete(0, name), Q.DeleteOk)


def _said(client: Client, number: int) -> str:
    try:
        method = client._await(lambda event: event[0] == number, "an answer")[1]
    except ConnectionEnded as ended:
        return f"connection {str(ended).partition(' while waiting')[0]}"
    if isinstance(method, commands.Channel.Close):
        return f"channel {method.reply_code} {GENERATED.sub('<gen>', method.reply_text)}"
    return str(getattr(method, "name", method))
