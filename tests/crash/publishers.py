"""Publishers: with confirms and a window, or with transactions over several queues."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pamqp import commands

from tests.crash.link import ANSWER_S, Confirm, Link, LinkLost
from tests.crash.messages import PERSISTENT, TRANSIENT, body_of, publish_frames, seal_of, size_of
from tests.crash.stage import (
    FAN_QUEUES,
    FANOUT,
    PRIORITY_MAX,
    PRIORITY_QUEUE,
    SINGLE_QUEUES,
    SOURCE_QUEUE,
    TX_QUEUES,
    CrashClient,
    Stage,
)

WINDOW = 300
BURST_MAX = 40


class Publisher(CrashClient):
    """Makes messages and notes them before they are sent."""

    def __init__(self, name: str, stage: Stage, folder: Path, rng: Random) -> None:
        super().__init__(name, stage, folder, rng)
        self.tag = 0
        stage.published[name] = 0

    def is_finished(self) -> bool:
        return self.stage.publishers_finish

    def make(
        self,
        exchange: str,
        key: str,
        queues: tuple[str, ...],
        transaction: str = "",
        made_from: str = "",
        mode: int = 2,
    ) -> bytes:
        """The frames of a new message."""
        self.tag += 1
        message_id = f"{self.name}-{self.session}-{self.tag}"
        priority = self.rng.randint(0, PRIORITY_MAX) if key == PRIORITY_QUEUE else 0
        body = body_of(message_id, size_of(self.rng))
        seal = seal_of(message_id, priority, mode, body)
        self.add("invoke publish", self.tag, message_id, queues, seal, priority, mode, transaction, made_from)
        self.stage.published[self.name] += len(queues)
        return publish_frames(exchange, key, message_id, priority, mode, body)


class ConfirmPublisher(Publisher):
    """Keeps a window of unconfirmed messages; goes to one queue at a time, or to all that the fan-out exchange has."""

    def __init__(self, name: str, stage: Stage, folder: Path, rng: Random, targets: tuple[str, ...]) -> None:
        super().__init__(name, stage, folder, rng)
        self._targets = targets
        self._outstanding: dict[int, None] = {}

    def talk(self, link: Link) -> None:
        self.tag = 0
        self._outstanding = {}
        link.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        while not self.stage.publishers_finish:
            self.check_place()
            if self.stage.is_full:
                self._take(link, 0.02)
                continue
            burst_max, window = (3, 0) if self.stage.publishers_wait else (BURST_MAX, WINDOW)
            link.send(b"".join([self._make() for _ in range(self.rng.randint(1, burst_max))]))
            self._take(link, 0.0)
            while len(self._outstanding) > window:
                self._take(link, 1.0)
            chance = self.rng.random()
            if chance < 0.001 and self.stage.clients_vanish:
                link.drop()
                self.add("info dropped")
                return
            if chance < 0.003:
                break
        for _ in range(int(ANSWER_S)):
            if not self._outstanding:
                break
            self._take(link, 1.0)
        else:
            raise LinkLost(f"{len(self._outstanding)} confirms did not come within {ANSWER_S} s")
        self.finish_session(link)

    def _make(self) -> bytes:
        target = self.rng.choice(self._targets)
        if target == FANOUT:
            frames = self.make(FANOUT, "", FAN_QUEUES)
        else:
            mode = TRANSIENT if self.rng.random() < 0.03 else PERSISTENT
            frames = self.make("", target, (target,), mode=mode)
        self._outstanding[self.tag] = None
        return frames

    def _take(self, link: Link, timeout_s: float) -> None:
        for event in link.take(timeout_s):
            self.take_event(event)

    def take_event(self, event: object) -> None:
        if not isinstance(event, Confirm):
            self.add("info surprise", repr(event))
            return
        self.add("ok confirm" if event.is_ack else "fail confirm", event.tag, event.multiple)
        if event.multiple:
            for tag in list(self._outstanding):
                if tag > event.tag:
                    break
                del self._outstanding[tag]
        else:
            self._outstanding.pop(event.tag, None)


class TxPublisher(Publisher):
    """Commits groups of messages over two queues, and over the fan-out exchange."""

    def talk(self, link: Link) -> None:
        link.call(commands.Tx.Select(), commands.Tx.SelectOk)
        while not self.stage.publishers_finish:
            self.check_place()
            if self.stage.is_full:
                self.stage.wait(0.02)
                continue
            transaction = f"{self.name}-{self.session}-{self.tag}"
            link.send(b"".join([self._make(transaction) for _ in range(self.rng.randint(2, 12))]))
            if self.rng.random() < 0.1:
                link.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)
                self.add("ok rollback", transaction)
                continue
            self.add("invoke commit", transaction)
            link.call(commands.Tx.Commit(), commands.Tx.CommitOk)
            self.add("ok commit", transaction)
        self.finish_session(link)

    def _make(self, transaction: str) -> bytes:
        if self.rng.random() < 0.1:
            return self.make(FANOUT, "", FAN_QUEUES, transaction)
        queue = TX_QUEUES[self.tag % 2]
        return self.make("", queue, (queue,), transaction)

    def take_event(self, event: object) -> None:
        self.add("info surprise", repr(event))


def make_publishers(stage: Stage, folder: Path, rng: Random) -> list[CrashClient]:
    """Four of them, each with its own random numbers."""
    seeds = [Random(rng.getrandbits(64)) for _ in range(4)]
    return [
        ConfirmPublisher("p0", stage, folder, seeds[0], SINGLE_QUEUES),
        ConfirmPublisher("p1", stage, folder, seeds[1], (FANOUT, SOURCE_QUEUE)),
        ConfirmPublisher("p2", stage, folder, seeds[2], (*SINGLE_QUEUES, PRIORITY_QUEUE, FANOUT)),
        TxPublisher("p3", stage, folder, seeds[3]),
    ]
