"""Walks over queues in which messages stand at all places: compared with what the backing and the selection say."""

from __future__ import annotations

import random

import pytest
from at_hand_house import House
from tests.effort import some

from penstock.broker.operations.messages.message_moves import Target, delete, move
from penstock.broker.operations.messages.message_walk import Walk
from penstock.message import Entry
from penstock.queues.queue import Queue

ARGUMENTS: list[dict[str, object]] = [
    {},
    {"x_max_priority": 4},
    {"x_group_header": "g"},
    {"x_last_value_header": "g"},
    {"x_sort_header": "n"},
    {"x_expire_anywhere": True},
]


def expected(queue: Queue, with_unacked: bool) -> list[tuple[int, str]]:
    """Numbers and states, by looking at everything."""
    shelved = set() if queue.selection is None else set(queue.selection.shelved_ids())
    found: list[tuple[int, str]] = []

    def visit(seq_id: int, entry: Entry, is_pending: bool) -> bool:
        is_ready = not is_pending or seq_id in shelved
        if is_ready or with_unacked:
            found.append((seq_id, "ready" if is_ready else "unacked"))
        return True

    queue.backing.fold(visit)
    return found


def walked(queue: Queue, with_unacked: bool, looks_max: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    position: int | None = 0
    while position is not None:
        walk = Walk(queue, position, looks_max, with_unacked)
        found.extend([(seen.seq_id, seen.state) for seen in walk.messages()])
        assert walk.looked_at <= looks_max
        position = walk.next_seq_id
    return found


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: next(iter(arguments), "plain"))
@pytest.mark.parametrize("seed", some(range(6)))
def test_a_walk_finds_each_message_once_in_its_place(house: House, arguments: dict[str, object], seed: int) -> None:
    queue = house.declare("q", **arguments)
    house.declare("other")
    rng = random.Random(seed)
    unacked: list[int] = []
    for _ in range(150):
        step = rng.randrange(7)
        if step < 3:
            number = rng.randrange(5)
            house.publish("x" * number, headers={"g": f"group {number}", "n": number}, priority=number)
        elif step == 3 and (run := queue.get(False)) is not None:
            unacked.append(run.first_seq_id)
        elif step == 4 and unacked:
            seq_id = unacked.pop(rng.randrange(len(unacked)))
            if rng.randrange(2):
                queue.requeue([seq_id])
            else:
                queue.ack([seq_id])
        elif step == 5 and (known := expected(queue, True)):
            chosen = [seq_id for seq_id, _ in rng.sample(known, min(3, len(known)))]
            ready = sorted([seq_id for seq_id, state in known if state == "ready" and seq_id in chosen])
            if rng.randrange(2):
                outcome = delete(house.vhost, "q", chosen)
            else:
                outcome = move(house.vhost, "q", chosen, Target(queue="other"))
            assert sorted(outcome.done) == ready
            assert sorted(outcome.done + outcome.busy) == sorted(chosen)
        for with_unacked in (False, True):
            assert walked(queue, with_unacked, rng.randrange(1, 5)) == expected(queue, with_unacked)
        assert queue.ready_count() == len(expected(queue, False))
    house.check()


def test_unacknowledged_messages_far_behind_others_are_found(house: House) -> None:
    queue = house.declare("q", x_max_priority=2)
    house.publish("low", priority=0)
    taken = house.get()
    house.publish(*"abcdef", priority=2)
    walk = Walk(queue, 0, with_unacked=True)
    assert [seen.seq_id for seen in walk.messages() if seen.state == "unacked"] == [taken]


def test_a_walk_is_bounded_in_bytes(house: House) -> None:
    queue = house.declare("q")
    house.publish("x" * 50, "y" * 50, "z")
    walk = Walk(queue, 0, bytes_max=60)
    assert [seen.seq_id for seen in walk.messages()] == [0, 1]
    assert walk.next_seq_id == 2
