"""Passwords: how they are kept, checked and imported."""

from __future__ import annotations

import base64
import hashlib

import pytest

from penstock.broker.access import password as passwords
from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.password import (
    configured_password,
    hash_password,
    imported_password,
    rabbitmq_hash,
)
from penstock.broker.access.user import User, user_from_json
from penstock.broker.access.users import Users, is_right


def test_a_new_password_is_hashed_with_argon2id_and_a_salt_of_its_own() -> None:
    first, second = hash_password(b"secret"), hash_password(b"secret")
    assert first.encoded.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert first.encoded != second.encoded
    assert first.matches(b"secret")
    assert not first.matches(b"Secret")


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_a_hash_of_rabbitmq_is_accepted(digest: str) -> None:
    encoded = base64.b64encode(b"salt" + hashlib.new(digest, b"salt" + b"secret").digest()).decode()
    imported = imported_password(f"rabbit_password_hashing_{digest}", encoded)
    assert imported.matches(b"secret")
    assert not imported.matches(b"secret ")


def test_the_hash_of_rabbitmqs_documentation_is_that_of_its_password() -> None:
    # https://www.rabbitmq.com/docs/passwords: "test12" with the salt 908D C60A.
    imported = imported_password("rabbit_password_hashing_sha256", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    assert imported.matches(b"test12")


@pytest.mark.parametrize(
    ("algorithm", "encoded", "reason"),
    [
        ("rabbit_password_hashing_md5", "AAAA", "MD5"),
        ("rabbit_password_hashing_sha256", "not base64!", "base64"),
        ("rabbit_password_hashing_sha256", "AAAA", "length"),
        ("argon2id", "secret", "argon2id"),
        ("plain", "secret", "not known"),
    ],
)
def test_a_hash_that_cannot_be_used_is_refused(algorithm: str, encoded: str, reason: str) -> None:
    with pytest.raises(BadAccess, match=reason):
        imported_password(algorithm, encoded)


def test_a_damaged_hash_matches_no_password() -> None:
    assert not imported_password("argon2id", "$argon2id$v=19$m=19456,t=2,p=1$x$y").matches(b"x")


def test_our_export_for_rabbitmq_is_one_that_we_import() -> None:
    assert imported_password("rabbit_password_hashing_sha256", rabbitmq_hash(b"secret")).matches(b"secret")


@pytest.mark.parametrize(
    ("user", "password", "expected"),
    [
        (User("ann", configured_password(b"secret")), b"secret", True),
        (User("ann", configured_password(b"secret")), b"wrong", False),
        (User("ann", configured_password(b"")), b"", False),
        (User("ann"), b"", False),
        (User("ann"), b"secret", False),
        (None, b"secret", False),
    ],
    ids=["right", "wrong", "empty", "no password", "none asked for", "no user"],
)
def test_a_refusal_costs_one_check_of_argon2id_for_whichever_reason(
    user: User | None, password: bytes, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasted: list[bytes] = []
    monkeypatch.setattr("penstock.broker.access.users.waste_time", wasted.append)
    assert is_right(user, password) is expected
    assert len(wasted) == (0 if expected else 1)


def test_a_refusal_of_an_argon2id_hash_is_the_check_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.access.users.waste_time", lambda password: pytest.fail("twice as long"))
    assert not is_right(User("ann", hash_password(b"secret")), b"wrong")


def test_neither_password_nor_hash_is_in_what_a_log_would_show() -> None:
    hashed = hash_password(b"canary-password")
    user = User("ann", hashed)
    assert "canary" not in repr(user)
    assert hashed.encoded not in repr(user)


def test_a_user_is_the_same_after_it_was_written_down() -> None:
    user = User("ann", hash_password(b"secret"), None, ("administrator", "own"), {"max-channels": 3})
    assert user_from_json(user.to_json()) == user


def test_passwords_may_be_any_text_and_have_a_limit() -> None:
    users = Users()
    users.add("jürgen", hash_password("pässwörd ☃".encode()))
    assert users.authenticate("jürgen", "pässwörd ☃".encode()) is not None
    with pytest.raises(BadAccess, match="at most"):
        hash_password(b"x" * (passwords.PASSWORD_BYTES_MAX + 1))
