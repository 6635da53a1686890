"""The tables of the benchmark: queues beside a plain one, and penstock beside an earlier penstock."""

from __future__ import annotations

import pytest
from benches import glance
from benches.report import before_section, markdown, ordered_section, targets_section
from benches.summary import BEFORE, PENSTOCK, RABBITMQ, Repeat, Summary
from benches.targets import TARGETS

LOAD = {"published_per_s": 100.0, "consumed_per_s": 100.0, "cpu_us_per_msg": 2.0, "rss_peak_mib": 50.0}


def summary_of(*repeats: tuple[str, str, dict[str, float]]) -> Summary:
    summary = Summary()
    for broker, case, metrics in repeats:
        summary.add(Repeat(broker, case, 0, metrics))
    return summary


def test_a_queue_with_an_order_is_divided_by_the_plain_queue_of_the_same_run() -> None:
    fill = {"published_per_s": 100.0, "drained_per_s": 200.0}
    slower = {"published_per_s": 50.0, "drained_per_s": 50.0}
    section = ordered_section(summary_of((PENSTOCK, "plain", fill), (PENSTOCK, "grouped", slower)))
    assert section is not None
    assert "(`grouped`) | **0.50** | **0.25** |" in section
    assert "(`plain`) |" not in section


def test_without_an_earlier_revision_nothing_is_said_of_one() -> None:
    summary = summary_of((PENSTOCK, "ack-1", LOAD), (RABBITMQ, "ack-1", LOAD))
    assert before_section(summary) is None
    assert "before" not in targets_section(summary)


def test_now_is_divided_by_before_and_before_has_no_column_elsewhere() -> None:
    before = {**LOAD, "consumed_per_s": 200.0}
    summary = summary_of((PENSTOCK, "ack-1", LOAD), (BEFORE, "ack-1", before))
    section = before_section(summary)
    assert section is not None
    assert "| `ack-1` | 100 | 200 | **0.50** |" in section
    assert "| `ack-1`: messages a second | ≥ 0.95 of before | 0.50 | **no** |" in markdown(summary, "a machine")
    assert summary.brokers() == [PENSTOCK]


@pytest.mark.parametrize(("at_a_million", "met"), [(14.0, True), (16.0, False)])
def test_delayed_messages_may_cost_half_as_much_again_among_ten_times_as_many(at_a_million: float, met: bool) -> None:
    summary = summary_of(
        (PENSTOCK, "delayed", {"cpu_us_per_msg": at_a_million}), (PENSTOCK, "delayed-tenth", {"cpu_us_per_msg": 10.0})
    )
    [target] = [t for t in TARGETS if t.case == "delayed" and t.metric == "cpu_us_per_msg" and t.against]
    assert target.met(summary) is met


def test_cases_of_penstock_alone_have_no_columns_of_rabbitmq() -> None:
    held = {"messages": 10.0, "published_per_s": 100.0}
    text = markdown(summary_of((PENSTOCK, "delayed", held), (RABBITMQ, "ttl", held), (PENSTOCK, "ttl", held)), "")
    section = text.split("## Delayed")[1].split("## ")[0]
    assert "penstock" in section
    assert "RabbitMQ" not in section


def test_the_glance_shows_what_was_measured_and_turns_latencies_over() -> None:
    found = Summary()
    for broker, rate, late_ms in ((PENSTOCK, 600.0, 1.0), (RABBITMQ, 200.0, 4.0)):
        found.add(Repeat(broker, "celery", 0, {"consumed_per_s": rate, "cpu_us_per_msg": rate / 100}))
        found.add(Repeat(broker, "many-connections", 0, {"e2e_p99_ms": late_ms, "cpu_us_per_msg": late_ms}))
    assert [(length, cpu) for _, length, cpu in glance.bars_of(found)] == [(3.0, 3.0), (4.0, 0.25)]
