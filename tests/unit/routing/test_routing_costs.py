"""What the routing of one message may cost, however bindings and keys are made."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.fields import Table
from penstock.limits import ROUTING_STEPS_MAX
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding
from penstock.routing.exchange import Exchange
from penstock.routing.factory import make_exchange
from penstock.routing.router import Router
from penstock.routing.trie import TopicTrie

LONGEST_KEY = ".".join(["a"] * 128)


def topic(name: str, endings: str, words: int = 12) -> Exchange:
    """An exchange whose patterns all match the beginning of the longest key."""
    exchange = make_exchange("topic", name, False, False, False, {})
    for beginning in product("a*", repeat=words):
        exchange.bind(Binding(name, (QUEUE, "q"), f"{'.'.join(beginning)}.{endings}", {}))
    return exchange


def test_words_that_follow_no_pattern_cost_one_step_each() -> None:
    exchange = topic("x", "#.x")
    exchange.matches(LONGEST_KEY, None)
    assert exchange.cost < 5 * 4096


def test_many_patterns_behind_one_wildcard_cost_one_look_up_for_a_word() -> None:
    trie = TopicTrie()
    for number in range(1000):
        trie.insert(f"#.{number}", (QUEUE, str(number)))
    walk = trie.walk("a.b.7")
    assert walk.finish() == [(QUEUE, "7")]
    assert walk.steps < 10


@pytest.mark.parametrize("keys", [[LONGEST_KEY], [LONGEST_KEY] * 500])
def test_a_message_that_would_take_too_many_steps_goes_nowhere(keys: list[str]) -> None:
    exchange = topic("x", "#.a.#.a")
    router = Router({"x": exchange})
    assert router.route(exchange, keys, None) == []
    assert router.gave_up
    assert exchange.cost <= ROUTING_STEPS_MAX + 5 * 4096
    assert router.route(exchange, ["a.b"], None) == []
    assert not router.gave_up


def test_what_follows_over_other_exchanges_is_counted_too() -> None:
    exchanges = {f"x{number}": topic(f"x{number}", "#.a", 11) for number in range(4)}
    for number in range(3):
        exchanges[f"x{number}"].bind(Binding(f"x{number}", (EXCHANGE, f"x{number + 1}"), "#", {}))
    key = ".".join(["a"] * 24)
    router = Router(exchanges)
    assert router.route(exchanges["x3"], [key], None) == ["q"]
    assert not router.gave_up
    assert router.route(exchanges["x0"], [key], None) == []
    assert router.gave_up


def test_headers_that_meet_too_many_patterns_lead_nowhere() -> None:
    exchange = make_exchange("headers", "h", False, False, False, {})
    headers: Table = {"h": ("I", 1)}
    for number in range(20):
        exchange.bind(Binding("h", (QUEUE, "q"), "", {"h": ("I", 1), f"other{number}": ("I", number)}))
    assert exchange.matches("", headers) == []
    assert 0 < exchange.cost <= 20
