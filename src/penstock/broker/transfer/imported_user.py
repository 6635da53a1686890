"""A user as definitions files have it, there and back.

RabbitMQ knows neither argon2id nor SCRAM verifiers and passes over keys that it does not know. So what only penstock
can use stands in an object of its own, beside an empty hash, with which nobody can log in.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.access_limits import USER_LIMITS, read_limits
from penstock.broker.access.password import RABBITMQ_DIGESTS, imported_password
from penstock.broker.access.scram_verifier import ScramVerifier
from penstock.broker.access.user import User, checked_tags, checked_user_name
from penstock.broker.transfer.sections import Entry

OWN: Final = "penstock"
SHA256: Final = "rabbit_password_hashing_sha256"


def read_user(entry: Entry) -> User:
    """Return the user; raises BadRequest."""
    own = entry.table(OWN)
    try:
        password = None
        encoded, algorithm = entry.text("password_hash", ""), entry.text("hashing_algorithm", SHA256)
        if own.get("password_hash"):
            encoded, algorithm = str(own["password_hash"]), str(own.get("hashing_algorithm"))
        if encoded:
            password = imported_password(algorithm, encoded)
        scram = ScramVerifier.from_json(own["scram_sha_256"]) if "scram_sha_256" in own else None
        limits = read_limits(entry.table("limits"), USER_LIMITS)
        return User(checked_user_name(entry.text("name")), password, scram, checked_tags(entry.words("tags")), limits)
    except BadAccess as error:
        raise entry.bad(f"cannot be taken: {error}") from None
    except (KeyError, TypeError, ValueError):
        raise entry.bad(f"has something under '{OWN}' that penstock has not written") from None


def write_user(user: User) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": user.name,
        "password_hash": "",
        "hashing_algorithm": SHA256,
        "tags": list(user.tags),
        "limits": dict(user.limits),
    }
    own: dict[str, Any] = {}
    if user.password is not None and user.password.algorithm in RABBITMQ_DIGESTS:
        data["password_hash"], data["hashing_algorithm"] = user.password.encoded, user.password.algorithm
    elif user.password is not None:
        own = {"password_hash": user.password.encoded, "hashing_algorithm": user.password.algorithm}
    if user.scram is not None:
        own["scram_sha_256"] = user.scram.to_json()
    if own:
        data[OWN] = own
    return data
