"""The handshake: header, start, login, tune, open. Nothing else is possible before it is over."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import platform
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import penstock
from penstock import limits
from penstock.broker.access.rights import Rights
from penstock.broker.access.user import User
from penstock.broker.audit.event import CONNECTION_CREATED, LOGIN_FAILED, LOGIN_SUCCEEDED
from penstock.config import STRICT, STRICT_FRAME_BYTES_MIN
from penstock.errors import AmqpError, channel_error, command_invalid, not_allowed
from penstock.fields import Table
from penstock.server.connection import auth
from penstock.server.connection.acts import note, note_login
from penstock.server.connection.admission import address_key
from penstock.server.connection.login_guard import LOOK_AGAIN_S
from penstock.server.connection.scram import SCRAM, ScramExchange
from penstock.wire import frames, methods
from penstock.wire.tables import table_from_python, table_to_python

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

log = logging.getLogger("penstock.connection")

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)

# The header of AMQP 0-9-1, and that of 0-9, which some old clients send and mean the same.
ACCEPTED_HEADERS = (frames.PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")

CLIENT_NAME_CHARS_MAX = 128

HEADER = "header"
START_OK = "connection.start-ok"
SECURE_OK = "connection.secure-ok"
TUNE_OK = "connection.tune-ok"
OPEN = "connection.open"
REFUSED = "nothing"
CLEAR_TEXT = (
    "passwords from other machines are accepted over TLS only: connect with TLS or SCRAM-SHA-256, or start the broker"
    " with --allow-clear-text-passwords"
)
# A login waits for its turn, and nothing may come meanwhile.
LOGIN = "nothing before the login was looked at"


class Handshake:
    """Leads one connection from its first byte to connection.open-ok."""

    __deletable__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._expected = HEADER
        self._timer: asyncio.TimerHandle | None = None
        self._user: User | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._is_closed = False
        self._scram: ScramExchange | None = None
        # The client has proven that it knows the password, and was told that we do.
        self._is_proven = False

    def peer_of(self, transport: asyncio.Transport) -> tuple[str, bool]:
        """Return address of the peer for the log, and whether it is on this machine."""
        name = transport.get_extra_info("peername")
        if not isinstance(name, tuple):
            return "unknown", False
        address = ipaddress.ip_address(str(name[0]).split("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return f"{name[0]}:{name[1]}", (mapped or address).is_loopback

    def address_of(self, transport: asyncio.Transport) -> str:
        """What the peer is counted by; see `admission.address_key`."""
        name = transport.get_extra_info("peername")
        return address_key(str(name[0])) if isinstance(name, tuple) else "unknown"

    def local_of(self, transport: asyncio.Transport) -> str:
        """Return address at which the peer has reached us."""
        name = transport.get_extra_info("sockname")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unknown"

    def begin(self) -> None:
        """The whole handshake has one time limit, not one per step."""
        connection = self._connection
        self._timer = connection.server.loop.call_later(connection.broker.config.handshake_s, self._too_late)

    def stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self.stop()
        self._is_closed = True
        del self._connection

    def _too_late(self) -> None:
        log.warning("connection %s closed: handshake took too long, expected %s", self._connection.peer, self._expected)
        self._connection.drop()

    def read_header(self, data: bytes) -> int:
        """Take the protocol header; return how many bytes, -1 while it is not all there.

        Anything else is answered with our header, and goodbye.
        """
        if self._expected != HEADER:
            return 0
        connection = self._connection
        size = len(frames.PROTOCOL_HEADER)
        if len(data) < size and any(header.startswith(data) for header in ACCEPTED_HEADERS):
            return -1
        if data[:size] not in ACCEPTED_HEADERS:
            log.warning("connection %s closed: bad protocol header %r", connection.peer, data[:8])
            self._expected = REFUSED
            connection.send_raw(frames.PROTOCOL_HEADER)
            connection.finish_soon()
            return len(data)
        self._expected = START_OK
        mechanisms = " ".join(offered(connection)).encode()
        connection.send(0, methods.ConnectionStart(0, 9, server_properties(connection), mechanisms, b"en_US"))
        return len(frames.PROTOCOL_HEADER)

    def on_method(self, method: methods.Method) -> None:
        if self._expected == START_OK and isinstance(method, methods.ConnectionStartOk):
            self._login(method)
        elif self._expected == SECURE_OK and isinstance(method, methods.ConnectionSecureOk):
            self._secure(method.response)
        elif self._expected == TUNE_OK and isinstance(method, methods.ConnectionTuneOk):
            self._tune(method)
        elif self._expected == OPEN and isinstance(method, methods.ConnectionOpen):
            self._open(method)
        elif self._expected != REFUSED:
            state = "opening" if self._expected == OPEN else "starting"
            raise channel_error(f"unexpected method in connection state {state}")

    def _login(self, method: methods.ConnectionStartOk) -> None:
        connection = self._connection
        connection.client_properties = table_to_python(method.client_properties)
        capabilities = connection.client_properties.get("capabilities")
        connection.capabilities = capabilities if isinstance(capabilities, dict) else {}
        mechanism = method.mechanism
        if mechanism in auth.MECHANISMS and not may_send_passwords(connection):
            self._refuse(mechanism, "", CLEAR_TEXT)
            return
        if mechanism not in offered(connection):
            raise command_invalid(f"unsupported authentication mechanism '{mechanism}'")
        try:
            if mechanism == SCRAM:
                self._begin_scram(ScramExchange(method.response))
                return
            if mechanism == auth.EXTERNAL:
                self._expected = LOGIN
                self._checked(mechanism, connection.certificate_user, self._known(connection.certificate_user))
                return
            name, password = auth.read_response(mechanism, method.response)
        except auth.BadResponse as fault:
            self._refuse(mechanism, "", str(fault))
            return
        guard = connection.server.login_guard
        wait_s = guard.wait_s(connection.address, name)
        look = partial(self._look, mechanism, name, password)
        if wait_s <= 0 and connection.server.password_checks.is_known(name, password):
            look()
            return
        # The next one waits behind it, also while this one is checked on another thread: guesses that come at once are
        # as slow as others. One that would wait longer than a handshake may take is cut by the handshake's own timer.
        guard.take_turn(connection.address, name)
        self._look_after(wait_s, name, look)

    def _look_after(self, wait_s: float, name: str, look: Callable[[], None]) -> None:
        if wait_s <= 0:
            look()
            return
        self._expected = LOGIN
        self._due_s = self._connection.server.loop.time() + wait_s
        self._wait_for_turn(name, look)

    def _wait_for_turn(self, name: str, look: Callable[[], None]) -> None:
        """Look at a login when its time has come, or when another one of this user from there has succeeded."""
        connection = self._connection
        loop = connection.server.loop
        left_s = self._due_s - loop.time()
        if left_s <= 0 or connection.server.login_guard.wait_s(connection.address, name) <= 0:
            self._waiting = None
            look()
        else:
            step_s = min(left_s, LOOK_AGAIN_S)
            self._waiting = loop.call_later(step_s, self._wait_for_turn, name, look)

    def _begin_scram(self, exchange: ScramExchange) -> None:
        """Answer the first message of SCRAM; like a password, it waits after refused logins."""
        self._scram = exchange
        connection = self._connection
        guard = connection.server.login_guard
        wait_s = guard.wait_s(connection.address, exchange.name)
        guard.take_turn(connection.address, exchange.name)
        self._look_after(wait_s, exchange.name, self._challenge)

    def _challenge(self) -> None:
        assert self._scram is not None
        user = self._known(self._scram.name)
        challenge = self._scram.challenge(None if user is None else user.scram)
        self._expected = SECURE_OK
        self._connection.send(0, methods.ConnectionSecure(challenge))

    def _secure(self, response: bytes) -> None:
        """Take the last message of SCRAM; or what the client says to our proof, which is nothing."""
        exchange = self._scram
        assert exchange is not None
        if self._is_proven:
            self._expected = LOGIN
            self._checked(SCRAM, exchange.name, self._known(exchange.name))
            return
        try:
            proof = exchange.finish(response)
        except auth.BadResponse as fault:
            self._refuse(SCRAM, exchange.name, str(fault))
            return
        if proof is None:
            self._refuse(SCRAM, exchange.name, "wrong user or password")
            return
        self._is_proven = True
        self._connection.send(0, methods.ConnectionSecure(proof))

    def _known(self, name: str) -> User | None:
        return self._connection.broker.users.get(name)

    def _look(self, mechanism: str, name: str, password: bytes) -> None:
        """Have the password checked, and let the user in or not."""
        self._expected = LOGIN
        self._connection.server.password_checks.check(name, password, lambda user: self._checked(mechanism, name, user))

    def _checked(self, mechanism: str, name: str, user: User | None) -> None:
        if self._is_closed or self._expected != LOGIN:
            # The client has gone, or its time was over, while its password was checked.
            return
        connection = self._connection
        reason = "wrong user or password"
        if user is not None and not connection.peer_is_loopback and name in connection.broker.config.loopback_users:
            reason = f"user {name!a} can only connect via localhost"
            user = None
        if user is None:
            self._refuse(mechanism, name, reason)
            return
        connection.server.login_guard.succeeded(connection.address, name)
        note_login(connection, LOGIN_SUCCEEDED, name, mechanism)
        self._user = user
        self._expected = TUNE_OK
        config = connection.broker.config
        connection.send(0, methods.ConnectionTune(config.channels_max, config.frame_bytes_max, config.heartbeat_s))

    def _refuse(self, mechanism: str, name: str, reason: str) -> None:
        """Say no at once, and keep the connection for a while: that, and the guard, make guessing slow."""
        connection = self._connection
        log.warning("connection %s: login refused with mechanism %s: %s", connection.peer, mechanism, reason)
        note_login(connection, LOGIN_FAILED, name, mechanism, reason)
        connection.server.login_guard.refused(connection.address, name)
        self._expected = REFUSED
        self.stop()
        delay_s = connection.broker.config.login_refused_delay_s
        if connection.has_capability("authentication_failure_close"):
            text = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
            connection.close_with(AmqpError(403, text), 0, linger_s=delay_s)
        else:
            self._timer = connection.server.loop.call_later(delay_s, connection.drop)

    def _tune(self, method: methods.ConnectionTuneOk) -> None:
        connection = self._connection
        config = connection.broker.config
        connection.channels_max = _negotiated("channel_max", method.channel_max, 1, config.channels_max)
        frame_bytes_min = STRICT_FRAME_BYTES_MIN if config.compatibility == STRICT else limits.FRAME_BYTES_MIN
        connection.frame_bytes_max = _negotiated(
            "frame_max", method.frame_max, min(frame_bytes_min, config.frame_bytes_max), config.frame_bytes_max
        )
        self._expected = OPEN
        connection.heartbeat.start(method.heartbeat)

    def _open(self, method: methods.ConnectionOpen) -> None:
        connection = self._connection
        user = self._user
        assert user is not None
        name = method.virtual_host
        vhost = connection.broker.vhosts.get(name)
        if vhost is None:
            raise not_allowed(f"vhost {name} not found")
        # As the user is by now: it may have changed since the login.
        users = connection.broker.users
        user = users.get(user.name)
        if user is None:
            raise not_allowed("the user was deleted")
        connection.server.admission.check_limits(user, vhost)
        if users.permission(user.name, name) is None:
            raise not_allowed(f"access to vhost '{name}' refused for user '{user.name}'")
        connection.user = user
        connection.vhost = vhost
        connection.rights = Rights(users, user.name, name)
        connection.server.admission.open(connection)
        connection.opened = True
        note(connection, CONNECTION_CREATED, client=client_name(connection))
        self.stop()
        connection.send(0, methods.ConnectionOpenOk())

    def update_secret(self, method: methods.ConnectionUpdateSecret) -> None:
        """Check the secret that the client will log in with from now on; a wrong one ends the connection."""
        connection = self._connection
        log.info("connection %s updates its secret: %s", connection.peer, ascii(method.reason)[:200])
        if connection.user.password is None:
            # It logged in with a certificate: there is no secret to renew.
            connection.send(0, methods.ConnectionUpdateSecretOk())
            return
        connection.server.password_checks.check(connection.user.name, method.new_secret, self._secret_checked)

    def _secret_checked(self, user: User | None) -> None:
        if self._is_closed or self._connection.closing:
            return
        connection = self._connection
        if user is not None:
            connection.send(0, methods.ConnectionUpdateSecretOk())
            return
        connection.server.login_guard.refused(connection.address, connection.user.name)
        error = not_allowed("New secret was refused by one of the backends")
        connection.close_with(error, methods.ConnectionUpdateSecret.INDEX)


def may_send_passwords(connection: Connection) -> bool:
    """Return whether nobody on the way can read what the client sends, or the operator accepts that."""
    return connection.peer_is_loopback or connection.is_tls or connection.broker.config.allow_clear_text_passwords


def offered(connection: Connection) -> list[str]:
    """Return the mechanisms by which this client may log in."""
    mechanisms = list(auth.MECHANISMS) if may_send_passwords(connection) else []
    mechanisms.append(SCRAM)
    if connection.certificate_user:
        mechanisms.append(auth.EXTERNAL)
    return mechanisms


def client_name(connection: Connection) -> str:
    """Return what the client calls itself, for people: it may say anything."""
    properties = connection.client_properties
    name = properties.get("connection_name") or properties.get("product") or ""
    return str(name)[:CLIENT_NAME_CHARS_MAX]


def server_properties(connection: Connection) -> Table:
    return table_from_python(
        {
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            "cluster_name": connection.server.node_name,
            "copyright": "Copyright the penstock authors.",
            "information": "Licensed under the Apache License 2.0",
            "platform": f"Python {platform.python_version()}",
            "product": "penstock",
            "version": penstock.__version__,
        }
    )


def _negotiated(name: str, asked: int, least: int, most: int) -> int:
    """Return the smaller of what both sides want; 0 leaves it to us."""
    if asked == 0:
        return most
    if asked < least:
        raise not_allowed(f"negotiated {name} = {asked} is lower than the minimum allowed value ({least})")
    if asked > most:
        raise not_allowed(f"negotiated {name} = {asked} is higher than the maximum allowed value ({most})")
    return asked
