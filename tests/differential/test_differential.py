"""Every script on penstock and on RabbitMQ: what the two say must be equal, but for the agreed differences."""

from __future__ import annotations

import pytest

from penstock.testing import Broker

from ..oracle import RabbitMQ, version
from . import scripts  # noqa: F401 - importing registers them
from .agreed import AGREED, expected
from .record import load
from .session import REGISTRY, Script, run

RECORDED_VERSION, RECORDED = load()
EVERY_SCRIPT = pytest.mark.parametrize("each", REGISTRY.values(), ids=list(REGISTRY))


@EVERY_SCRIPT
def test_penstock_answers_as_rabbitmq_did(each: Script, penstock_broker: Broker) -> None:
    said = run(each, penstock_broker.host, penstock_broker.port)
    assert said == expected(each.name, RECORDED[each.name])


@pytest.mark.oracle
@pytest.mark.slow
@EVERY_SCRIPT
def test_a_living_rabbitmq_answers_as_recorded(each: Script, rabbitmq: RabbitMQ) -> None:
    if version() != RECORDED_VERSION:
        pytest.skip(f"recorded with RabbitMQ {RECORDED_VERSION}, and {version()} is installed")
    assert run(each, rabbitmq.host, rabbitmq.port) == RECORDED[each.name]


def test_every_script_is_recorded_and_every_recording_has_its_script() -> None:
    assert sorted(RECORDED) == sorted(REGISTRY)


def test_there_are_enough_scripts() -> None:
    assert len(REGISTRY) >= 800


def test_no_recording_was_cut_short() -> None:
    assert [name for name, transcript in RECORDED.items() if "script" in transcript] == []


@pytest.mark.parametrize("name", sorted(AGREED))
def test_an_agreed_difference_is_one(name: str) -> None:
    assert name in REGISTRY, "there is no such script any more"
    assert AGREED[name].reason
    assert expected(name, RECORDED[name]) != RECORDED[name]
