"""A round: clients work while their broker is killed and started again and again; then everything is drained.

The moments and the manner of the kills are drawn from the round's seed. They are not what makes a failure repeatable,
the machine has a part in it: what counts is the history, the log and the data folder that a round leaves.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pamqp import commands

from tests.crash.broker_process import BrokerProcess
from tests.crash.consumers import make_consumers
from tests.crash.definer import Definer, audit
from tests.crash.history import History
from tests.crash.link import Delivery, Link
from tests.crash.messages import ack_frame
from tests.crash.publishers import make_publishers
from tests.crash.stage import (
    FAN_QUEUES,
    FANOUT,
    PRIORITY_MAX,
    PRIORITY_QUEUE,
    QUEUES,
    CrashClient,
    Place,
    Stage,
    wait_for_threads,
)

FINISH_S = 180.0
# How the broker ends in a cycle, and how often.
KILL, TERM, TERM_KILL = "kill", "term", "term+kill"
ENDS, WEIGHTS = (KILL, TERM, TERM_KILL), (88, 7, 5)
# So often it is killed while it recovers, before anybody could connect.
EARLY_KILL_SHARE = 0.15


@dataclass
class Round:
    """What to do, and what came of it."""

    folder: Path
    seed: int
    cycles: int
    small: bool = False
    # Only clean stops, and clients that take all that they were sent.
    clean: bool = False
    # For `penstock serve`.
    arguments: Sequence[str] = ()
    # From the start of each process until it was ready.
    ready_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def histories(self) -> Path:
        return self.folder / "history"

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"


class Driver:
    """Runs a round."""

    def __init__(self, plan: Round) -> None:
        self._round = plan
        self._rng = Random(plan.seed)
        plan.histories.mkdir(parents=True)
        self._history = History(plan.histories, "driver")
        self._stage = Stage()
        self._incarnation = -1

    def run(self) -> None:
        # So many threads should not wait long for each other.
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        try:
            self._run()
        finally:
            sys.setswitchinterval(interval_s)

    def _run(self) -> None:
        publishers: list[CrashClient] = make_publishers(self._stage, self._round.histories, self._rng)
        publishers.append(Definer(self._stage, self._round.histories, Random(self._rng.getrandbits(64))))
        consumers = make_consumers(self._stage, self._round.histories, self._rng)
        self._stage.clients_vanish = not self._round.clean
        try:
            with self._start() as broker:
                declare_all(broker.port)
                # With arguments it may be a broker that promises less: what follows needs the queues.
                self._end(broker, TERM if self._round.clean or self._round.arguments else KILL)
            for client in (*publishers, *consumers):
                client.start()
            for _ in range(self._round.cycles):
                self._cycle()
            self._finish(publishers, consumers)
        finally:
            self._stage.finish(publishers=True, consumers=True)
            self._history.close()
            self._round.failures += self._stage.failures

    def _cycle(self) -> None:
        how = TERM if self._round.clean else self._rng.choices(ENDS, WEIGHTS)[0]
        if not self._round.clean and self._rng.random() < EARLY_KILL_SHARE:
            self._kill_early()
        self._stage.consumers_rest = self._rng.random() < 0.5
        self._stage.publishers_wait = self._rng.random() < 0.5
        with self._start() as broker:
            self._stage.broker_is_up(Place(self._incarnation, broker.port))
            # Often soon, when clients are just coming back; never so late that nothing else is done.
            if not broker.runs_for(self._rng.choice((0.05, 0.4, 1.0, 1.6)) * self._rng.random()):
                raise AssertionError(f"the broker ended by itself:\n{broker.text[-4000:]}")
            self._stage.consumers_rest = False
            self._end(broker, how)

    def _start(self) -> BrokerProcess:
        self._incarnation += 1
        broker = self._spawn().wait_until_ready()
        self._round.ready_s.append(broker.ready_s)
        journal_bytes = sum(path.stat().st_size for path in (self._round.data_dir / "journal").iterdir())
        self._note("info start", broker.ready_s, broker.ready_line["recovery"], journal_bytes)
        return broker

    def _kill_early(self) -> None:
        """In the middle of its start, or of its recovery."""
        with self._spawn() as broker:
            broker.runs_for(0.15 + 0.35 * self._rng.random())

    def _spawn(self) -> BrokerProcess:
        module = "tests.crash.small_store" if self._round.small else "penstock"
        return BrokerProcess(self._round.data_dir, self._round.log, self._round.arguments, module=module)

    def _end(self, broker: BrokerProcess, how: str) -> None:
        # Noted first: what clients see of it comes later.
        self._note("info end", how)
        if how != KILL:
            broker.terminate()
        if how == TERM_KILL:
            broker.runs_for(0.1 * self._rng.random())
        if how == TERM:
            code = broker.wait_for_exit()
            assert code == 0, f"exit code {code}:\n{broker.text[-4000:]}"
        broker.kill()
        self._stage.broker_is_down()

    def _note(self, kind: str, *details: object) -> None:
        self._history.add(kind, self._incarnation, *details)

    # --- the end of a round ---------------------------------------------------------------------------

    def _finish(self, publishers: list[CrashClient], consumers: list[CrashClient]) -> None:
        """Everybody goes; then one client takes what is left. What it acknowledged does not come back."""
        with self._start() as broker:
            self._stage.broker_is_up(Place(self._incarnation, broker.port))
            self._stage.finish(publishers=True)
            wait_for_threads(self._stage, publishers, FINISH_S)
            self._stage.finish(consumers=True)
            wait_for_threads(self._stage, consumers, FINISH_S)
            self._drain(broker.port, first=True)
            self._end(broker, TERM)
        with self._start() as broker:
            self._drain(broker.port, first=False)
            link = Link(broker.port)
            audit(link, self._round.histories, self._history, self._incarnation)
            link.close()
            self._end(broker, TERM)
        self._check_folder()

    def _check_folder(self) -> None:
        command = [sys.executable, "-m", "penstock", "fsck", str(self._round.data_dir)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FINISH_S)
        if found.returncode != 0:
            self._round.failures.append(f"penstock fsck ends with {found.returncode}:\n{found.stdout}{found.stderr}")

    def _drain(self, port: int, first: bool) -> None:
        history = History(self._round.histories, "drain" if first else "drain-again")
        for session, queue in enumerate(QUEUES):
            drain(port, queue, history, self._incarnation, session)
            self._note("info drained", queue)
        history.close()


def declare_all(port: int) -> None:
    link = Link(port)
    link.call(commands.Exchange.Declare(0, FANOUT, "fanout", durable=True), commands.Exchange.DeclareOk)
    for queue in QUEUES:
        arguments = {"x-max-priority": PRIORITY_MAX} if queue == PRIORITY_QUEUE else {}
        link.call(commands.Queue.Declare(0, queue, durable=True, arguments=arguments), commands.Queue.DeclareOk)
    for queue in FAN_QUEUES:
        link.call(commands.Queue.Bind(0, queue, FANOUT), commands.Queue.BindOk)
    link.close()


def drain(port: int, queue: str, history: History, incarnation: int, session: int) -> None:
    """Take and acknowledge everything in the queue; nobody else uses it."""
    link = Link(port)
    link.call(commands.Basic.Qos(0, 500), commands.Basic.QosOk)
    link.call(commands.Basic.Consume(0, queue, queue), commands.Basic.ConsumeOk)
    deadline = time.monotonic() + FINISH_S
    while time.monotonic() < deadline:
        last = 0
        for event in link.take(0.02):
            assert isinstance(event, Delivery), event
            history.add("ok delivery", incarnation, session, event.tag, queue, event.redelivered, *event[3:])
            last = event.tag
        if last:
            history.add("invoke settle", incarnation, session, last, True, "ack", "")
            link.send(ack_frame(last, True))
            continue
        # It counts what is ready; and what came before the answer is still to be taken.
        left = link.call(commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk).message_count
        if left == 0 and not link.has_events:
            break
    else:
        raise AssertionError(f"{queue} is not empty after {FINISH_S} s")
    history.add("ok barrier", incarnation, session)
    link.close()
    history.add("ok closed", incarnation, session)
