"""Users: passwords and permissions. The texts are those of RabbitMQ 3.10.8."""

from __future__ import annotations

import pytest
from vhost_house import check_refused

from penstock.broker.users import CONFIGURE, PATTERN_CHARS_MAX, READ, WRITE, Permission, User, Users


def user_with(configure: str = "", write: str = "", read: str = "") -> User:
    user = User("ann", "secret")
    user.permissions["/"] = Permission(configure, write, read)
    return user


def may(user: User, kind: str, object_kind: str, name: str) -> bool:
    try:
        user.require(kind, object_kind, name, "/")
    except Exception:
        return False
    return True


# --- passwords ------------------------------------------------------------------------------------------


def test_a_user_logs_in_with_the_right_name_and_password_only() -> None:
    users = Users()
    ann = User("ann", "secret")
    users.add(ann)
    assert users.authenticate("ann", b"secret") is ann
    for name, password in (
        ("ann", b"Secret"),
        ("ann", b""),
        ("ann", b"secret\x00"),
        ("Ann", b"secret"),
        ("", b"secret"),
        ("", b""),
        ("nobody", b"secret"),
    ):
        assert users.authenticate(name, password) is None


def test_nobody_logs_in_with_an_empty_password_even_if_it_is_right() -> None:
    users = Users()
    users.add(User("ann", ""))
    assert users.authenticate("ann", b"") is None


def test_passwords_may_be_any_text() -> None:
    users = Users()
    users.add(User("jürgen", "pässwörd ☃"))
    assert users.authenticate("jürgen", "pässwörd ☃".encode()) is not None


def test_passwords_are_kept_salted_and_hashed() -> None:
    first, second = User("ann", "secret"), User("ann", "secret")
    kept = [value for value in vars(first).values() if isinstance(value, (str, bytes))]
    assert not [value for value in kept if value in ("secret", b"secret")]
    assert first._digest != second._digest


# --- permissions ----------------------------------------------------------------------------------------


def test_full_permissions_allow_everything() -> None:
    user = user_with(".*", ".*", ".*")
    assert all(may(user, kind, "queue", name) for kind in (CONFIGURE, WRITE, READ) for name in ("q", "amq.gen-x", "ü"))


def test_an_empty_pattern_allows_nothing() -> None:
    user = user_with()
    for kind in (CONFIGURE, WRITE, READ):
        assert not may(user, kind, "queue", "q")
        assert not may(user, kind, "queue", "")
        assert not may(user, kind, "exchange", "")
        assert not may(user, kind, "exchange", "amq.default")


def test_a_pattern_is_found_anywhere_in_a_name_unless_it_is_anchored() -> None:
    assert may(user_with(configure="mid"), CONFIGURE, "queue", "amidst")
    anchored = user_with(configure="^mid$")
    assert may(anchored, CONFIGURE, "queue", "mid")
    assert not may(anchored, CONFIGURE, "queue", "amidst")


def test_each_kind_of_permission_has_its_own_pattern() -> None:
    user = user_with(configure="^c", write="^w", read="^r")
    allowed = {kind: [name for name in "cwr" if may(user, kind, "queue", name)] for kind in (CONFIGURE, WRITE, READ)}
    assert allowed == {CONFIGURE: ["c"], WRITE: ["w"], READ: ["r"]}


def test_the_default_exchange_is_matched_and_named_as_amq_default() -> None:
    assert may(user_with(write=r"^amq\.default$"), WRITE, "exchange", "")
    assert not may(user_with(write=r"^$"), WRITE, "exchange", "")
    check_refused(
        "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'ann'",
        lambda: user_with(write="^x$").require(WRITE, "exchange", "", "/"),
    )


def test_a_refusal_names_the_thing_the_vhost_and_the_user() -> None:
    check_refused(
        "ACCESS_REFUSED - access to queue 'perm' in vhost '/' refused for user 'ann'",
        lambda: user_with().require(READ, "queue", "perm", "/"),
    )


def test_permissions_are_those_of_one_vhost() -> None:
    user = user_with(".*", ".*", ".*")
    assert user.may_enter("/")
    assert not user.may_enter("other")
    check_refused(
        "ACCESS_REFUSED - access to queue 'q' in vhost 'other' refused for user 'ann'",
        lambda: user.require(READ, "queue", "q", "other"),
    )


def test_a_pattern_has_a_limit() -> None:
    Permission(configure="a" * PATTERN_CHARS_MAX)
    with pytest.raises(ValueError, match="at most"):
        Permission(configure="a" * (PATTERN_CHARS_MAX + 1))
