"""What is kept of a password for SCRAM-SHA-256 (RFC 5802, RFC 7677): enough to check a client, not to be one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.access.access_error import BadAccess

SALT_BYTES: Final = 16
# RFC 7677 asks for 4096 at least. The client pays for them at each login, the broker when a password is set.
ITERATIONS: Final = 65_536
# For users of the configuration, whose verifiers are made at each start and never written down: the least.
ITERATIONS_IN_MEMORY: Final = 4_096
ITERATIONS_MAX: Final = 10_000_000


@dataclass(frozen=True)
class ScramVerifier:
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramVerifier(…)"

    def to_json(self) -> dict[str, Any]:
        return {
            "salt": base64.b64encode(self.salt).decode(),
            "iterations": self.iterations,
            "stored_key": base64.b64encode(self.stored_key).decode(),
            "server_key": base64.b64encode(self.server_key).decode(),
        }

    @classmethod
    def from_json(cls, data: Any) -> ScramVerifier:
        salt, stored_key, server_key = [
            base64.b64decode(data[name], validate=True) for name in ("salt", "stored_key", "server_key")
        ]
        iterations = data["iterations"]
        if len(stored_key) != 32 or len(server_key) != 32 or not 1 <= iterations <= ITERATIONS_MAX:
            raise BadAccess("the SCRAM keys of a user are not of the right form")
        return cls(salt, iterations, stored_key, server_key)


def scram_verifier(password: bytes, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramVerifier:
    """Return what is kept of a new password. It takes tens of milliseconds: call it off the event loop."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    with contextlib.suppress(UnicodeDecodeError):
        # The part of SASLprep that matters: the same letters, composed in the same way.
        password = unicodedata.normalize("NFKC", password.decode()).encode()
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return ScramVerifier(
        salt, iterations, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256")
    )
