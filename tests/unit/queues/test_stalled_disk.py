"""Consumers of a queue whose disk cannot be read now wait; they do not pass the work to each other for ever."""

from __future__ import annotations

import errno

from queue_house import Inbox, Landlord, texts_of
from tests.contract.variable_house import VariableHouse, plain_options

from penstock.backing.variable.set_aside import LONGEST_S
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue

PULLS_MAX = 50


def settle(queue: Queue, inboxes: list[Inbox]) -> list[str]:
    """Let each consumer pull that was told to, until none is; what they got."""
    found: list[str] = []
    seen = [0] * len(inboxes)
    for _ in range(PULLS_MAX):
        due = [index for index, inbox in enumerate(inboxes) if inbox.told > seen[index]]
        if not due:
            return found
        for index in due:
            seen[index] = inboxes[index].told
            run = queue.pull(inboxes[index], 1)
            found += [] if run is None else texts_of(run)
    raise AssertionError("they never come to rest")


def test_two_consumers_come_to_rest_while_the_disk_is_away_and_go_on_when_it_is_back() -> None:
    options = plain_options(embed_below=0)
    options.journal.cache_bytes = options.journal.view_bytes = 0
    house = VariableHouse(options)
    for text in (b"one", b"two"):
        house.publish(text)
        house.commit()
    house.push_alphas(100)
    queue = Queue("q", "/", True, False, None, {}, house.queue, house.clock, ExpirySchedule(), Landlord())
    for call in ("open", "pread"):
        house.disk.plan.fail(errno.EMFILE, call, forever=True)
    inboxes = [Inbox("a"), Inbox("b")]
    for inbox in inboxes:
        queue.add_consumer(inbox, True)
    assert settle(queue, inboxes) == []
    house.disk.plan.heal()
    house.clock.advance(LONGEST_S)
    house.queue.timeout()
    house.run_callbacks()
    for inbox in inboxes:
        inbox.told = 0
    queue.arrived()
    assert sorted(settle(queue, inboxes)) == ["one", "two"]
