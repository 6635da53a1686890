"""Ways to cut a client's bytes, and what each of them led to."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from penstock.config import Config
from penstock.wire import frames, methods

from .client_frames import Frame, encode_all, method
from .server_frames import Said, read_method, split
from .socketless import Client, SocketlessServer

# The smallest that may be negotiated: a frame that is too large is then still quick to send byte by byte.
FRAME_BYTES_MAX = 8192
# Names that the server makes up.
MADE_UP = re.compile(rb"amq\.(gen|ctag)-[\w-]{22}|amq\.rabbitmq\.reply-to\.[\w-]{32}")


def without_made_up_names(data: bytes) -> bytes:
    """With the same text, equally long, in place of each: frames stay frames."""
    return MADE_UP.sub(lambda found: found[0][:8] + b"x" * (len(found[0]) - 8), data)


Stage = list[Frame]
Cutter = Callable[[Stage], list[bytes]]


def whole(stage: Stage) -> list[bytes]:
    return [encode_all(stage)]


def frame_by_frame(stage: Stage) -> list[bytes]:
    return [frame.encode() for frame in stage]


def byte_by_byte(stage: Stage) -> list[bytes]:
    data = encode_all(stage)
    return [data[at : at + 1] for at in range(len(data))]


def at_random(seed: int) -> Cutter:
    random = Random(seed)

    def cut(stage: Stage) -> list[bytes]:
        data = encode_all(stage)
        count = min(random.choice([1, 3, 10, 40]), max(len(data) - 1, 0))
        cuts = sorted(random.sample(range(1, len(data)), count)) if count else []
        return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    return cut


def contents(client: Client, bench: SocketlessServer) -> dict[str, list[bytes]]:
    """What is in each queue, as basic.get hands it out; the queues are empty afterwards."""
    found: dict[str, list[bytes]] = {}
    queues = bench.server.broker.vhosts["/"].queues
    client.send(encode_all([method(99, methods.ChannelOpen())]))
    for name in sorted(queues):
        count = len(queues[name])
        client.send(encode_all([method(99, methods.BasicGet(name, True))] * count))
        bench.settle()
        got, _ = split(without_made_up_names(client.take()))
        found[without_made_up_names(name.encode()).decode()] = [frame.payload for frame in got if frame.channel == 99]
    return found


class Outcome:
    """What one way of cutting led to."""

    def __init__(self, config: Config, opening: Stage, stages: list[Stage], cut: Cutter, turns: bool) -> None:
        with SocketlessServer(config) as bench:
            self._run(bench, opening, stages, cut, turns)

    def _run(self, bench: SocketlessServer, opening: Stage, stages: list[Stage], cut: Cutter, turns: bool) -> None:
        client = bench.login(FRAME_BYTES_MAX)
        client.send(encode_all(opening))
        bench.settle()
        self.output = b""
        for stage in stages:
            client.send_chunks(cut(stage), turns)
            bench.settle()
            self.output += client.take()
        bench.check_clean()
        # Whether the server has closed the connection.
        self.closed = any(close.channel == 0 for close in Said(self.output).closes())
        self.queues = {} if self.closed else contents(client, bench)
        client.hang_up()

    @property
    def canonical(self) -> bytes:
        return without_made_up_names(self.output)

    def by_channel(self) -> dict[tuple[int, str], list[bytes]]:
        """Deliveries, confirms and the rest of each channel, each in its own order.

        When the server got its turns is visible in how these three are mixed and how confirms are batched, and in
        nothing else.
        """
        found: dict[tuple[int, str], list[bytes]] = {}
        kind = ""
        confirmed: dict[int, int] = {}
        for frame in Said(self.canonical).frames:
            if frame.kind == frames.METHOD:
                said = read_method(frame.payload)
                kind = "delivery" if isinstance(said, methods.BasicDeliver) else "answer"
                if isinstance(said, methods.BasicAck):
                    confirmed[frame.channel] = max(confirmed.get(frame.channel, 0), said.delivery_tag)
                    continue
            found.setdefault((frame.channel, kind), []).append(frame.payload)
        for number, tag in confirmed.items():
            found[number, "confirmed"] = [b"up to %d" % tag]
        return found


def check_cuts_agree(config: Config, opening: Stage, stages: list[Stage], seed: int) -> Outcome:
    """However the stages are cut: as long as the server gets no turn in between, it must say the same octets."""
    reference = Outcome(config, opening, stages, whole, False)
    for cut in (frame_by_frame, byte_by_byte, at_random(seed), at_random(seed + 1)):
        other = Outcome(config, opening, stages, cut, False)
        assert readable(other.canonical) == readable(reference.canonical)
        assert other.canonical == reference.canonical
        assert other.queues == reference.queues
    return reference


def check_turns_agree(config: Config, reference: Outcome, opening: Stage, stages: list[Stage], seed: int) -> None:
    """With turns in between, what it says about one subject is still the same.

    Not when it closes the connection: what it has said by then, and what it has left to say, is a matter of time.
    """
    if reference.closed:
        return
    for cut in (frame_by_frame, at_random(seed)):
        other = Outcome(config, opening, stages, cut, True)
        assert other.by_channel() == reference.by_channel()
        assert other.queues == reference.queues


def readable(output: bytes) -> list[str]:
    """For the message of a failed assertion."""
    return [f"{frame.channel} {name_of(frame)} {frame.payload[:60]!r}" for frame in Said(output).frames]


def name_of(frame: Frame) -> str:
    if frame.kind != frames.METHOD:
        return "header" if frame.kind == frames.HEADER else "body"
    return read_method(frame.payload).NAME
