"""Definitions files that somebody has damaged: refused with a place, and nothing of them is made."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from penstock.broker.broker import Broker
from penstock.config import Config
from tests.unit.broker.test_transfer import FILE, ask, exported

from . import budget

ODD: list[Any] = [
    *(None, True, -1, 0, 2**31, 2**64, 1e308, "", "/", "amq.topic", "a" * 300, "\x00", "\ud800", "(a+)+$", "'\"<>&"),
    *([], {}, [[]], [["a", 1]], {"": {}}, {"x-message-ttl": -1}, {"a": {"b": {"c": []}}}),
]


def damage(random: Random, value: Any) -> Any:
    """Return the value with one thing in it changed, wherever."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(sorted(value))
        changed = {**value}
        act = random.random()
        if act < 0.1:
            del changed[key]
        elif act < 0.2:
            changed[random.choice(["name", "vhost", "arguments", "value", "penstock", "", key.upper()])] = changed.pop(
                key
            )
        else:
            changed[key] = damage(random, changed[key])
        return changed
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        act = random.random()
        if act < 0.1:
            return value[:at] + value[at + 1 :]
        if act < 0.2:
            return [*value, value[at]]
        return [*value[:at], damage(random, value[at]), *value[at + 1 :]]
    return random.choice(ODD)


def test_a_damaged_file_is_imported_whole_or_not_at_all() -> None:
    refused = 0
    broker = Broker(Config())
    for seed in budget.seeds(1_500, budget.DEFINITIONS_SHARE):
        random = Random(seed)
        definitions = copy.deepcopy(FILE)
        for _ in range(random.randint(1, 3)):
            definitions = damage(random, definitions)
            if not isinstance(definitions, dict):
                definitions = {"queues": definitions}
        before = exported(broker)
        answer = ask(broker, "import_definitions", definitions=definitions)
        if answer.error is None:
            # What was taken can be exported, and taken again.
            assert ask(Broker(Config()), "import_definitions", definitions=exported(broker)).error is None, seed
            broker = Broker(Config())
        else:
            refused += 1
            assert exported(broker) == before, seed
    assert refused
