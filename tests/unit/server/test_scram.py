"""SCRAM-SHA-256: the exchange of RFC 7677, logins that succeed, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from tests.effort import examples
from tests.frame_socket import PROTOCOL_HEADER
from wire_bench import Bench, Client

from penstock.broker.access.permission import Permission
from penstock.broker.access.scram_verifier import ScramVerifier, scram_verifier
from penstock.server.connection.auth import BadResponse
from penstock.server.connection.scram import SCRAM, ScramExchange

# The example of RFC 7677.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
VERIFIER = scram_verifier(b"pencil", SALT, 4096)


def proof(password: bytes, client_first: bytes, server_first: bytes, binding: bytes = b"biws") -> bytes:
    """The last message of a client that knows the password."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password, base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    unproven = b"c=" + binding + b",r=" + fields["r"].encode()
    message = client_first[3:] + b"," + server_first + b"," + unproven
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    return unproven + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))


def exchange_of_the_rfc() -> ScramExchange:
    exchange = ScramExchange(CLIENT_FIRST)
    exchange._nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert exchange.challenge(VERIFIER) == SERVER_FIRST
    return exchange


def test_the_example_of_the_rfc() -> None:
    exchange = exchange_of_the_rfc()
    assert exchange.name == "user"
    assert exchange.finish(CLIENT_FINAL) == SERVER_FINAL
    assert proof(b"pencil", CLIENT_FIRST, SERVER_FIRST) == CLIENT_FINAL


def test_a_wrong_password_proves_nothing() -> None:
    assert exchange_of_the_rfc().finish(proof(b"pen", CLIENT_FIRST, SERVER_FIRST)) is None


def test_a_verifier_is_the_same_after_it_was_written_down() -> None:
    assert ScramVerifier.from_json(VERIFIER.to_json()) == VERIFIER


def test_nobody_proves_to_be_a_user_who_is_not_there_and_the_salt_does_not_tell() -> None:
    salts = set()
    for _ in range(2):
        exchange = ScramExchange(CLIENT_FIRST)
        challenge = exchange.challenge(None)
        salts.add(challenge.split(b",")[1])
        assert exchange.finish(proof(b"pencil", CLIENT_FIRST, challenge)) is None
    assert len(salts) == 1


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=admin,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=" + b"x" * 5000,
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(BadResponse):
        ScramExchange(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.replace(b"hNlF$k0", b"hNlF$k1"),
        CLIENT_FINAL.rpartition(b",p=")[0],
        CLIENT_FINAL.rpartition(b"p=")[0] + b"p=!",
        b"r=x,c=biws,p=",
    ],
)
def test_a_last_message_of_another_login_is_refused(message: bytes) -> None:
    with pytest.raises(BadResponse):
        exchange_of_the_rfc().finish(message)


@settings(deadline=None, max_examples=examples(300))
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_messages_prove_anything_by_chance(first: bytes, last: bytes) -> None:
    try:
        exchange = ScramExchange(first)
        exchange.challenge(VERIFIER)
        assert exchange.finish(last) is None
    except BadResponse:
        return


# --- on a connection ------------------------------------------------------------------------------------


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    users = made.server.broker.users
    users.add("a,b=c", None, scram_verifier(b"secret", iterations=4096))
    users.set_permission("a,b=c", "/", Permission())
    return made


def log_in(bench: Bench, name: bytes, password: bytes) -> list[Any]:
    """What the broker says to the proof."""
    client = Client(bench)
    client.transport_data(PROTOCOL_HEADER)
    [start] = client.read()
    assert SCRAM in start.mechanisms.split()
    first = b"n,,n=" + name + b",r=fyko+d2lbbFgONRv9qkxdawL"
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.send(commands.Connection.StartOk(properties, SCRAM, first.decode(), "en_US"), channel=0)
    [secure] = client.read()
    last = proof(password, first, secure.challenge.encode())
    client.send(commands.Connection.SecureOk(last.decode()), channel=0)
    [answer] = client.read()
    if isinstance(answer, commands.Connection.Secure):
        assert answer.challenge.startswith("v=")
        client.send(commands.Connection.SecureOk(""), channel=0)
        return client.read()
    return [answer]


@pytest.mark.parametrize(
    ("name", "password", "is_let_in"),
    [
        (b"a=2Cb=3Dc", b"secret", True),
        (b"guest", b"guest", True),
        (b"a=2Cb=3Dc", b"wrong", False),
        (b"guest", b"wrong", False),
        (b"nobody", b"secret", False),
    ],
)
def test_a_client_that_proves_its_password_is_let_in(
    bench: Bench, name: bytes, password: bytes, is_let_in: bool
) -> None:
    [answer] = log_in(bench, name, password)
    if is_let_in:
        assert isinstance(answer, commands.Connection.Tune)
    else:
        assert isinstance(answer, commands.Connection.Close)
        assert answer.reply_code == 403
