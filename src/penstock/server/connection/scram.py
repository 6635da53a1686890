"""The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

A user who does not exist, or has no verifier, is led through the same two steps and refused at the end: the salt that
it is shown is made from its name, and stays the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from penstock.broker.access.password import process_digest
from penstock.broker.access.scram_verifier import ITERATIONS, SALT_BYTES, ScramVerifier
from penstock.server.connection.auth import RESPONSE_BYTES_MAX, BadResponse

SCRAM: Final = "SCRAM-SHA-256"
NONCE_BYTES: Final = 18


class ScramExchange:
    """One login. `begin` reads the client's first message, `challenge` answers it, `finish` reads the last one."""

    def __init__(self, client_first: bytes) -> None:
        """Raises BadResponse."""
        text = _text(client_first)
        header, rest = _after_header(text)
        self._channel_binding = base64.b64encode(header.encode()).decode()
        self._client_first = rest
        name, nonce = _attributes(rest, "n", "r")[:2]
        self.name = _decoded_name(name)
        if not nonce or not nonce.isascii() or not nonce.isprintable():
            raise BadResponse("the client's nonce is missing")
        self._nonce = nonce + base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self._server_first = ""
        self._verifier: ScramVerifier | None = None

    def challenge(self, verifier: ScramVerifier | None) -> bytes:
        """Return the server's first message; without a verifier, one that leads to nothing."""
        self._verifier = verifier
        salt, iterations = (
            (verifier.salt, verifier.iterations)
            if verifier is not None
            else (process_digest(b"salt " + self.name.encode())[:SALT_BYTES], ITERATIONS)
        )
        self._server_first = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        return self._server_first.encode()

    def finish(self, client_final: bytes) -> bytes | None:
        """Return the server's last message, or None when the proof is wrong. Raises BadResponse."""
        text = _text(client_final)
        unproven, comma, proof_text = text.rpartition(",p=")
        binding, nonce = _attributes(unproven, "c", "r")[:2]
        if not comma or binding != self._channel_binding or not hmac.compare_digest(nonce, self._nonce):
            raise BadResponse("the client's last message does not belong to this login")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except (binascii.Error, ValueError):
            raise BadResponse("the client's proof is not base64") from None
        verifier = self._verifier
        stored_key = secrets.token_bytes(32) if verifier is None else verifier.stored_key
        message = f"{self._client_first},{self._server_first},{unproven}".encode()
        signature = hmac.digest(stored_key, message, "sha256")
        if len(proof) != len(signature):
            return None
        client_key = bytes([left ^ right for left, right in zip(proof, signature, strict=True)])
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), stored_key) or verifier is None:
            return None
        return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, message, "sha256"))


def _text(message: bytes) -> str:
    if len(message) > RESPONSE_BYTES_MAX:
        raise BadResponse("response is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise BadResponse("the message is not UTF-8") from None


def _after_header(text: str) -> tuple[str, str]:
    """Return the header about channel binding, and what is behind it. An identity to act for is not supported."""
    for header in ("n,,", "y,,"):
        if text.startswith(header):
            return header, text[len(header) :]
    raise BadResponse("only SCRAM without channel binding and without another identity is supported")


def _attributes(text: str, *names: str) -> list[str]:
    """Return the values of the attributes, which must be the first ones, in this order."""
    parts = text.split(",")
    values = []
    for name, part in zip(names, parts, strict=False):
        if not part.startswith(f"{name}="):
            break
        values.append(part[len(name) + 1 :])
    if len(values) != len(names):
        raise BadResponse(f"the message does not begin with {' and '.join(names)}")
    return values


def _decoded_name(name: str) -> str:
    """Return a user's name, in which a comma is =2C and an equals sign =3D."""
    pieces = name.split("=")
    decoded = pieces[0]
    for piece in pieces[1:]:
        char = {"2C": ",", "3D": "="}.get(piece[:2])
        if char is None:
            raise BadResponse("the user's name is not encoded as SCRAM asks for")
        decoded += char + piece[2:]
    return decoded
