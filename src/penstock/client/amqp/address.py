"""amqp://user:password@host:port/vhost?heartbeat=…: where a broker is, and how to speak to it.

A bad URL is a ValueError whose text does not repeat the URL: there may be a password in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.limits import SHORT_STRING_BYTES_MAX

PORTS: Final = {"amqp": 5672, "amqps": 5671}
PARAMETERS: Final = ("heartbeat", "timeout", "cacertfile", "certfile", "keyfile")
# How long the broker may take for an answer, a confirm, or to take what is sent to it.
TIMEOUT_S: Final = 30.0
HEARTBEAT_S_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A broker, a vhost of it, and a login."""

    host: str
    port: int
    tls: bool = False
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    # 0 = none; see client/aio/amqp/wire.py.
    heartbeat_s: int = 0
    timeout_s: float = TIMEOUT_S
    # Who vouches for the broker (None = those whom the system trusts), and the certificate that it wants to see of us.
    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(url: str) -> Address:
    """Return the address in a URL. Everything in it may be percent-encoded; no vhost is the vhost `/`."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS:
        raise ValueError("an AMQP URL starts with amqp:// or amqps://")
    if parts.fragment:
        raise ValueError("an AMQP URL has no '#'; in a password it is written %23")
    options = _options(parts.query)
    vhost = unquote(parts.path.removeprefix("/")) or "/"
    user = "guest" if parts.username is None else unquote(parts.username)
    for what, text in (("vhost", vhost), ("user name", user)):
        if len(text.encode()) > SHORT_STRING_BYTES_MAX:
            raise ValueError(f"the {what} in an AMQP URL has at most {SHORT_STRING_BYTES_MAX} bytes")
    return Address(
        host=unquote(parts.hostname or "localhost"),
        port=_port(parts),
        tls=parts.scheme == "amqps",
        user=user,
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=vhost,
        heartbeat_s=ceil(_number(options, "heartbeat", 0, 0, HEARTBEAT_S_MAX)),
        timeout_s=_number(options, "timeout", TIMEOUT_S, 0.001, HEARTBEAT_S_MAX),
        cacertfile=options.get("cacertfile"),
        certfile=options.get("certfile"),
        keyfile=options.get("keyfile"),
    )


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        # The standard library's text has whatever stands there, which may be half a password.
        raise ValueError("the port in an AMQP URL is a number up to 65535") from None
    return PORTS[parts.scheme] if port is None else port


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in PARAMETERS:
            raise ValueError(f"an AMQP URL has no parameter {name!r}; there are {', '.join(PARAMETERS)}")
        options[name] = value
    return options


def _number(options: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise ValueError(f"{name} in an AMQP URL is a number of seconds up to {most:.0f}, not {text!r}")
    return value
