"""Features of one queue together."""

from __future__ import annotations

from at_hand_house import House, Puller

from penstock.message import Run, body_bytes
from penstock.queues.queue import Queue


def texts(run: Run | None) -> list[str]:
    return [] if run is None else [body_bytes(body).decode() for _, body, _ in run.entries]


def consumers_of(queue: Queue, count: int) -> list[Puller]:
    made = [Puller() for _ in range(count)]
    for each in made:
        queue.add_consumer(each, True)
    return made


def test_a_message_that_is_tried_too_often_frees_its_group(house: House) -> None:
    queue = house.declare("q", x_group_header="g", x_delivery_limit=0)
    house.publish("1", "2", headers={"g": "a"})
    first, second = consumers_of(queue, 2)
    run = queue.pull(first, 1)
    assert texts(run) == ["1"]
    assert texts(queue.pull(second, 1)) == []
    assert run is not None
    queue.requeue([run.first_seq_id])
    assert texts(queue.pull(second, 1)) == ["2"]


def test_a_message_that_waits_for_its_next_try_frees_its_group(house: House) -> None:
    queue = house.declare("q", x_group_header="g", x_delayed_retry_min=1000)
    house.publish("1", "2", headers={"g": "a"})
    first, second = consumers_of(queue, 2)
    run = queue.pull(first, 1)
    assert run is not None
    queue.requeue([run.first_seq_id])
    assert texts(queue.pull(second, 1)) == ["2"]
    house.clock.advance(1.001)
    house.broker.expiries.run_due(house.clock.wall_ms())
    assert texts(queue.pull(second, 1)) == ["1"]


def test_where_nothing_can_wait_for_its_next_try_it_comes_at_once(house: House) -> None:
    queue = house.declare("q", x_delayed_retry_min=1000)
    house.publish("1")
    queue.requeue([house.get()])
    (companion,) = house.vhost.companions.queues.values()
    house.pass_ms(1001)
    companion.crash()
    queue.requeue([house.get()])
    assert house.bodies() == ["1"]


def test_what_is_due_waits_while_its_queue_has_crashed(house: House) -> None:
    queue = house.declare("q", x_hold_on_publish=True)
    house.publish("1", headers={"x-not-valid-before": house.clock.wall_ms() + 1000})
    queue.crash()
    house.pass_ms(1001)
    (companion,) = house.vhost.companions.queues.values()
    assert companion.backing.depth() == 1


def test_a_count_that_a_client_wrote_is_no_delivery(house: House) -> None:
    queue = house.declare("q", x_hold_on_publish=True, x_delivery_limit=1)
    house.publish("1", headers={"x-not-valid-before": house.clock.wall_ms() + 1000, "x-delivery-count": 7})
    house.pass_ms(1001)
    run = queue.get(False)
    assert run is not None
    assert not run.redelivered
    queue.requeue([run.first_seq_id])
    assert house.bodies() == ["1"]
