"""Calling operations by name: arguments, rights, answers, what is audited."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.access.user import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER
from penstock.broker.broker import Broker
from penstock.broker.operations.actor import Actor, owner
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import CallError, NotAllowed
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation
from penstock.broker.operations.perform import Answer, Performer
from penstock.broker.operations.table import OPERATIONS
from penstock.config import Config
from penstock.errors import not_found

NO_KEYS: list[str] = []


def measure(
    call: Call, *, name: str, count: int = 1, share: float = 0.5, is_loud: bool = False, keys: list[str] = NO_KEYS
) -> dict[str, Any]:
    """Take some measure."""
    call.actor.require_administrator()
    call.note("thing.measured", name=name)
    return {"name": name, "count": count, "share": share, "is_loud": is_loud}


OPERATION = Operation(measure)


def perform(operation: Operation, actor: Actor | None = None, broker: Broker | None = None, **arguments: Any) -> Answer:
    answers: list[Answer] = []
    performer = Performer(broker or Broker(Config()), {operation.name: operation})
    performer.perform(actor or owner("test"), operation.name, arguments, answers.append)
    (answer,) = answers
    return answer


def test_an_operation_gets_its_arguments_and_its_result_is_the_answer() -> None:
    answer = perform(OPERATION, name="a", count=3, share=2, is_loud=True, keys=["x"])
    assert answer.error is None
    assert answer.result == {"name": "a", "count": 3, "share": 2, "is_loud": True}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "measure needs name"),
        ({"name": 3}, "'name' of measure must be a text"),
        ({"name": None}, "'name' of measure must be a text"),
        ({"name": "a", "count": "3"}, "'count' of measure must be a whole number"),
        ({"name": "a", "count": True}, "'count' of measure must be a whole number"),
        ({"name": "a", "count": 1.5}, "'count' of measure must be a whole number"),
        ({"name": "a", "is_loud": 1}, "'is_loud' of measure must be true or false"),
        ({"name": "a", "keys": "x"}, "'keys' of measure must be a list of texts"),
        ({"name": "a", "keys": ["x", 1]}, "'keys' of measure must be a list of texts"),
        ({"name": "\ud800"}, "'name' of measure has a text with half a surrogate pair: '\\ud800'"),
        ({"name": "a", "keys": ["x\udbff"]}, "'keys' of measure has a text with half a surrogate pair: 'x\\udbff'"),
        ({"name": "a", "cuont": 1}, "measure has no argument 'cuont'; did you mean 'count'?"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments: dict[str, Any], text: str) -> None:
    error = perform(OPERATION, **arguments).error
    assert error is not None
    assert (error.kind, str(error)) == ("bad_request", text)


def test_an_unknown_operation_is_answered_with_the_nearest_name() -> None:
    answers: list[Answer] = []
    Performer(Broker(Config()), OPERATIONS).perform(owner("test"), "statsu", {}, answers.append)
    assert str(answers[0].error) == "there is no operation 'statsu'; did you mean 'status'?"


def test_what_was_done_is_audited_and_what_was_refused_too() -> None:
    broker = Broker(Config())
    perform(OPERATION, broker=broker, name="a")
    nobody = Actor("eve", [], "10.0.0.9:1234", "http", lambda vhost: False)
    assert isinstance(perform(OPERATION, nobody, broker, name="b").error, NotAllowed)
    measured, refused = broker.audit.recent
    assert (measured["event"], measured["user"], measured["name"]) == ("thing.measured", "(owner)", "a")
    assert (refused["event"], refused["user"], refused["address"]) == ("access.refused", "eve", "10.0.0.9:1234")


def test_an_error_of_amqp_is_answered_as_one_of_the_call() -> None:
    def look(call: Call) -> None:
        raise not_found("no queue 'q' in vhost '/'")

    error = perform(Operation(look)).error
    assert error is not None
    assert (error.kind, str(error)) == ("not_found", "NOT_FOUND - no queue 'q' in vhost '/'")


def test_an_operation_that_takes_long_tells_how_far_it_is_and_answers_when_it_is_done() -> None:
    laters: list[Later] = []

    def walk(call: Call) -> Later:
        laters.append(Later())
        return laters[0]

    answers: list[Answer] = []
    steps: list[dict[str, Any]] = []
    performer = Performer(Broker(Config()), {"walk": Operation(walk)})
    performer.perform(owner("test"), "walk", {}, answers.append, steps.append)
    laters[0].progress(done=1, total=2)
    assert (answers, steps) == ([], [{"done": 1, "total": 2}])
    laters[0].finish("there")
    assert [answer.result for answer in answers] == ["there"]


def test_an_operation_that_takes_long_and_fails_answers_with_its_error() -> None:
    later = Later()

    def walk(call: Call) -> Later:
        return later

    answers: list[Answer] = []
    Performer(Broker(Config()), {"walk": Operation(walk)}).perform(owner("test"), "walk", {}, answers.append)
    later.fail(CallError("it rains"))
    assert str(answers[0].error) == "it rains"


RIGHTS = [
    # tags, vhosts, then: administrator, policymaker, monitoring, management of "/"
    ([ADMINISTRATOR], ["/"], "apvm"),
    ([ADMINISTRATOR], [], "avm"),
    ([POLICYMAKER], ["/"], "pm"),
    ([POLICYMAKER], [], ""),
    ([MONITORING], [], "vm"),
    ([MANAGEMENT], ["/"], "m"),
    ([MANAGEMENT], [], ""),
    ([], ["/"], ""),
    (["impersonator"], ["/"], ""),
]


@pytest.mark.parametrize(("tags", "vhosts", "granted"), RIGHTS)
def test_tags_and_vhosts_give_rights(tags: list[str], vhosts: list[str], granted: str) -> None:
    actor = Actor("ann", tags, "", "test", lambda vhost: vhost in vhosts)
    checks = {
        "a": actor.require_administrator,
        "p": lambda: actor.require_policymaker("/"),
        "v": actor.require_monitoring,
        "m": lambda: actor.require_management("/"),
    }
    for letter, check in checks.items():
        if letter in granted:
            check()
        else:
            with pytest.raises(NotAllowed):
                check()
