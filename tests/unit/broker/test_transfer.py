"""Definitions in RabbitMQ's format: read, checked, made all or nothing, and written again."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from penstock.broker.access.password import hash_password
from penstock.broker.broker import Broker
from penstock.broker.operations.actor import owner
from penstock.broker.operations.perform import Answer, Performer
from penstock.broker.operations.table import OPERATIONS
from penstock.config import Config, UserConfig

FILE: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "vhosts": [{"name": "/"}, {"name": "shop", "metadata": {"description": "the shop", "tags": ["eu"]}}],
    "users": [
        {
            "name": "ann",
            "password_hash": "IM61N+X01uXKRxWzfNn0HAwPccbW9LgQsYdtuamXQQAg8uoc",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "administrator,policymaker",
            "limits": {"max-connections": 3},
        },
        {"name": "bob", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": []},
    ],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": ".*", "write": "^a", "read": ""}],
    "topic_permissions": [{"user": "ann", "vhost": "shop", "exchange": "amq.topic", "write": "^x", "read": "^y"}],
    "global_parameters": [{"name": "cluster_name", "value": "hare"}],
    "parameters": [
        {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 77}, "vhost": "shop"},
        {
            "component": "operator_policy",
            "name": "op",
            "vhost": "shop",
            "value": {"apply-to": "all", "definition": [["max-length", 9]], "pattern": "^q", "priority": 0},
        },
        {"component": "shovel", "name": "s", "value": {"src-queue": "q"}, "vhost": "shop"},
    ],
    "policies": [
        {
            "name": "p",
            "vhost": "shop",
            "pattern": "^orders",
            "apply-to": "queues",
            "priority": 3,
            "definition": {"max-length": 5},
        }
    ],
    "exchanges": [
        {
            "name": "ex",
            "vhost": "shop",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"},
        }
    ],
    "queues": [
        {
            "name": "orders",
            "vhost": "shop",
            "type": "classic",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-message-ttl": 60000, "x-queue-type": "classic"},
        }
    ],
    "bindings": [
        {
            "source": "ex",
            "vhost": "shop",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        }
    ],
}


def ask(broker: Broker, operation: str, **arguments: Any) -> Answer:
    """Perform an operation to its end, however many turns it takes."""
    answers: list[Answer] = []
    Performer(broker, OPERATIONS).perform(owner("test"), operation, arguments, answers.append)
    for _ in range(10_000):
        if answers:
            return answers[0]
        broker.expiries.run_due(broker.clock.wall_ms() + 10)
        if broker.node is not None:
            broker.node.end_turn()
    raise AssertionError("the operation does not end")


def exported(broker: Broker) -> dict[str, Any]:
    answer = ask(broker, "export_definitions")
    assert answer.error is None
    definitions: dict[str, Any] = json.loads(json.dumps(answer.result["definitions"]))
    return definitions


def changed(**sections: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FILE), **sections}


def test_everything_in_a_file_of_rabbitmq_is_made() -> None:
    broker = Broker(Config())
    answer = ask(broker, "import_definitions", definitions=FILE)
    assert answer.error is None
    assert answer.result["made"] == {
        "vhosts": 1,
        "users": 2,
        "permissions": 1,
        "topic_permissions": 1,
        "global_parameters": 1,
        "parameters": 3,
        "policies": 1,
        "exchanges": 1,
        "queues": 1,
        "bindings": 1,
    }
    shop = broker.vhosts["shop"]
    assert (shop.description, shop.tags, shop.limits) == ("the shop", ("eu",), {"max-queues": 77})
    ann = broker.users.find("ann")
    assert ann.tags == ("administrator", "policymaker")
    assert ann.limits == {"max-connections": 3}
    assert broker.users.authenticate("ann", b"secret") is not None
    assert broker.users.authenticate("bob", b"") is None
    assert [queue.name for queue in shop.route_now("ex", ["a.b"], None)] == ["orders"]
    assert shop.policies.of_queue("orders").definition() == {"max-length": 5}


def test_what_was_imported_is_exported_again() -> None:
    broker = Broker(Config())
    ask(broker, "import_definitions", definitions=FILE)
    found = exported(broker)
    assert {each["name"] for each in found["vhosts"]} == {"/", "shop"}
    wanted_users = [{**FILE["users"][0], "tags": ["administrator", "policymaker"]}, {**FILE["users"][1], "limits": {}}]
    assert found["users"] == wanted_users
    for section in ("permissions", "topic_permissions", "policies", "exchanges", "queues", "bindings"):
        assert found[section] == FILE[section], section
    values = {(each["component"], each["name"]): each["value"] for each in found["parameters"]}
    assert values[("vhost-limits", "limits")] == {"max-queues": 77}
    assert values[("operator_policy", "op")]["definition"] == {"max-length": 9}
    assert values[("shovel", "s")] == {"src-queue": "q"}


def test_an_export_imported_into_an_empty_broker_gives_the_same_export() -> None:
    first, second = Broker(Config()), Broker(Config())
    ask(first, "import_definitions", definitions=FILE)
    assert ask(second, "import_definitions", definitions=exported(first)).error is None
    without_digest = [
        {**each, "global_parameters": [p for p in each["global_parameters"] if p["name"] == "cluster_name"]}
        for each in (exported(first), exported(second))
    ]
    assert without_digest[0] == without_digest[1]


BAD = [
    ({"vhost": []}, "'vhost' is not a section of a definitions file"),
    ({"queues": {}}, "the section 'queues' must be a list"),
    ({"queues": [3]}, "queues[0] must be an object"),
    ({"queues": [{"name": "q"}]}, "queues[0] 'q' needs 'vhost', a text"),
    ({"queues": [{"name": "", "vhost": "/"}]}, "needs 'name', a text of 1 to 255 bytes"),
    ({"queues": [{"name": "q" * 256, "vhost": "/"}]}, "needs 'name', a text of 1 to 255 bytes"),
    ({"queues": [{"name": "q", "vhost": "nowhere"}]}, "is in vhost 'nowhere', which is neither"),
    ({"queues": [{"name": "q", "vhost": "/", "durable": "yes"}]}, "needs 'durable', true or false"),
    ({"queues": [{"name": "q", "vhost": "/", "arguments": {"x-message-ttl": -1}}]}, "x-message-ttl"),
    ({"queues": [{"name": "q", "vhost": "/", "arguments": {"x": 2**70}}]}, "arguments that AMQP cannot have"),
    ({"exchanges": [{"name": "e", "vhost": "/", "type": "star"}]}, "has the type 'star'"),
    ({"users": [{"name": "", "tags": []}]}, "a user needs a name"),
    ({"users": [{"name": "eve", "tags": 3}]}, "needs 'tags', a list of texts"),
    ({"users": [{"name": "eve", "password_hash": "!", "tags": []}]}, "the password hash is not base64"),
    (
        {"users": [{"name": "eve", "password_hash": "aa", "hashing_algorithm": "rot13", "tags": []}]},
        "the hashing algorithm 'rot13' is not known",
    ),
    ({"users": [{"name": "eve", "penstock": {"scram_sha_256": 1}}]}, "that penstock has not written"),
    (
        {"permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}]},
        "is for user 'nobody', who is neither",
    ),
    (
        {"permissions": [{"user": "ann", "vhost": "/", "configure": "(", "write": "", "read": ""}]},
        "the configure pattern cannot be used",
    ),
    ({"policies": [{"name": "p", "vhost": "/", "pattern": "a", "definition": {"colour": 1}}]}, "not recognised"),
    ({"parameters": [{"component": "policy", "name": "p", "vhost": "/", "value": 1}]}, "policies may not be set"),
    (
        {"parameters": [{"component": "vhost-limits", "name": "limits", "vhost": "/", "value": {"max-cows": 1}}]},
        "the limit 'max-cows' is not known",
    ),
    (
        {"bindings": [{"source": "no", "vhost": "/", "destination": "q", "destination_type": "queue"}]},
        "is from exchange 'no', which is neither",
    ),
    (
        {"bindings": [{"source": "amq.topic", "vhost": "/", "destination": "no", "destination_type": "queue"}]},
        "leads to queue 'no', which is neither",
    ),
    (
        {"bindings": [{"source": "amq.topic", "vhost": "/", "destination": "q", "destination_type": "cow"}]},
        "needs a destination_type",
    ),
]


@pytest.mark.parametrize(("sections", "text"), BAD)
def test_a_file_with_one_wrong_entry_is_refused_with_its_place_and_changes_nothing(
    sections: dict[str, Any], text: str
) -> None:
    broker = Broker(Config())
    before = exported(broker)
    error = ask(broker, "import_definitions", definitions=changed(**sections)).error
    assert error is not None
    assert error.kind == "bad_request"
    assert text in str(error)
    assert exported(broker) == before


def test_what_is_refused_in_the_middle_takes_back_what_was_made_before() -> None:
    broker = Broker(Config())
    ask(broker, "import_definitions", definitions={"vhosts": [{"name": "shop"}]})
    # Nothing of the check knows how many queues there may be.
    broker.set_vhost_limits(broker.vhosts["shop"], {"max-queues": 1})
    before = exported(broker)
    queues = [{**FILE["queues"][0], "name": f"q{number}"} for number in range(2)]
    sections = changed(queues=queues, bindings=[], parameters=[])
    error = ask(broker, "import_definitions", definitions=sections).error
    assert error is not None
    assert "queues[1] 'q1' cannot be made" in str(error)
    assert "Nothing was imported." in str(error)
    assert exported(broker) == before
    # The file's administrator has come and gone: the default user is there again.
    assert broker.users.authenticate("guest", b"guest") is not None


def test_what_is_there_with_other_properties_stays_and_is_named() -> None:
    broker = Broker(Config())
    ask(broker, "import_definitions", definitions=FILE)
    other = changed(
        queues=[{**FILE["queues"][0], "arguments": {"x-message-ttl": 1}}],
        exchanges=[{**FILE["exchanges"][0], "type": "direct"}],
    )
    answer = ask(broker, "import_definitions", definitions=other)
    assert answer.error is None
    assert answer.result["different"] == ["exchange 'ex' in vhost 'shop'", "queue 'orders' in vhost 'shop'"]
    assert exported(broker)["queues"] == FILE["queues"]


def test_users_of_the_configuration_stay_as_it_says() -> None:
    broker = Broker(Config(users=[UserConfig("ann", "other")]))
    answer = ask(broker, "import_definitions", definitions=FILE)
    assert answer.result["different"] == ["user 'ann' of the configuration"]
    assert broker.users.authenticate("ann", b"other") is not None


def test_the_same_file_again_is_passed_over_if_asked() -> None:
    broker = Broker(Config())
    ask(broker, "import_definitions", definitions=FILE)
    again = ask(broker, "import_definitions", definitions=copy.deepcopy(FILE), skip_if_unchanged=True)
    assert again.result["unchanged"]
    other = ask(broker, "import_definitions", definitions=changed(policies=[]), skip_if_unchanged=True)
    assert not other.result["unchanged"]


def test_one_vhost_is_exported_without_its_name_and_imported_into_another() -> None:
    broker = Broker(Config())
    ask(broker, "import_definitions", definitions=FILE)
    part = ask(broker, "export_definitions", vhost="shop").result["definitions"]
    assert "users" not in part
    assert "vhost" not in part["queues"][0]
    assert ask(broker, "import_definitions", definitions=part, vhost="/").error is None
    assert "orders" in broker.vhosts["/"].queues


def test_the_broker_part_of_a_file_is_refused_for_a_vhost() -> None:
    error = ask(Broker(Config()), "import_definitions", definitions=FILE, vhost="/").error
    assert error is not None
    assert "leave the vhost away" in str(error)


def test_passwords_of_this_broker_come_through_an_export_and_are_no_hash_to_rabbitmq() -> None:
    first, second = Broker(Config()), Broker(Config())
    first.users.add("carl", hash_password(b"pass-word"))
    (carl,) = exported(first)["users"]
    assert carl["password_hash"] == ""
    ask(second, "import_definitions", definitions=exported(first))
    assert second.users.authenticate("carl", b"pass-word") is not None
