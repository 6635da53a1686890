"""Passwords as they are kept: hashed, by one of the algorithms below.

New passwords are hashed with argon2id. RabbitMQ's salted SHA-256 and SHA-512 are accepted where definitions are
imported. A user of the configuration has a digest under a key that this process made: it is never written down, and
the configuration has the password itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import cache
from typing import Final

from penstock.broker.access.access_error import BadAccess

ARGON2ID: Final = "argon2id"
# The digests of RabbitMQ, by the names that its definitions have; behind a salt of 4 bytes.
RABBITMQ_DIGESTS: Final = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
}
RABBITMQ_SALT_BYTES: Final = 4
# In this process alone.
CONFIGURED: Final = "configured"
# What OWASP recommends for argon2id: 19 MiB, two passes, one lane. Some 20 ms on one core.
ARGON2_KIB: Final = 19 * 1024
ARGON2_PASSES: Final = 2
ARGON2_LANES: Final = 1
ARGON2_SALT_BYTES: Final = 16
ARGON2_HASH_BYTES: Final = 32
# A password hash in definitions; ours have 100 characters, RabbitMQ's less.
HASH_CHARS_MAX: Final = 512
PASSWORD_BYTES_MAX: Final = 1024

_PROCESS_KEY: Final = secrets.token_bytes(32)


@dataclass(frozen=True)
class PasswordHash:
    algorithm: str
    # For argon2id as its reference implementation writes it; else base64 of salt and digest.
    encoded: str

    def __repr__(self) -> str:
        """Without the hash: representations reach logs."""
        return f"PasswordHash({self.algorithm})"

    @property
    def is_slow(self) -> bool:
        """Whether to check a password takes milliseconds, on purpose."""
        return self.algorithm == ARGON2ID

    def matches(self, password: bytes) -> bool:
        """Return whether this is the hash of the password. The time that it takes does not tell how wrong it is."""
        if self.algorithm == ARGON2ID:
            return _argon2_matches(self.encoded, password)
        if self.algorithm == CONFIGURED:
            return hmac.compare_digest(process_digest(password), base64.b64decode(self.encoded))
        raw = base64.b64decode(self.encoded)
        salt, digest = raw[:RABBITMQ_SALT_BYTES], raw[RABBITMQ_SALT_BYTES:]
        return hmac.compare_digest(hashlib.new(RABBITMQ_DIGESTS[self.algorithm], salt + password).digest(), digest)


def hash_password(password: bytes) -> PasswordHash:
    """Return the hash to keep for a new password. It takes milliseconds: call it off the event loop."""
    if len(password) > PASSWORD_BYTES_MAX:
        raise BadAccess(f"a password has at most {PASSWORD_BYTES_MAX} bytes")
    from argon2.low_level import Type, hash_secret

    encoded = hash_secret(
        password,
        secrets.token_bytes(ARGON2_SALT_BYTES),
        ARGON2_PASSES,
        ARGON2_KIB,
        ARGON2_LANES,
        ARGON2_HASH_BYTES,
        Type.ID,
    )
    return PasswordHash(ARGON2ID, encoded.decode())


def configured_password(password: bytes) -> PasswordHash:
    """Return the hash of a password that is in the configuration anyway."""
    return PasswordHash(CONFIGURED, base64.b64encode(process_digest(password)).decode())


def process_digest(password: bytes) -> bytes:
    """Return a digest under a key that ends with this process."""
    return hashlib.blake2b(password, key=_PROCESS_KEY, digest_size=32).digest()


def imported_password(algorithm: str, encoded: str) -> PasswordHash:
    """Return a hash from definitions; raises BadAccess for one that cannot be used."""
    if algorithm == "rabbit_password_hashing_md5":
        raise BadAccess("passwords hashed with MD5 are not accepted: set the user's password anew")
    if algorithm == ARGON2ID:
        if not encoded.startswith("$argon2id$") or len(encoded) > HASH_CHARS_MAX:
            raise BadAccess("the password hash is not one of argon2id")
        return PasswordHash(algorithm, encoded)
    if algorithm not in RABBITMQ_DIGESTS:
        known = ", ".join([ARGON2ID, *RABBITMQ_DIGESTS])
        raise BadAccess(f"the hashing algorithm '{algorithm[:64]}' is not known; known are {known}")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadAccess("the password hash is not base64") from None
    if len(raw) != RABBITMQ_SALT_BYTES + hashlib.new(RABBITMQ_DIGESTS[algorithm]).digest_size:
        raise BadAccess(f"the password hash has not the length of one of {algorithm}")
    return PasswordHash(algorithm, encoded)


def rabbitmq_hash(password: bytes) -> str:
    """Return the salted SHA-256 of a password as RabbitMQ's definitions have it."""
    salt = secrets.token_bytes(RABBITMQ_SALT_BYTES)
    return base64.b64encode(salt + hashlib.sha256(salt + password).digest()).decode()


def waste_time(password: bytes) -> None:
    """Take as long as a check of an argon2id hash does."""
    _nobodys_password().matches(password)


@cache
def _nobodys_password() -> PasswordHash:
    return hash_password(secrets.token_bytes(16))


def _argon2_matches(encoded: str, password: bytes) -> bool:
    from argon2.exceptions import VerificationError, VerifyMismatchError
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(encoded.encode(), password, Type.ID)
    except (VerifyMismatchError, VerificationError):
        return False
