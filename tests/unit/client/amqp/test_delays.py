"""The ladder, climbed by hand: where a message goes, and how long it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.amqp import delays
from penstock.limits import EXPIRATION_MS_MAX
from penstock.wire import methods


def climb(steps: int) -> int:
    """The milliseconds that a message spends on a ladder with all levels, by what is declared and bound."""
    declared = delays.declarations(delays.LEVELS - 1, -1)
    queues = {one.queue: one for one in declared if isinstance(one, methods.QueueDeclare)}
    headers = delays.bits_of(steps)
    exchange = delays.level_name(delays.top_level(steps))
    waited_ms = 0
    while exchange != delays.OUT:
        matching: list[methods.QueueBind | methods.ExchangeBind] = []
        for one in declared:
            is_from_here = (isinstance(one, methods.QueueBind) and one.exchange == exchange) or (
                isinstance(one, methods.ExchangeBind) and one.source == exchange
            )
            if is_from_here:
                assert isinstance(one, methods.QueueBind | methods.ExchangeBind)
                if all(headers.get(name) == value for name, value in one.arguments.items() if name != "x-match"):
                    matching.append(one)
        assert len(matching) == 1, "each level has exactly one way on"
        found = matching[0]
        if isinstance(found, methods.ExchangeBind):
            exchange = found.destination
            continue
        arguments = queues[found.queue].arguments
        ttl_ms, next_exchange = arguments["x-message-ttl"][1], arguments["x-dead-letter-exchange"][1]
        assert isinstance(ttl_ms, int)
        assert isinstance(next_exchange, bytes)
        waited_ms += ttl_ms
        exchange = next_exchange.decode()
    return waited_ms


@given(st.integers(1, EXPIRATION_MS_MAX // delays.STEP_MS))
def test_a_message_waits_as_many_steps_as_it_should(steps: int) -> None:
    assert climb(steps) == steps * delays.STEP_MS


@given(st.floats(0.0, EXPIRATION_MS_MAX / 1000))
def test_a_delay_is_rounded_up_to_whole_steps(delay_s: float) -> None:
    steps = delays.steps_of(delay_s)
    assert (steps - 1) * delays.STEP_MS < delay_s * 1000 <= steps * delays.STEP_MS or steps == delay_s == 0


@pytest.mark.parametrize("delay_s", [0.0, -0.0, -1.0, -1e12])
def test_what_is_over_does_not_wait(delay_s: float) -> None:
    assert delays.steps_of(delay_s) == 0


def test_more_than_ten_years_are_refused() -> None:
    with pytest.raises(ValueError, match="ten years"):
        delays.steps_of(EXPIRATION_MS_MAX / 1000 + 1)


def test_only_the_rungs_that_are_missing_are_made() -> None:
    everything = delays.declarations(9, -1)
    assert delays.declarations(9, 9) == []
    assert delays.declarations(4, -1) + delays.declarations(9, 4) == everything


def test_a_rung_is_made_after_the_one_below_it() -> None:
    made: set[str] = set()
    for one in delays.declarations(delays.LEVELS - 1, -1):
        if isinstance(one, methods.ExchangeDeclare):
            made.add(one.exchange)
        elif isinstance(one, methods.QueueDeclare):
            below = one.arguments["x-dead-letter-exchange"][1]
            assert isinstance(below, bytes)
            assert below.decode() in made
