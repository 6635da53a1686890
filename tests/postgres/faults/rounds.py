"""One round: clients at work, faults one after the other, then everything is drained and checked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.interop.deadline import wait_until
from tests.postgres.faults.checker import Leftovers, problems_of
from tests.postgres.faults.consumers import AmqpConsumer, SessionProcess, SqlConsumer
from tests.postgres.faults.injector import GENTLE, ROUGH, Injector
from tests.postgres.faults.ledger import Ledger
from tests.postgres.faults.publishers import Actor, AmqpPublisher, SessionPublisher, SqlPublisher
from tests.postgres.faults.stage import Stage

# Equal in the first 63 bytes, longer than a channel's name, and with quotes of every kind.
STEM = "faults \"of' $$ %s " + "n" * 60
# Many consumers of all kinds; one over AMQP; one through a session.
SHARED, ONE_AMQP, ONE_SESSION = f"{STEM}.shared", f"{STEM}.amqp", f"{STEM}.session"
QUEUES = (SHARED, ONE_AMQP, ONE_SESSION)
# In a gentle round no lease ends, however slow the machine is.
LEASE_GENTLE_S, LEASE_ROUGH_S = 600.0, 2.0
# After each fault every publisher gets so many more acknowledged before the next one.
ACKNOWLEDGED_BETWEEN = 15
RECOVERY_S = 60.0
DRAIN_S = 90.0
EVERY_GENTLE = 5


@dataclass(frozen=True)
class Plan:
    """What happens in a round; the same for the same seed and number."""

    number: int
    seed: int
    faults: tuple[str, ...]

    @property
    def is_gentle(self) -> bool:
        return all(kind in GENTLE for kind in self.faults)


def plans(seed: int, fault_count: int, round_faults: int = 5) -> list[Plan]:
    """Every fifth round is gentle. Kinds are drawn from a bag, so that none is left out for long."""
    chance = random.Random(seed)
    made: list[Plan] = []
    bags: dict[bool, list[str]] = {True: [], False: []}
    left = fault_count
    while left > 0:
        is_gentle = len(made) % EVERY_GENTLE == 0
        bag = bags[is_gentle]
        faults: list[str] = []
        while len(faults) < min(round_faults, left):
            if not bag:
                bag += GENTLE if is_gentle else (*ROUGH, *GENTLE)
                chance.shuffle(bag)
            faults.append(bag.pop())
        made.append(Plan(len(made), seed, tuple(faults)))
        left -= len(faults)
    return made


class Round:
    """Runs a plan on a stage."""

    def __init__(self, stage: Stage, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan
        self.ledger = Ledger(f"{plan.seed}-{plan.number}")
        self._first_id = int(stage.value("SELECT coalesce(max(id), 0) FROM penstock.messages_history"))
        # The order of a fuzzy queue is no promise, also with one consumer: a put may commit late.
        for queue in (ONE_AMQP, ONE_SESSION):
            stage.rows("SELECT penstock.use_queue(%s, 'strict')", queue)
        self._publishers = self._make_publishers()
        self._consumers = self._make_consumers()
        lease_s = LEASE_GENTLE_S if plan.is_gentle else LEASE_ROUGH_S
        self._process = SessionProcess(
            "session", stage.clients.url, stage.folder / f"round-{plan.number}.log", lease_s, [SHARED, ONE_SESSION]
        )
        self._injector = Injector(stage, [self._process], plan.seed * 1_000_003 + plan.number)

    def _make_publishers(self) -> list[Actor]:
        seed = self._plan.seed * 1_000 + self._plan.number
        url = self._stage.clients.url
        made: list[Actor] = [
            AmqpPublisher(f"amqp{number}{letter}", self.ledger, seed, node.url, QUEUES)
            for number, node in enumerate(self._stage.nodes)
            for letter in "ab"
        ]
        made.append(SessionPublisher("session", self.ledger, seed, url, QUEUES))
        made.append(SqlPublisher("sql", self.ledger, seed, url, QUEUES))
        return made

    def _make_consumers(self) -> list[Actor]:
        seed = self._plan.seed * 1_000 + self._plan.number
        nodes = self._stage.nodes
        lease_s = LEASE_GENTLE_S if self._plan.is_gentle else LEASE_ROUGH_S
        made: list[Actor] = [
            AmqpConsumer(f"shared{number}", self.ledger, seed, node.url, SHARED, 20)
            for number, node in enumerate(nodes)
        ]
        single = nodes[self._plan.number // EVERY_GENTLE % len(nodes)]
        made.append(AmqpConsumer("single", self.ledger, seed, single.url, ONE_AMQP, 50))
        made.append(SqlConsumer("sql", self.ledger, seed, self._stage.clients.url, SHARED, lease_s))
        return made

    # --- the course -------------------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """What is wrong, in words; empty when all is well."""
        try:
            for actor in (*self._consumers, *self._publishers):
                actor.start()
            self._wait_for_publishers("before")
            for kind in self._plan.faults:
                self._injector.happen(kind)
                self._wait_for_publishers(kind)
            self._stop(self._publishers)
            self._drain()
            left = self._end()
        except AssertionError as error:
            return [*self.ledger.complaints, str(error)]
        finally:
            self._injector.heal()
            self._process.kill()
            self._stop([*self._publishers, *self._consumers])
        return problems_of(self.ledger, left, self._plan.is_gentle, (ONE_AMQP, ONE_SESSION))

    def _wait_for_publishers(self, kind: str) -> None:
        wanted = {
            publisher.name: self.ledger.acknowledged_by(publisher.name) + ACKNOWLEDGED_BETWEEN
            for publisher in self._publishers
        }

        def behind() -> list[str]:
            return [name for name, count in wanted.items() if self.ledger.acknowledged_by(name) < count]

        try:
            wait_until(lambda: not behind(), "publishers go on", timeout_s=RECOVERY_S)
        except AssertionError:
            raise AssertionError(f"{behind()} did not go on after: {kind}") from None

    def _stop(self, actors: Sequence[Actor]) -> None:
        for actor in actors:
            actor.stopping.set()
        for actor in actors:
            if actor.is_alive():
                actor.join(RECOVERY_S)

    def _drain(self) -> None:
        """Consumers go on until nothing is left; deaf ones too."""
        self._stage.wait_for_value(0, "SELECT count(*) FROM penstock.messages", seconds=DRAIN_S)

    def _end(self) -> Leftovers:
        self._stop(self._consumers)
        code = self._process.stop()
        if code != 0:
            self.ledger.complain(f"the session's process has ended with {code}")
        self.ledger.read_log(self._process.name, self._process.log)
        self._injector.heal()
        return self._leftovers()

    def _leftovers(self) -> Leftovers:
        stage = self._stage
        left = Leftovers()
        name = "split_part(convert_from(payload, 'UTF8'), '|', 1)"
        left.history = stage.rows(
            f"SELECT q.name, {name}, m.deliveries FROM penstock.messages_history m"
            " JOIN penstock.queues q ON q.id = m.queue_id WHERE m.id > %s",
            self._first_id,
        )
        left.messages = stage.rows(
            f"SELECT q.name, {name} FROM penstock.messages m JOIN penstock.queues q ON q.id = m.queue_id"
        )
        left.participants = self._dead_participants()
        stage.rows("SELECT * FROM penstock.sweep()")
        columns = "name, ready_count, reserved_count, scheduled_count, buried_count, finalized_count"
        counts = f"SELECT {columns} FROM {{}} ORDER BY name"
        left.counts_before = stage.rows(counts.format("penstock.queue_stats"))
        left.counts_after = stage.rows(counts.format("penstock.update_queue_counts()"))
        return left

    def _dead_participants(self) -> list[str]:
        """Clients have left. Each broker may be a consumer of each queue, once, and holds the lock on its number."""
        gone = (
            "SELECT p.name FROM penstock.participants p WHERE p.role = 'producer' OR p.grace = interval '0'"
            " OR penstock._lock_key(p.id) <> ALL (penstock._held_keys())"
        )
        try:
            wait_until(lambda: not self._stage.rows(gone), "the dead are gone", timeout_s=RECOVERY_S)
        except AssertionError:
            return [name for (name,) in self._stage.rows(gone)]
        doubles = self._stage.rows(
            "SELECT q.name || ' has ' || count(*) || ' consumers' FROM penstock.participants p"
            " JOIN penstock.queues q ON q.id = p.queue_id GROUP BY q.name HAVING count(*) > %s",
            len(self._stage.nodes),
        )
        return [text for (text,) in doubles]
