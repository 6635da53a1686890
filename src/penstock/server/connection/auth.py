"""Login: which mechanisms a connection may use, and what the responses of PLAIN and AMQPLAIN say."""

from __future__ import annotations

from penstock.errors import AmqpError
from penstock.wire.tables import decode_table

# With these the client sends its password as it is.
MECHANISMS = ("AMQPLAIN", "PLAIN")
EXTERNAL = "EXTERNAL"
# A response is a user name and a password; this is more than enough.
RESPONSE_BYTES_MAX = 4096


class BadResponse(Exception):
    """The response is not of the mechanism's form."""


def read_plain(response: bytes) -> tuple[str, bytes]:
    """Return user and password from `NUL user NUL password`; an authorization identity is not supported."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise BadResponse(f"response {response[:1]!r}… is not of the form NUL user NUL password")
    return _name(parts[1]), parts[2]


def read_amqplain(response: bytes) -> tuple[str, bytes]:
    """Return user and password from a field table without its length."""
    try:
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0, len(response) + 4)
    except AmqpError as error:
        raise BadResponse(str(error)) from error
    login, password = table.get("LOGIN"), table.get("PASSWORD")
    if login is None or password is None or not isinstance(login[1], bytes) or not isinstance(password[1], bytes):
        raise BadResponse("LOGIN and PASSWORD are needed, as strings")
    return _name(login[1]), password[1]


def read_response(mechanism: str, response: bytes) -> tuple[str, bytes]:
    """Return user and password from a start-ok; raises BadResponse."""
    if len(response) > RESPONSE_BYTES_MAX:
        raise BadResponse("response is too long")
    return read_plain(response) if mechanism == "PLAIN" else read_amqplain(response)


def _name(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadResponse("the user name is not UTF-8") from error
