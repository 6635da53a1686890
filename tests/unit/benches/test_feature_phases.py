"""What the benchmark of a feature asks of the load generator, how many messages it sends, and who takes part."""

from __future__ import annotations

from benches.brokers import Penstock
from benches.cases import BY_NAME, COMPARED, FEATURE_KINDS
from benches.features import FeaturePhases
from benches.rabbitmq import RabbitMQ
from benches.runner import Plan, Runner
from benches.summary import BEFORE


class EarlierPenstock(Penstock):
    name = BEFORE


PLAN = Plan(repeats=1, seconds=1.0, backlog=1_000, features=200, nice=None)


def phases_of(case: str, messages: int) -> FeaturePhases:
    with Penstock() as broker:
        return FeaturePhases(broker, BY_NAME[case], messages)


def test_messages_live_longer_where_there_are_more_of_them() -> None:
    few, many = phases_of("ttl", 10_000), phases_of("ttl", 100_000)
    assert "x-message-ttl=200" in few.arguments
    assert "x-message-ttl=2000" in many.arguments


def test_delayed_messages_are_due_within_a_window_after_the_last_is_published() -> None:
    arguments = phases_of("delayed", 100_000).arguments
    assert arguments[arguments.index("--delay") + 1] == "10000-20000"


def test_of_a_last_value_queue_one_message_for_each_key_is_left() -> None:
    assert phases_of("last-value", 1_000_000).waiting == 10_000
    assert phases_of("last-value", 500).waiting == 500
    assert phases_of("grouped", 500).waiting == 500


def test_features_and_backlogs_have_their_own_numbers_of_messages() -> None:
    assert PLAN.messages(BY_NAME["delayed"]) == 200
    assert PLAN.messages(BY_NAME["delayed-tenth"]) == 20
    assert PLAN.messages(BY_NAME["backlog-deep"]) == 5_000


def test_an_earlier_penstock_takes_part_in_the_plain_cases_only() -> None:
    runner = Runner([Penstock, EarlierPenstock, RabbitMQ], [BY_NAME["ack-1"]], PLAN)
    taking_part = {case.name for case in BY_NAME.values() if EarlierPenstock in runner.kinds_for(case)}
    assert taking_part == set(COMPARED)


def test_rabbitmq_takes_part_in_the_features_that_it_has() -> None:
    runner = Runner([Penstock, RabbitMQ], [BY_NAME["ack-1"]], PLAN)
    compared = {c.name for c in BY_NAME.values() if c.kind in FEATURE_KINDS and RabbitMQ in runner.kinds_for(c)}
    assert compared == {"ttl", "dead-letter-expired", "dead-letter-rejected", "priority"}
