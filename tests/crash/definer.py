"""Declares and deletes durable queues, exchanges and bindings, and looks later whether they are there.

Things are numbered. With number n come the exchange `x-n`, the queue `q-n` and a binding between them; most of them are
deleted some time later. `what` in the history: exchange, queue, binding, deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from pamqp import commands

from tests.crash.history import History, read_history
from tests.crash.link import ANSWER_S, ChannelGone, Confirm, Link
from tests.crash.messages import body_of, publish_frames
from tests.crash.stage import CrashClient, Stage

NAME = "definer"
ALIVE_MAX = 30


class Definer(CrashClient):
    """Changes the definitions all the time."""

    def __init__(self, stage: Stage, folder: Path, rng: Random) -> None:
        super().__init__(NAME, stage, folder, rng)
        self._number = 0
        self._alive: list[int] = []

    def is_finished(self) -> bool:
        return self.stage.publishers_finish

    def talk(self, link: Link) -> None:
        while not self.stage.publishers_finish:
            self.check_place()
            self._define(link)
            if len(self._alive) > ALIVE_MAX:
                # Nothing is known of it any more once this was sent.
                number = self._alive.pop(self.rng.randrange(len(self._alive)))
                self._call(link, "deleted", number, commands.Queue.Delete(0, f"q-{number}"), commands.Queue.DeleteOk)
            self.stage.wait(0.02)
        self.finish_session(link)

    def _define(self, link: Link) -> None:
        self._number += 1
        number = self._number
        queue, exchange = f"q-{number}", f"x-{number}"
        declare = commands.Exchange.Declare(0, exchange, "fanout", durable=True)
        self._call(link, "exchange", number, declare, commands.Exchange.DeclareOk)
        self._call(link, "queue", number, commands.Queue.Declare(0, queue, durable=True), commands.Queue.DeclareOk)
        self._call(link, "binding", number, commands.Queue.Bind(0, queue, exchange), commands.Queue.BindOk)
        self._alive.append(number)

    def _call(self, link: Link, what: str, number: int, method: object, reply: type) -> None:
        self.add("invoke define", what, number)
        link.call(method, reply)
        self.add("ok define", what, number)

    def take_event(self, event: object) -> None:
        self.add("info surprise", repr(event))


def defined(folder: Path) -> Iterator[tuple[str, int, bool]]:
    """(what, number, whether it must be there) for all that is certain."""
    states: dict[tuple[str, int], bool | None] = {}
    for kind, _, _, _, *details in read_history(folder / f"{NAME}.jsonl"):
        if kind not in ("invoke define", "ok define"):
            continue
        what, number = details
        is_certain = kind == "ok define"
        if what == "deleted":
            for gone in ("queue", "binding"):
                states[gone, number] = False if is_certain else None
        else:
            states[what, number] = True if is_certain else None
    for (what, number), is_there in states.items():
        if is_there is not None:
            yield what, number, is_there


def audit(link: Link, folder: Path, history: History, incarnation: int) -> None:
    """Ask the broker for everything that is certain, and note what it says."""
    link.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    for what, number, is_there in list(defined(folder)):
        why = _look(link, what, number, is_there)
        history.add("fail audit" if why else "ok audit", incarnation, what, number, why)


def _look(link: Link, what: str, number: int, is_there: bool) -> str:
    """What is wrong with it; empty when nothing is."""
    queue, exchange = f"q-{number}", f"x-{number}"
    try:
        if what == "exchange":
            for passive in (True, False):
                declare = commands.Exchange.Declare(0, exchange, "fanout", durable=True, passive=passive)
                link.call(declare, commands.Exchange.DeclareOk)
        elif what == "queue":
            for passive in (True, False):
                declare = commands.Queue.Declare(0, queue, durable=True, passive=passive)
                link.call(declare, commands.Queue.DeclareOk)
        elif is_there:
            return _look_through(link, queue, exchange)
        else:
            return ""
    except ChannelGone as gone:
        link.open_channel()
        link.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        return str(gone) if is_there else ""
    return "" if is_there else "it is there although its deletion was answered"


def _look_through(link: Link, queue: str, exchange: str) -> str:
    """Whether a message finds its way."""
    link.send(publish_frames(exchange, "", "audit", 0, 1, body_of("audit", 10)))
    events: list[object] = []
    while not any(isinstance(event, Confirm) for event in events):
        events = link.take(ANSWER_S)
        for event in events:
            if isinstance(event, ChannelGone):
                raise event
        assert events, f"no confirm within {ANSWER_S} s"
    count = link.call(commands.Queue.Purge(0, queue), commands.Queue.PurgeOk).message_count
    return "" if count == 1 else f"{count} messages came through it"
