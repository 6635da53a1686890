"""A script's run on one broker: its connections, its waits, and the transcript of what the broker said."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.frame_socket import DEADLINE_S, PROTOCOL_HEADER, Silence

from .wire_client import Channel, Event, Wire

Transcript = dict[str, list[str]]
# The channel of each connection that asks queues whether they are done; it is never written down.
SPARE = 999
# The names of connections in a transcript.
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GENERATED = re.compile(r"amq\.(gen|ctag)-[\w-]+|amq\.rabbitmq\.reply-to\.[\w./+=-]+")
# What a server tells about itself; only that it tells it is compared.
ABOUT = re.compile(r"'(cluster_name|copyright|information|platform|product|version)': S:('[^']*'|\"[^\"]*\")")
# When a message died, by the server's clock, in seconds.
DIED = re.compile(r"'time': T:(\d+)")
# A time of death further than this from now is written down as it is: it is wrong.
DIED_WITHIN_S = 600
CONFIRM = re.compile(r"basic\.n?ack delivery_tag=(\d+)")


@dataclass(frozen=True)
class Script:
    """A sentence about the protocol, and the steps that show it."""

    name: str
    subject: str
    steps: Callable[[Session], None]


REGISTRY: dict[str, Script] = {}


def script(name: str) -> Callable[[Callable[[Session], None]], Callable[[Session], None]]:
    """Register the decorated steps under a sentence."""

    def register(steps: Callable[[Session], None]) -> Callable[[Session], None]:
        _register(name, steps, steps)
        return steps

    return register


def table(rows: Mapping[str, tuple[Any, ...]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated steps once for each row, under its sentence; they get the row behind the session."""

    def register(steps: Callable[..., None]) -> Callable[..., None]:
        for name, row in rows.items():
            _register(name, steps, lambda s, row=row: steps(s, *row))
        return steps

    return register


def _register(name: str, home: Callable[..., None], steps: Callable[[Session], None]) -> None:
    assert name not in REGISTRY, f"two scripts are called {name!r}"
    REGISTRY[name] = Script(name, home.__module__.rpartition(".")[2], steps)


def run(steps: Script, host: str, port: int) -> Transcript:
    """Run the script on a broker and give back what it said. Leaves nothing behind on the broker."""
    session = Session(host, port)
    try:
        steps.steps(session)
        session.finish()
    except Silence as silence:
        session.lines.setdefault("script", []).append(f"stopped: {silence}")
    finally:
        session.clean_up()
    return session.transcript()


class Session:
    """What the steps of a script are written with."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.lines: Transcript = {}
        self.wires: list[Wire] = []
        self._names: dict[str, str] = {}
        self._confirmed: dict[tuple[str, int], set[int]] = {}
        self._queues: dict[str, None] = {}
        self._exchanges: dict[str, None] = {}
        self._control: Wire | None = None
        self._said = 0

    # --- connections --------------------------------------------------------------------------------------

    def dial(self) -> Wire:
        """A TCP connection on which nothing has been said yet."""
        letter = LETTERS[len(self.wires)]
        wire = Wire(self.host, self.port, lambda event: self._record(letter, event), self._sent)
        self.wires.append(wire)
        return wire

    def connect(self, **options: Any) -> Wire:
        """An open connection; its handshake is not written down."""
        letter = LETTERS[len(self.wires)]
        wire = self.dial()
        wire.handshake(**options)
        if wire.open:
            self.lines.pop(f"{letter}/0", None)
        return wire

    def started(self) -> Wire:
        """A connection that has got connection.start, which is not written down."""
        letter = LETTERS[len(self.wires)]
        wire = self.dial()
        wire.send_bytes(PROTOCOL_HEADER)
        if wire.expect(0, "connection.start") is not None:
            self.lines.pop(f"{letter}/0")
        return wire

    def channel(self, number: int = 1, **options: Any) -> Channel:
        """A channel on a connection of its own."""
        return self.connect(**options).channel(number)

    def _sent(self, name: str, arguments: dict[str, Any]) -> None:
        """Remember what is declared, to wait for it and to take it away again."""
        for kind, known in (("queue", self._queues), ("exchange", self._exchanges)):
            declared = arguments.get(kind) if name == f"{kind}.declare" else None
            if isinstance(declared, str) and declared and not declared.startswith("amq."):
                known[declared] = None

    # --- the transcript -----------------------------------------------------------------------------------

    def _record(self, letter: str, event: Event) -> None:
        if event.name == "queue.declare-ok" and event.arguments["queue"].startswith("amq.gen"):
            self._queues[event.arguments["queue"]] = None
        if event.channel == SPARE:
            return
        self._said += 1
        lines = self.lines.setdefault(f"{letter}/{event.channel}", [])
        if event.name in ("basic.ack", "basic.nack"):
            self._record_confirms(letter, event, lines)
        else:
            text = DIED.sub(_died, GENERATED.sub(self._rename, str(event)))
            lines.append(ABOUT.sub(r"'\1': S:...", text))

    def _record_confirms(self, letter: str, event: Event, lines: list[str]) -> None:
        """One line per message: how confirms are batched is a matter of timing."""
        tag = event.arguments["delivery_tag"]
        confirmed = self._confirmed.setdefault((letter, event.channel), set())
        first = 1 if event.arguments["multiple"] else tag
        for each in range(first, tag + 1):
            if each not in confirmed:
                confirmed.add(each)
                lines.append(f"{event.name} delivery_tag={each}")

    def _rename(self, match: re.Match[str]) -> str:
        """Names that the server makes up are numbered in the order of their appearance."""
        kind = match[1] or "reply-to"
        known = self._names.get(match[0])
        if known is None:
            count = sum(1 for name in self._names.values() if name.startswith(f"<{kind}"))
            known = self._names[match[0]] = f"<{kind} {count + 1}>"
        return known

    def note(self, text: str) -> None:
        """Write a remark into the transcript of every open channel."""
        for letter, wire in zip(LETTERS, self.wires, strict=False):
            for number, channel in wire.channels.items():
                if channel.open and wire.open and number != SPARE:
                    self.lines.setdefault(f"{letter}/{number}", []).append(f"-- {text}")

    def transcript(self) -> Transcript:
        return {key: _sort_confirms(self.lines[key]) for key in sorted(self.lines)}

    # --- waiting ------------------------------------------------------------------------------------------

    def settle(self, note: str = "") -> None:
        """Wait until all earlier steps have had their effect and all deliveries due have arrived.

        In one round every channel answers, so everything sent has reached its queue; then every queue answers, so
        it has handed over what it could; then every channel answers again, so that has reached us. RabbitMQ's
        queues answer before older work of lower priority, so there are at least two rounds, and rounds follow
        until one of them brings nothing new.
        """
        rounds = 0
        said = -1
        while rounds < 2 or said != self._said:
            rounds += 1
            said = self._said
            self._barriers()
            for queue in list(self._queues):
                self.ask(queue)
            self._barriers()
        if note:
            self.note(note)

    def count(self, channel: Channel, queue: str) -> None:
        """Write down how many messages and consumers a queue has once everything has settled."""
        self.settle()
        channel.call("queue.declare", queue=queue, passive=True)

    def _barriers(self) -> None:
        for wire in self.wires:
            for number, channel in list(wire.channels.items()):
                if number != SPARE:
                    channel.barrier()

    def ask(self, queue: str) -> dict[str, Any] | None:
        """The counts of a queue; None when there is no such queue."""
        for wire in [*self.wires, self.control()]:
            if not wire.open:
                continue
            spare = wire.channels.get(SPARE)
            if spare is None or not spare.open:
                spare = wire.channel(SPARE)
            spare.send("queue.declare", queue=queue, passive=True)
            answer = spare.wire.expect(SPARE, "queue.declare-ok", "channel.close")
            if answer is None:
                continue
            if answer.name == "queue.declare-ok":
                return answer.arguments
            if answer.arguments["reply_code"] == 404:
                return None
        return None

    def until(self, queue: str, condition: Callable[[dict[str, Any] | None], bool]) -> None:
        """Wait until the counts of a queue (None: it is gone) are as they should be."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self.ask(queue)):
            if time.monotonic() > deadline:
                raise Silence(f"queue {queue!r} is not as expected: {self.ask(queue)}")
            time.sleep(0.005)

    def until_gone(self, queue: str) -> None:
        self.until(queue, lambda counts: counts is None)

    def until_messages(self, queue: str, count: int) -> None:
        self.until(queue, lambda counts: counts is not None and counts["message_count"] == count)

    def until_consumers(self, queue: str, count: int) -> None:
        self.until(queue, lambda counts: counts is not None and counts["consumer_count"] == count)

    def routable(self, queue: str) -> bool:
        """Whether a queue is there, without asking for it, which would count as use of the queue.

        It gets an empty message instead.
        """
        control = self.control()
        spare = control.channels.get(SPARE)
        if spare is None or not spare.open:
            spare = control.channel(SPARE)
        spare.publish(b"", queue, mandatory=True)
        spare.send("exchange.declare", exchange="amq.direct", exchange_type="direct", passive=True)
        answer = spare.expect("basic.return", "exchange.declare-ok")
        if answer is None or answer.name == "exchange.declare-ok":
            return True
        spare.expect("exchange.declare-ok")
        return False

    def until_unroutable(self, queue: str) -> None:
        """Wait until a queue is gone, without using it."""
        deadline = time.monotonic() + DEADLINE_S
        while self.routable(queue):
            if time.monotonic() > deadline:
                raise Silence(f"queue {queue!r} is not gone")
            time.sleep(0.005)

    # --- the end ------------------------------------------------------------------------------------------

    def control(self) -> Wire:
        """A connection beside the script's own; nothing on it is written down."""
        if self._control is None or not self._control.open:
            self._control = Wire(self.host, self.port, lambda event: None, lambda name, arguments: None)
            self._control.handshake()
        return self._control

    def finish(self) -> None:
        """Close what is still open, writing down whatever the broker says before its close-ok."""
        for letter, wire in zip(LETTERS, self.wires, strict=False):
            # What one connection gives back at its end may be delivered to another one, before that is closed.
            self.settle()
            if wire.open:
                wire.send(0, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
                wire.expect(0, "connection.close-ok")
                lines = self.lines[f"{letter}/0"]
                lines.remove("connection.close-ok")
                if not lines:
                    del self.lines[f"{letter}/0"]

    def clean_up(self) -> None:
        for wire in self.wires:
            wire.hang_up()
        deadline = time.monotonic() + DEADLINE_S
        kinds = (("queue", self._queues), ("exchange", self._exchanges))
        waiting = [(kind, name) for kind, known in kinds for name in known]
        while waiting:
            kind, name = waiting.pop(0)
            channel = self.control().channel(1)
            # An exclusive queue is locked until the broker has noticed that its connection is gone.
            if channel.call(f"{kind}.delete", **{kind: name}) is None:
                assert time.monotonic() < deadline, f"{kind} {name!r} cannot be deleted"
                waiting.append((kind, name))
            else:
                channel.close()
        if self._control is not None:
            self._control.send(0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0)
            self._control.expect(0, "connection.close-ok")
            self._control.hang_up()


def _died(match: re.Match[str]) -> str:
    """The time in x-death is now, more or less."""
    return "'time': T:now" if abs(time.time() - int(match[1])) < DIED_WITHIN_S else match[0]


def _sort_confirms(lines: list[str]) -> list[str]:
    """Confirms that follow each other directly are sorted by tag."""
    result: list[str] = []
    run: list[tuple[int, str]] = []
    for line in [*lines, ""]:
        match = CONFIRM.fullmatch(line)
        if match:
            run.append((int(match[1]), line))
            continue
        result += [text for _, text in sorted(run)]
        run = []
        result.append(line)
    return result[:-1]
