"""Users and their rights, as RabbitMQ judges them. The texts are those of RabbitMQ 3.10.8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.access.access_error import BadAccess, NoSuchUser, UserExists
from penstock.broker.access.access_records import AccessRecords
from penstock.broker.access.password import configured_password
from penstock.broker.access.permission import CONFIGURE, READ, WRITE, Permission, TopicPermission
from penstock.broker.access.rights import ANSWERS_MAX, Rights
from penstock.broker.access.users import Users
from penstock.errors import ChannelException

PASSWORD = configured_password(b"secret")


def house(configure: str = "", write: str = "", read: str = "") -> tuple[Users, Rights]:
    users = Users()
    users.add("ann", PASSWORD)
    users.set_permission("ann", "/", Permission(configure, write, read))
    rights = Rights(users, "ann", "/")
    users.rights_changed = lambda name: rights.forget()
    return users, rights


def may(rights: Rights, kind: str, object_kind: str, name: str) -> bool:
    try:
        rights.require(kind, object_kind, name)
    except ChannelException:
        return False
    return True


def check_refused(text: str, call: Callable[[], object]) -> None:
    with pytest.raises(ChannelException) as caught:
        call()
    assert caught.value.reply_text == text


def test_full_permissions_allow_everything() -> None:
    _, rights = house(".*", ".*", ".*")
    kinds = (CONFIGURE, WRITE, READ)
    assert all(may(rights, kind, "queue", name) for kind in kinds for name in ("q", "amq.gen-x", "ü"))


def test_an_empty_pattern_allows_nothing() -> None:
    _, rights = house()
    for kind in (CONFIGURE, WRITE, READ):
        assert not may(rights, kind, "queue", "q")
        assert not may(rights, kind, "exchange", "")
        assert not may(rights, kind, "exchange", "amq.default")


def test_each_kind_of_permission_has_its_own_pattern() -> None:
    _, rights = house("^c", "^w", "^r")
    allowed = {kind: [name for name in "cwr" if may(rights, kind, "queue", name)] for kind in (CONFIGURE, WRITE, READ)}
    assert allowed == {CONFIGURE: ["c"], WRITE: ["w"], READ: ["r"]}


def test_the_default_exchange_is_matched_and_named_as_amq_default() -> None:
    assert may(house(write=r"^amq\.default$")[1], WRITE, "exchange", "")
    assert not may(house(write=r"^$")[1], WRITE, "exchange", "")
    check_refused(
        "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'ann'",
        lambda: house(write="^x$")[1].require(WRITE, "exchange", ""),
    )


def test_permissions_are_those_of_one_vhost() -> None:
    users, _ = house(".*", ".*", ".*")
    assert users.permission("ann", "other") is None
    check_refused(
        "ACCESS_REFUSED - access to queue 'q' in vhost 'other' refused for user 'ann'",
        lambda: Rights(users, "ann", "other").require(READ, "queue", "q"),
    )


def test_a_changed_permission_is_felt_although_the_answer_was_remembered() -> None:
    users, rights = house(read=".*")
    assert may(rights, READ, "queue", "q")
    users.set_permission("ann", "/", Permission(read="^x"))
    assert not may(rights, READ, "queue", "q")
    users.set_permission("ann", "/", Permission(read="^q"))
    assert may(rights, READ, "queue", "q")
    users.clear_permission("ann", "/")
    assert not may(rights, READ, "queue", "q")


def test_answers_are_remembered_within_a_limit() -> None:
    _, rights = house(read=".*")
    for number in range(ANSWERS_MAX + 10):
        rights.require(READ, "queue", f"q{number}")
    assert len(rights._allowed) <= ANSWERS_MAX


# --- topics ---------------------------------------------------------------------------------------------


def topic_allowed(rights: Rights, kind: str, key: str) -> bool:
    try:
        rights.require_topic(kind, "events", key)
    except ChannelException:
        return False
    return True


def test_without_a_topic_permission_every_routing_key_is_allowed() -> None:
    assert topic_allowed(house()[1], WRITE, "any.thing")


def test_a_topic_permission_judges_routing_keys_at_its_exchange() -> None:
    users, rights = house()
    users.set_topic_permission("ann", "/", "events", TopicPermission("^a\\.", "^b\\."))
    assert [topic_allowed(rights, WRITE, "a.x"), topic_allowed(rights, WRITE, "b.x")] == [True, False]
    assert [topic_allowed(rights, READ, "a.x"), topic_allowed(rights, READ, "b.x")] == [False, True]
    rights.require_topic(WRITE, "others", "c.x")
    users.clear_topic_permissions("ann", "/")
    assert topic_allowed(rights, WRITE, "b.x")


def test_a_variable_stands_for_its_value_and_not_for_a_pattern() -> None:
    users = Users()
    users.add("a.n", PASSWORD)
    users.set_topic_permission("a.n", "v+", "events", TopicPermission("^{username}-{vhost}-{client_id}$", ""))
    rights = Rights(users, "a.n", "v+")
    assert topic_allowed(rights, WRITE, "a.n-v+-{client_id}")
    assert not topic_allowed(rights, WRITE, "aXn-v+-{client_id}")
    assert not topic_allowed(rights, WRITE, "a.n-vv-{client_id}")


def test_only_an_impersonator_publishes_in_another_name() -> None:
    users, rights = house()
    assert rights.may_publish_as("ann")
    assert not rights.may_publish_as("bob")
    users.set_tags("ann", ["impersonator"])
    assert rights.may_publish_as("bob")


# --- users ----------------------------------------------------------------------------------------------


def test_a_user_exists_once_and_its_permissions_go_with_it() -> None:
    users, _ = house(".*", ".*", ".*")
    with pytest.raises(UserExists):
        users.add("ann", PASSWORD)
    gone: list[str] = []
    users.user_deleted = gone.append
    users.delete("ann")
    assert gone == ["ann"]
    users.add("ann", PASSWORD)
    assert users.permission("ann", "/") is None
    with pytest.raises(NoSuchUser):
        users.delete("bob")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "tab\t"])
def test_a_name_that_would_break_a_log_or_a_frame_is_refused(name: str) -> None:
    with pytest.raises(BadAccess):
        Users().add(name, PASSWORD)


@pytest.mark.parametrize("tags", [["a b"], [""], ["a,b"], ["x"] * 33])
def test_tags_are_words(tags: list[str]) -> None:
    with pytest.raises(BadAccess):
        Users().add("ann", PASSWORD, tags=tags)


@pytest.mark.parametrize("limits", [{"max-queues": 1}, {"max-channels": True}, {"max-channels": "1"}, [], None])
def test_limits_have_names_and_numbers(limits: object) -> None:
    users, _ = house()
    with pytest.raises(BadAccess):
        users.set_limits("ann", limits)


def test_limits_are_set_one_by_one_and_cleared() -> None:
    users, _ = house()
    users.set_limits("ann", {"max-channels": 3})
    users.set_limits("ann", {"max-connections": -7})
    assert users.find("ann").limits == {"max-channels": 3, "max-connections": -1}
    users.clear_limits("ann", "max-channels")
    assert users.find("ann").limits == {"max-connections": -1}
    users.clear_limits("ann")
    assert users.find("ann").limits == {}


# --- the configuration and guest ------------------------------------------------------------------------


def test_guest_leaves_when_another_administrator_comes() -> None:
    users = Users()
    gone: list[str] = []
    users.user_deleted = gone.append
    users.configure("guest", "guest", is_default=True)
    users.add("ann", PASSWORD)
    assert users.get("guest") is not None
    users.set_tags("ann", ["administrator"])
    assert users.get("guest") is None
    assert gone == ["guest"]


@pytest.mark.parametrize("change", ["an administrator", "deleted", "a password of its own"])
def test_guest_is_not_made_anew_at_the_next_start(change: str) -> None:
    kept = AccessRecords()
    users = Users(kept)
    users.configure("guest", "guest", is_default=True)
    if change == "an administrator":
        users.add("ann", PASSWORD, tags=["administrator"])
    elif change == "deleted":
        users.delete("guest")
    else:
        users.set_password("guest", configured_password(b"better"), None, ["/"])
    again = Users(kept)
    again.configure("guest", "guest", is_default=True)
    assert again.authenticate("guest", b"guest") is None
    assert (again.get("guest") is not None) == (change == "a password of its own")


def test_guest_as_configured_stays_beside_administrators() -> None:
    users = Users()
    users.add("ann", PASSWORD, tags=["administrator"])
    users.configure("guest", "guest")
    assert users.authenticate("guest", b"guest") is not None


def test_a_configured_user_is_changed_in_the_configuration_but_may_get_a_password_and_permissions() -> None:
    users = Users()
    users.configure("ops", "first")
    users.set_tags("ops", ["administrator"])
    for change in (
        lambda: users.set_tags("ops", ["monitoring"]),
        lambda: users.set_limits("ops", {"max-channels": 1}),
        lambda: users.clear_permission("ops", "/"),
        lambda: users.delete("ops"),
    ):
        with pytest.raises(BadAccess, match="configuration"):
            change()
    users.set_permission("ops", "/", Permission(read="^x"))
    permission = users.permission("ops", "/")
    assert permission is not None
    assert not permission.allows_everything()
    users.set_password("ops", configured_password(b"second"), None, ["/", "v"])
    assert users.authenticate("ops", b"first") is None
    assert users.authenticate("ops", b"second") is not None
    other = users.permission("ops", "v")
    assert other is not None
    assert other.allows_everything()
