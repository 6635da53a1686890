"""Policies on queues with very many messages: one call does not do all the work."""

from __future__ import annotations

from at_hand_house import House

from penstock.broker.policies.policy import Policy
from penstock.queues.intake.drop_pace import AT_ONCE_MAX


def test_a_limit_on_a_long_queue_drops_a_slice_at_a_time() -> None:
    house = House(False)
    queue = house.declare("q")
    count = 3 * AT_ONCE_MAX
    house.publish(*[str(number) for number in range(count)])
    house.vhost.policies.put(Policy("p", "q", "all", 0, {"max-length": 1}), False, lambda: None)
    assert queue.ready_count() == count - AT_ONCE_MAX
    for _ in range(10):
        house.pass_ms(1)
    assert house.bodies() == [str(count - 1)]
