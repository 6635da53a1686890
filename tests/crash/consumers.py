"""Consumers that acknowledge, requeue, refuse and vanish; and a mover, which consumes and publishes in transactions."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from pamqp import commands

from tests.crash.link import Delivery, Link
from tests.crash.messages import ack_frame, nack_frame
from tests.crash.publishers import Publisher
from tests.crash.stage import (
    FAN_QUEUES,
    PRIORITY_QUEUE,
    SINGLE_QUEUES,
    SOURCE_QUEUE,
    TARGET_QUEUE,
    TX_QUEUES,
    CrashClient,
    Stage,
)

PREFETCH = 100
BARRIER_S = 0.05
# What is known to be handled is known to be durable when a later publish is confirmed.
BARRIER = commands.Exchange.Declare(0, "amq.direct", "direct", passive=True)


class Consumer(CrashClient):
    """Consumes from some queues on one channel."""

    def __init__(self, name: str, stage: Stage, folder: Path, rng: Random, queues: tuple[str, ...]) -> None:
        super().__init__(name, stage, folder, rng)
        self._queues = queues
        self._taken: list[Delivery] = []
        stage.settled[name] = 0

    def is_finished(self) -> bool:
        return self.stage.consumers_finish

    def talk(self, link: Link) -> None:
        self._taken = []
        link.call(commands.Basic.Qos(0, PREFETCH), commands.Basic.QosOk)
        for queue in self._queues:
            link.call(commands.Basic.Consume(0, queue, queue), commands.Basic.ConsumeOk)
        barrier_s = time.monotonic()
        while not self.stage.consumers_finish:
            self.check_place()
            if self.stage.consumers_rest:
                self.stage.wait(0.02)
                continue
            for event in link.take(0.05):
                self.take_event(event)
            if self._taken:
                link.send(b"".join(self._settle()))
            if self.stage.clients_vanish and self.rng.random() < 0.0005:
                link.drop()
                self.add("info dropped")
                return
            if time.monotonic() > barrier_s + BARRIER_S:
                link.call(BARRIER, commands.Exchange.DeclareOk)
                self.add("ok barrier")
                barrier_s = time.monotonic()
        self.finish_session(link)

    def take_event(self, event: object) -> None:
        if not isinstance(event, Delivery):
            self.add("info surprise", repr(event))
            return
        self.add("ok delivery", event.tag, event.consumer_tag, event.redelivered, *event[3:])
        self._taken.append(event)

    def _settle(self) -> list[bytes]:
        """Frames that settle what was taken; sometimes a few are kept for later."""
        taken, self._taken = self._taken, []
        chance = self.rng.random()
        if chance < 0.6:
            return [self._settle_one("ack", taken[-1].tag, multiple=True, count=len(taken))]
        if chance < 0.7 and len(taken) > 2:
            self._taken = taken[::2]
            return [self._settle_one("ack", each.tag) for each in taken[1::2]]
        frames: list[bytes] = []
        for each in taken:
            how = "ack"
            if chance > 0.85:
                how = self.rng.choices(("ack", "requeue", "reject"), (90, 8, 2))[0]
            frames.append(self._settle_one(how, each.tag))
        return frames

    def _settle_one(self, how: str, tag: int, multiple: bool = False, count: int = 1) -> bytes:
        self.add("invoke settle", tag, multiple, how, "")
        if how == "requeue":
            return nack_frame(tag, multiple, True)
        self.stage.settled[self.name] += count
        return ack_frame(tag, multiple) if how == "ack" else nack_frame(tag, multiple, False)


class Mover(Publisher):
    """Takes messages from one queue and puts others into another one: both in one transaction, or neither."""

    def __init__(self, name: str, stage: Stage, folder: Path, rng: Random) -> None:
        super().__init__(name, stage, folder, rng)
        self._taken: list[Delivery] = []
        stage.settled[name] = 0

    def is_finished(self) -> bool:
        return self.stage.consumers_finish

    def talk(self, link: Link) -> None:
        self._taken = []
        link.call(commands.Tx.Select(), commands.Tx.SelectOk)
        link.call(commands.Basic.Qos(0, 50), commands.Basic.QosOk)
        link.call(commands.Basic.Consume(0, SOURCE_QUEUE, SOURCE_QUEUE), commands.Basic.ConsumeOk)
        while not self.stage.consumers_finish:
            self.check_place()
            if self.stage.consumers_rest:
                self.stage.wait(0.02)
                continue
            for event in link.take(0.05):
                self.take_event(event)
            if self._taken:
                self._move(link)
        self.finish_session(link)

    def take_event(self, event: object) -> None:
        if not isinstance(event, Delivery):
            self.add("info surprise", repr(event))
            return
        self.add("ok delivery", event.tag, event.consumer_tag, event.redelivered, *event[3:])
        self._taken.append(event)

    def _move(self, link: Link) -> None:
        taken, self._taken = self._taken, []
        transaction = f"{self.name}-{self.session}-{self.tag}"
        frames: list[bytes] = []
        for each in taken:
            frames.append(self.make("", TARGET_QUEUE, (TARGET_QUEUE,), transaction, each.message_id))
            self.add("invoke settle", each.tag, False, "ack", transaction)
            frames.append(ack_frame(each.tag, False))
        link.send(b"".join(frames))
        if self.rng.random() < 0.1:
            link.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)
            self.add("ok rollback", transaction)
            self._taken = taken + self._taken
            return
        self.add("invoke commit", transaction)
        link.call(commands.Tx.Commit(), commands.Tx.CommitOk)
        self.add("ok commit", transaction)
        self.stage.settled[self.name] += len(taken)


def make_consumers(stage: Stage, folder: Path, rng: Random) -> list[CrashClient]:
    """Four that settle, of which two share queues, and the mover."""
    seeds = [Random(rng.getrandbits(64)) for _ in range(5)]
    shared = (FAN_QUEUES[0], FAN_QUEUES[1], PRIORITY_QUEUE)
    return [
        Consumer("c0", stage, folder, seeds[0], (SINGLE_QUEUES[0], FAN_QUEUES[2])),
        Consumer("c1", stage, folder, seeds[1], (SINGLE_QUEUES[1], TX_QUEUES[0])),
        Consumer("c2", stage, folder, seeds[2], (*shared, TX_QUEUES[1])),
        Consumer("c3", stage, folder, seeds[3], (*shared, TARGET_QUEUE)),
        Mover("mover", stage, folder, seeds[4]),
    ]
