"""Arguments of queues with features: what is refused and with which words, and what counts as the same queue."""

from __future__ import annotations

from typing import Any

import pytest
from pika.compat import long
from pika.exceptions import ChannelClosedByBroker

from tests.features.conftest import Restart
from tests.features.stage import Stage, declare

DLX = {"x-dead-letter-exchange": ""}
DEDUP = {"x-message-deduplication": True, "x-cache-size": 1}
# One queue with all features that go together.
ALL: dict[str, Any] = {
    "x-message-ttl": 1000,
    "x-expires": 100_000,
    "x-max-length": 5,
    "x-max-length-bytes": 500,
    "x-overflow": "reject-publish",
    **DLX,
    "x-dead-letter-routing-key": "k",
    "x-dead-letter-strategy": "at-least-once",
    "x-delivery-limit": 3,
    "x-delayed-retry-min": 10,
    "x-delayed-retry-max": 20,
    "x-delayed-retry-type": "failed",
    "x-expire-anywhere": True,
    "x-hold-on-publish": True,
    **DEDUP,
    "x-cache-ttl": 1000,
    "x-deduplication-header": "h",
}


def refusal(stage: Stage, arguments: dict[str, Any], name: str = "q") -> str:
    with pytest.raises(ChannelClosedByBroker) as refused:
        stage.channel().queue_declare(name, durable=True, arguments=arguments)
    assert refused.value.reply_code == 406
    return str(refused.value.reply_text)


@pytest.mark.parametrize(
    ("arguments", "name", "text"),
    [
        ({"x-dead-letter-routing-key": "k"}, "x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"),
        (
            {"x-dead-letter-strategy": "at-least-once"},
            "x-dead-letter-strategy",
            "no effect without 'x-dead-letter-exch",
        ),
        (
            {**DLX, "x-dead-letter-strategy": "twice"},
            "x-dead-letter-strategy",
            "expected one of at-most-once, at-least",
        ),
        ({**DLX, "x-dead-letter-strategy": 1}, "x-dead-letter-strategy", "expected one of at-most-once, at-least-once"),
        ({"x-delivery-limit": -1}, "x-delivery-limit", "-1 is not between 0 and 1000000"),
        ({"x-delivery-limit": 1_000_001}, "x-delivery-limit", "1000001 is not between 0 and 1000000"),
        ({"x-delivery-limit": "3"}, "x-delivery-limit", "expected an integer, got longstr"),
        ({"x-delivery-limit": True}, "x-delivery-limit", "expected an integer, got bool"),
        ({"x-delayed-retry-min": 0}, "x-delayed-retry-min", "0 is not between 1 and 315360000000"),
        ({"x-delayed-retry-max": 5}, "x-delayed-retry-max", "it has no effect without 'x-delayed-retry-min'"),
        (
            {"x-delayed-retry-min": 2, "x-delayed-retry-max": 1},
            "x-delayed-retry-max",
            "it is below x-delayed-retry-min",
        ),
        ({"x-delayed-retry-type": "all"}, "x-delayed-retry-type", "it has no effect without 'x-delayed-retry-min'"),
        ({"x-delayed-retry-min": 1, "x-delayed-retry-type": "x"}, "x-delayed-retry-type", "disabled, all, failed, ret"),
        ({"x-hold-on-publish": "yes"}, "x-hold-on-publish", "expected true or false, got longstr"),
        ({"x-expire-anywhere": 1}, "x-expire-anywhere", "expected true or false, got"),
        ({"x-group-type": "shared"}, "x-group-type", "it has no effect without 'x-group-header'"),
        ({"x-group-header": "g", "x-sort-header": "s"}, "x-sort-header", "it cannot be combined with 'x-group-header'"),
        ({"x-penstock-companion": "dedup"}, "x-penstock-companion", "names that begin with x-penstock- are the broker"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_help(
    stage: Stage, arguments: dict[str, Any], name: str, text: str
) -> None:
    said = refusal(stage, arguments)
    assert f"invalid arg '{name}' for queue 'q' in vhost '/': " in said
    assert text in said


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-delivery-limit": 0},
        {"x-delivery-limit": 1_000_000},
        {"x-delayed-retry-min": 1, "x-delayed-retry-max": 1},
        {"x-delayed-retry-min": 315_360_000_000},
        {"x-message-deduplication": True, "x-cache-size": 10_000_000},
        {"x-message-deduplication": False},
        {"x-unknown": [1, {"a": None}]},
        ALL,
    ],
)
def test_the_outermost_values_are_taken(stage: Stage, arguments: dict[str, Any]) -> None:
    assert stage.channel().queue_declare("q", arguments=arguments).method.queue == "q"


def test_a_queue_is_the_same_when_all_its_arguments_are(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    channel.queue_declare("q", durable=True, arguments=ALL)
    channel.queue_declare("q", durable=True, arguments=ALL)
    restart(durable)
    durable.channel().queue_declare("q", durable=True, arguments=ALL)
    assert durable.companion_names() == ["amq.dedup.q"]


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_queue_is_another_one_when_one_argument_is_missing(stage: Stage, name: str) -> None:
    stage.channel().queue_declare("q", durable=True, arguments=ALL)
    without = {key: value for key, value in ALL.items() if key != name}
    said = refusal(stage, without)
    assert f"inequivalent arg '{name}' for queue 'q' in vhost '/': received none but current is the value" in said


def test_a_queue_is_another_one_when_an_argument_differs(stage: Stage) -> None:
    declare(stage.channel(), "q", x_delivery_limit=3)
    assert "inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/': received '4' but current is '3'" in refusal(
        stage, {"x-delivery-limit": 4}
    )


def test_a_number_is_the_same_in_every_width(stage: Stage) -> None:
    channel = stage.channel()
    # pika chooses the width by the value; a long long is asked for by its type.
    channel.queue_declare("q", arguments={"x-delivery-limit": 3})
    assert channel.queue_declare("q", arguments={"x-delivery-limit": long(3)}).method.queue == "q"


def test_the_longest_queue_name_can_have_every_feature(durable: Stage) -> None:
    name = "n" * 255
    durable.channel().queue_declare(name, durable=True, arguments=ALL)
    durable.kill_and_start()
    assert durable.channel().queue_declare(name, durable=True, arguments=ALL).method.queue == name
