"""Which policy counts for a queue, and what it, the operator's and the arguments give together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.access.pattern import Pattern
from penstock.broker.access.pattern_syntax import BadPattern
from penstock.broker.broker import Broker
from penstock.broker.definitions.postgres_arguments import check_backing
from penstock.broker.operations.call_errors import BadRequest, NotFound
from penstock.broker.policies.effective import effective_arguments, effective_definition
from penstock.broker.policies.name_pattern import matcher
from penstock.broker.policies.policies import LOOKS_AT_ONCE, Policies
from penstock.broker.policies.policy import Policy
from penstock.broker.policies.policy_check import checked_policy
from penstock.broker.policies.policy_keys import KEYS
from penstock.config import Config
from penstock.fields import Field, Table

NUMBERS = ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit")
NOTHING = None


def a_policy(definition: dict[str, Any] | None) -> Policy | None:
    return None if definition is None else Policy("p", ".*", "all", 0, definition)


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize(
    ("argument", "policy", "operator", "expected"),
    [
        (NOTHING, NOTHING, NOTHING, NOTHING),
        (7, NOTHING, NOTHING, 7),
        (NOTHING, 7, NOTHING, 7),
        (NOTHING, NOTHING, 7, 7),
        (5, 7, NOTHING, 5),
        (9, 7, NOTHING, 7),
        (NOTHING, 7, 5, 5),
        (NOTHING, 7, 9, 7),
        (9, NOTHING, 7, 7),
        (5, NOTHING, 7, 5),
        (5, 7, 9, 5),
        (9, 7, 5, 5),
        (9, 5, 7, 5),
    ],
)
def test_of_limits_the_smallest_counts(
    key: str, argument: int | None, policy: int | None, operator: int | None, expected: int | None
) -> None:
    arguments: Table = {} if argument is None else {f"x-{key}": ("I", argument)}
    definition = effective_definition(
        a_policy(None if policy is None else {key: policy}), a_policy(None if operator is None else {key: operator})
    )
    effective = effective_arguments(arguments, definition)
    assert effective.get(f"x-{key}", ("V", None))[1] == expected


@pytest.mark.parametrize(
    ("key", "of_arguments", "of_policy"),
    [
        ("dead-letter-exchange", "mine", "theirs"),
        ("dead-letter-routing-key", "mine", "theirs"),
        ("dead-letter-strategy", "at-most-once", "at-least-once"),
        ("overflow", "drop-head", "reject-publish"),
        ("queue-mode", "default", "lazy"),
        ("group-header", "mine", "theirs"),
        ("deduplication-header", "mine", "theirs"),
        ("delayed-retry-type", "all", "failed"),
    ],
)
def test_of_everything_else_the_argument_counts(key: str, of_arguments: str, of_policy: str) -> None:
    own: Field = ("S", of_arguments.encode())
    assert effective_arguments({f"x-{key}": own}, {key: of_policy}) == {f"x-{key}": own}
    assert effective_arguments({}, {key: of_policy}) == {f"x-{key}": ("S", of_policy.encode())}


def test_an_operator_has_the_last_word_where_there_is_no_smaller_one() -> None:
    merged = effective_definition(
        a_policy({"overflow": "drop-head", "max-length": 5, "queue-mode": "lazy"}),
        a_policy({"overflow": "reject-publish", "max-length": 9, "expires": 1000}),
    )
    assert merged == {"overflow": "reject-publish", "max-length": 5, "expires": 1000, "queue-mode": "lazy"}


def test_a_queue_has_one_order_which_is_that_of_its_arguments() -> None:
    arguments: Table = {"x-max-priority": ("I", 5)}
    assert effective_arguments(arguments, {"group-header": "g", "max-length": 3}) == {
        "x-max-priority": ("I", 5),
        "x-max-length": ("l", 3),
    }


def test_a_queue_in_postgresql_goes_by_what_it_can_do() -> None:
    arguments: Table = {"x-backing": ("S", b"postgres")}
    definition: dict[str, Any] = {
        **dict.fromkeys(NUMBERS, 5),
        "dead-letter-exchange": "late",
        "group-header": "g",
        "message-deduplication": True,
        "cache-size": 5,
        "delayed-retry-min": 5,
    }
    effective = effective_arguments(arguments, definition)
    check_backing("q", True, False, False, effective, True, "queue 'q'")
    assert effective == {
        "x-backing": ("S", b"postgres"),
        "x-message-ttl": ("l", 5),
        "x-dead-letter-exchange": ("S", b"late"),
        "x-cache-size": ("l", 5),
    }


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_beyond_all_measure_is_as_good_as_the_largest(key: str) -> None:
    code, value = effective_arguments({}, {key: 10**30})[f"x-{key}"]
    assert code == "l"
    assert isinstance(value, int)
    assert 0 < value < 1 << 63


# --- which one counts ---------------------------------------------------------------------------------


class House:
    """A vhost in memory."""

    def __init__(self) -> None:
        self.broker = Broker(Config())
        self.vhost = self.broker.vhosts["/"]

    @property
    def policies(self) -> Policies:
        return self.vhost.policies

    def put(self, name: str, pattern: str = ".*", is_operator: bool = False, **rest: Any) -> list[str]:
        """Set a policy with a limit; returns where the walk notes that it is over."""
        definition = rest.pop("definition", {"max-length": 3})
        policy = checked_policy(
            name, pattern, definition, rest.pop("priority", 0), rest.pop("apply_to", "all"), is_operator
        )
        over: list[str] = []
        waits = rest.pop("waits", True)
        self.policies.put(policy, is_operator, lambda: over.append(name))
        if waits:
            self.wait_for(over)
        return over

    def clear(self, name: str) -> None:
        over: list[str] = []
        self.policies.clear(name, False, lambda: over.append(name))
        self.wait_for(over)

    def wait_for(self, over: list[str]) -> int:
        """Let turns pass until the walk is over; how many."""
        turns = 0
        while not over:
            turns += 1
            self.broker.expiries.run_due(self.broker.clock.wall_ms() + turns)
            assert turns < 10_000
        return turns

    def declare(self, name: str, **arguments: Field) -> None:
        self.vhost.declare_queue(name, True, False, None, {key.replace("_", "-"): f for key, f in arguments.items()})

    def of(self, name: str) -> str | None:
        policy = self.policies.of_queue(name).policy
        return None if policy is None else policy.name


@pytest.fixture
def house() -> House:
    return House()


def test_the_highest_priority_counts_and_among_equals_the_first_name(house: House) -> None:
    house.declare("q")
    house.put("b", priority=1)
    assert house.of("q") == "b"
    house.put("a", priority=1)
    assert house.of("q") == "a"
    house.put("c", priority=2)
    assert house.of("q") == "c"
    house.put("d", priority=-1)
    assert house.of("q") == "c"
    house.clear("c")
    assert house.of("q") == "a"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("", "q", True),
        ("q", "a queue", True),
        ("^q", "a queue", False),
        ("^q", "queue", True),
        ("^(a|b)\\.", "b.c", True),
        ("^(?!amq\\.).*", "amq.gen", False),
        ("^(?!amq\\.).*", "orders", True),
        ("é", "café", True),
    ],
)
def test_a_pattern_is_found_anywhere_in_a_name_unless_it_is_anchored(
    house: House, pattern: str, name: str, matches: bool
) -> None:
    house.put("p", pattern)
    # Names of ours cannot be declared; the policy is asked about them all the same.
    assert (house.policies.ordinary.for_queue(name, {}) is not None) == matches


@pytest.mark.parametrize(
    ("apply_to", "classic", "quorum", "exchange"),
    [
        ("all", True, True, True),
        ("queues", True, True, False),
        ("classic_queues", True, False, False),
        ("quorum_queues", False, True, False),
        ("streams", False, False, False),
        ("exchanges", False, False, True),
    ],
)
def test_a_policy_applies_to_what_it_says(
    house: House, apply_to: str, classic: bool, quorum: bool, exchange: bool
) -> None:
    house.put("p", apply_to=apply_to)
    house.declare("c")
    house.declare("k", x_queue_type=("S", b"quorum"))
    house.vhost.declare_exchange("x", "direct", True, False, False, {})
    assert [house.of("c") is not None, house.of("k") is not None] == [classic, quorum]
    assert (house.policies.of_exchange("x").policy is not None) == exchange
    assert (house.policies.of_exchange("amq.topic").policy is not None) == exchange
    assert house.policies.of_exchange("").policy is None


@pytest.mark.parametrize(
    ("definition", "classic", "quorum"),
    [
        ({"max-age": "1D", "max-length": 3}, False, False),
        ({"queue-leader-locator": "balanced"}, False, True),
        ({"queue-mode": "lazy"}, True, False),
        ({"ha-mode": "all", "max-length": 3}, True, False),
        ({"delivery-limit": 3}, True, True),
    ],
)
def test_a_policy_that_is_meant_for_other_queues_does_not_match(
    house: House, definition: dict[str, Any], classic: bool, quorum: bool
) -> None:
    house.declare("c")
    house.declare("k", x_queue_type=("S", b"quorum"))
    house.put("p", definition=definition)
    assert [house.of("c") is not None, house.of("k") is not None] == [classic, quorum]


def test_the_alternate_exchange_of_a_policy_counts_unless_the_exchange_has_one(house: House) -> None:
    vhost = house.vhost
    vhost.declare_exchange("plain", "direct", True, False, False, {})
    vhost.declare_exchange("own", "direct", True, False, False, {"alternate-exchange": ("S", b"mine")})
    version = vhost.topology_version
    house.put("p", definition={"alternate-exchange": "theirs"}, apply_to="exchanges")
    vhost.declare_exchange("later", "direct", True, False, False, {})
    assert [vhost.exchanges[name].alternate for name in ("plain", "own", "later", "amq.direct", "")] == [
        "theirs",
        "mine",
        "theirs",
        "theirs",
        None,
    ]
    assert vhost.topology_version > version, "publishers forget their routes"
    house.clear("p")
    assert [vhost.exchanges[name].alternate for name in ("plain", "own", "later")] == [None, "mine", None]


def test_very_many_queues_change_over_several_turns_and_the_end_is_told_once(house: House) -> None:
    count = LOOKS_AT_ONCE // 5
    for number in range(count):
        house.declare(f"q{number}")
    first = house.put("p", "^q", waits=False)
    assert first == []
    assert [house.of("q0"), house.of(f"q{count - 1}")] == ["p", None]
    # What is declared meanwhile, or changed once more, is not behind.
    house.declare("q-late")
    assert house.of("q-late") == "p"
    second = house.put("p", "^q", definition={"max-length": 4}, waits=False)
    assert house.wait_for(second) > 1
    assert [first, second] == [["p"], ["p"]]
    for queue in house.vhost.queues.values():
        assert queue.effective_arguments == {"x-max-length": ("l", 4)}


def test_a_queue_that_goes_takes_its_place_along(house: House) -> None:
    house.put("p")
    house.declare("q")
    house.vhost.delete_queue(house.vhost.queues["q"], False, False)
    assert house.of("q") is None


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "complaint"),
    [
        ({}, "no policy provided"),
        ({"colour": "red"}, '[{<<"colour">>,<<"red">>}] are not recognised policy settings'),
        ({"max-lenght": 3}, '[{<<"max-lenght">>,3}] are not recognised policy settings; did you mean max-length?'),
        ({"group-header": "a", "sort-header": "b"}, "sort-header cannot be combined with group-header"),
        ({"message-deduplication": True}, "message-deduplication needs cache-size"),
        ({"delayed-retry-min": 5, "delayed-retry-max": 4}, "delayed-retry-max is below delayed-retry-min"),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"group-header": ""}, "<<>> is not the name of a header"),
        ({"dead-letter-exchange": "x" * 100_000}, "the definition takes"),
    ],
)
def test_a_definition_that_cannot_be_is_refused(house: House, definition: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        house.put("p", definition=definition)
    assert str(refusal.value).startswith(complaint)
    assert house.policies.ordinary.by_name == {}


@pytest.mark.parametrize("key", [key for key, known in KEYS.items() if not known.is_of_operators])
def test_an_operator_policy_has_limits_only(house: House, key: str) -> None:
    with pytest.raises(BadRequest, match="are not recognised policy settings; an operator policy can have"):
        house.put("p", is_operator=True, definition={key: "x"})


@pytest.mark.parametrize(
    ("rest", "complaint"),
    [
        ({"pattern": "("}, "pattern should be regular expression but is invalid"),
        ({"apply_to": "everything"}, "apply-to 'everything' unrecognised; should be one of: 'queues'"),
        ({"priority": 1 << 70}, "priority"),
        ({"priority": True}, "priority should be a number, actually was true"),
        ({"name": ""}, "the name of a policy"),
        ({"name": "x" * 256}, "the name of a policy"),
    ],
)
def test_what_is_no_policy_is_refused(house: House, rest: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        house.put(**{"name": "p", **rest})
    assert str(refusal.value).startswith(complaint)


def test_clearing_what_is_not_there_is_refused(house: House) -> None:
    with pytest.raises(NotFound, match="Parameter does not exist"):
        house.policies.clear("p", False, lambda: None)
    with pytest.raises(NotFound, match="Parameter does not exist"):
        house.policies.clear_parameter("shovel", "s")
    with pytest.raises(BadRequest, match="policies may not be set using this method"):
        house.policies.set_parameter("policy", "s", {})


@given(
    st.lists(
        st.sampled_from(
            ["a", "b", "^", "$", "|", "(", ")", "(?:", "(?!", ".", ".*", "\\.", "*", "+", "?", "[ab]", "{2}", "-", "é"]
        ),
        max_size=8,
    ).map("".join),
    st.text("ab.-é\n", max_size=8),
)
def test_simple_patterns_match_what_the_machine_matches(pattern: str, name: str) -> None:
    try:
        machine = Pattern(pattern)
    except BadPattern:
        return
    assert matcher(pattern)(name) == machine.matches(name)
