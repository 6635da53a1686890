"""The user `guest` may only come from this machine."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from penstock.config import Config
from penstock.server.connection.connection import Connection
from penstock.server.connection.handshake import Handshake
from penstock.server.server import Server
from tests.cli.process import environment


class Peer(asyncio.Transport):
    """A transport that only knows who is at its other end."""

    def __init__(self, name: object) -> None:
        super().__init__({"peername": name})


def peer_is_loopback(name: object) -> bool:
    async def look() -> bool:
        connection = Connection(Server(Config()))
        return Handshake(connection).peer_of(Peer(name))[1]

    return asyncio.run(look())


@pytest.mark.parametrize(
    "name",
    [
        ("127.0.0.1", 5672),
        ("127.8.8.8", 5672),
        ("::1", 5672, 0, 0),
        ("::ffff:127.0.0.1", 5672, 0, 0),
    ],
)
def test_these_peers_are_on_this_machine(name: object) -> None:
    assert peer_is_loopback(name)


@pytest.mark.parametrize(
    "name",
    [
        ("192.0.2.1", 5672),
        ("0.0.0.0", 5672),
        ("128.0.0.1", 5672),
        ("::", 5672, 0, 0),
        ("fe80::1%eth0", 5672, 0, 2),
        ("::ffff:192.0.2.1", 5672, 0, 0),
        ("2001:db8::1", 5672, 0, 0),
        # Gone before anybody could ask.
        None,
    ],
)
def test_these_peers_are_not_or_cannot_be_known_to_be(name: object) -> None:
    assert not peer_is_loopback(name)


# Runs in a network of its own, where the loopback interface has an address that is not a loopback address.
SCRIPT = """
    import subprocess, sys
    from penstock.config import Config, UserConfig
    from penstock.testing import Broker
    from tests.server.amqp_client import Client, ConnectionEnded

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"], check=True)
    users = [UserConfig("guest", "guest"), UserConfig("alice", "secret")]
    with Broker(Config(host="0.0.0.0", users=users, login_refused_delay_s=0.0)) as broker:
        for host, user, password, allowed in (
            ("127.0.0.1", "guest", "guest", False),
            ("127.0.0.1", "alice", "secret", False),
            ("192.0.2.1", "alice", "secret", True),
            ("192.0.2.1", "guest", "guest", True),
            ("192.0.2.1", "alice", "secret", False),
        ):
            broker.call(lambda server: setattr(server.config, "allow_clear_text_passwords", allowed))
            with Client(host, broker.port) as client:
                try:
                    client.handshake(user=user, password=password)
                    print(host, user, "entered")
                except ConnectionEnded as ended:
                    print(host, user, "refused" if "ACCESS_REFUSED" in str(ended) else ended)
"""


def in_own_network(*command: str) -> list[str]:
    return ["unshare", "--net", "--map-root-user", *command]


def can_unshare() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    done = subprocess.run(in_own_network("ip", "link", "set", "lo", "up"), capture_output=True, check=False)
    return done.returncode == 0


def test_guest_is_refused_when_the_peer_is_not_on_this_machine() -> None:
    if not can_unshare():
        pytest.skip("this machine does not let us make a network namespace (unshare, ip)")
    done: Any = subprocess.run(
        in_own_network(sys.executable, "-c", textwrap.dedent(SCRIPT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "127.0.0.1 guest entered",
        "127.0.0.1 alice entered",
        "192.0.2.1 alice entered",
        "192.0.2.1 guest refused",
        # Its password would have crossed the network in clear text.
        "192.0.2.1 alice refused",
    ]
