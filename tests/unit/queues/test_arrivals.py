"""When messages arrived: samples, how they are thinned out, and what is not known."""

from __future__ import annotations

from penstock.queues.arrivals import Arrivals


def test_a_message_arrived_by_the_first_sample_above_its_number() -> None:
    arrivals = Arrivals()
    arrivals.sample(3, 1_000)
    arrivals.sample(5, 2_000)
    assert [arrivals.arrived_ms(seq_id, 9_000) for seq_id in range(7)] == [
        *[1_000] * 3,
        *[2_000] * 2,
        *[9_000] * 2,
    ]


def test_what_was_there_before_the_start_is_not_known() -> None:
    arrivals = Arrivals(known_from=10)
    arrivals.sample(10, 1_000)
    assert len(arrivals) == 0
    arrivals.sample(12, 2_000)
    assert [arrivals.arrived_ms(seq_id, 5_000) for seq_id in (9, 10, 12)] == [-1, 2_000, 5_000]


def test_a_tick_without_messages_leaves_no_sample() -> None:
    arrivals = Arrivals()
    for wall_ms in (1_000, 2_000, 3_000):
        arrivals.sample(4, wall_ms)
    assert len(arrivals) == 1
    assert arrivals.arrived_ms(3, 9_000) == 1_000


def test_samples_are_bounded_and_old_ones_lose_precision_first() -> None:
    arrivals = Arrivals(samples_max=8)
    for tick in range(1, 1_001):
        arrivals.sample(tick, tick * 1_000)
        arrivals.check_invariants()
    now_ms = 1_000_000
    for seq_id in range(1_000):
        said_ms, true_ms = arrivals.arrived_ms(seq_id, now_ms), (seq_id + 1) * 1_000
        assert said_ms >= true_ms, "a message is never said to be older than it is"
        assert said_ms - true_ms <= (now_ms - true_ms) + 1_000
    assert arrivals.arrived_ms(999, now_ms) == now_ms
