"""The same bytes, cut differently, mean the same: output and queue contents do not depend on how TCP delivers them.

A stage is what a client sends without waiting for an answer. The reference takes each stage whole, which is where the
reader's fast paths (runs of publishes, whole contents, runs of acks) do most; the others take it frame by frame, byte
by byte and cut at random, where they do little or nothing.
"""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config
from penstock.wire import frames, methods
from penstock.wire.properties import Properties
from tests.builds import interpreted_only

from . import budget
from .client_frames import Frame, method, publish
from .cutting import Stage, check_cuts_agree, check_turns_agree
from .sessions import SessionWriter

# Turns end when the test says, not by time; how long they may take is a constant, which is compiled in.
pytestmark = interpreted_only("the test changes how long a turn may take")

# Small, so that a message that is too large is still quick to send byte by byte.
MESSAGE_BYTES_MAX = 600
# By the mode of the channel. Only TX and FETCHING fetch, as they have no consumers: their delivery tags are known.
PLAIN, CONFIRM, TX, FETCHING = 1, 2, 3, 4
CHANNELS = (PLAIN, CONFIRM, TX, FETCHING)
# Consumes, and does nothing else: whether deliveries come before or after an error of the channel is a matter of time.
CONSUMING = 5
CONSUMED_MESSAGES = 30
OPENING = [
    *[method(number, methods.ChannelOpen()) for number in (*CHANNELS, CONSUMING)],
    method(CONFIRM, methods.ConfirmSelect()),
    method(TX, methods.TxSelect()),
    *[method(PLAIN, methods.QueueDeclare(name, exclusive=True)) for name in ("q0", "q1", "taken", "acked")],
    method(CONSUMING, methods.BasicConsume("taken", "t", False, True)),
    method(PLAIN, methods.QueueBind("q0", "amq.direct", "a.b")),
    method(PLAIN, methods.QueueBind("q1", "amq.topic", "a.#")),
    method(PLAIN, methods.QueueBind("q0", "amq.headers", "", False, {"k": ("S", b"v")})),
    *[frame for _ in range(CONSUMED_MESSAGES) for frame in publish(PLAIN, "", "acked", b"x")],
    method(CONFIRM, methods.BasicConsume("acked", "a", False, False)),
]

# Exchanges with keys for which there is a binding, or can be.
PATHS = [("", "q0"), ("", "q1"), ("amq.direct", "a.b"), ("amq.topic", "a.b"), ("amq.fanout", "")]

channels = st.sampled_from(CHANNELS)
keys = st.sampled_from(["q0", "q0", "q1", "taken", "nowhere", "a.b"])
exchanges = st.sampled_from(["", "", "amq.direct", "amq.topic", "amq.headers"])
properties = st.sampled_from(
    [
        None,
        None,
        Properties(content_type="text/plain", delivery_mode=2),
        Properties(headers={"k": ("S", b"v")}),
        Properties(headers={"CC": ("A", [("S", b"q1")])}),
        Properties(expiration="3600000"),
        Properties(message_id="1", timestamp=1),
        Properties(message_id="2", priority=5),
        Properties(user_id="someone else"),
    ]
)


@st.composite
def bodies(draw: st.DrawFn, channel: int, key: str) -> bytes:
    """Now and then what a reader that looks for frames in the wrong place would fall for."""
    size = draw(st.sampled_from([0, 1, 2, 9, 9, 9, 9, 9, 40, 40, 40, 40, 200, 200, MESSAGE_BYTES_MAX + 1]))
    trap = b"".join([frame.encode() for frame in publish(channel, "", key, bytes(9))])
    filler = draw(st.sampled_from([b"x", b"\xce", trap, trap[:-10], b"\xce" + trap]))
    return (filler * (size // len(filler) + 1))[:size]


@st.composite
def publish_runs(draw: st.DrawFn) -> Stage:
    """Publishes that are equal but for their bodies; of one size, or of several."""
    channel, key = draw(channels), draw(keys)
    exchange, props, mandatory = draw(exchanges), draw(properties), draw(st.booleans())
    count = draw(st.integers(1, 8))
    if draw(st.booleans()):
        payloads = [draw(bodies(channel, key))] * count
    else:
        payloads = [draw(bodies(channel, key)) for _ in range(count)]
    part_bytes = draw(st.sampled_from([0, 0, 0, 7]))
    return [
        frame
        for payload in payloads
        for frame in publish(channel, exchange, key, payload, props, mandatory, part_bytes)
    ]


@st.composite
def changed_meaning(draw: st.DrawFn) -> Stage:
    """The same publishes before and after a change of what they mean."""
    channel, (exchange, key), payload = draw(channels), draw(st.sampled_from(PATHS)), draw(bodies(PLAIN, "q0"))
    run = publish(channel, exchange, key, payload, mandatory=True) * draw(st.integers(1, 4))
    return [*run, *draw(topology()), *run]


@st.composite
def interleaved(draw: st.DrawFn) -> Stage:
    """Two messages on two channels, their frames mixed."""
    first, second = draw(st.permutations([PLAIN, CONFIRM, TX]))[:2]
    left = publish(first, "", "q0", draw(bodies(first, "q0")), mandatory=True, part_bytes=5)
    right = publish(second, "", "q1", draw(bodies(second, "q1")), part_bytes=5)
    mixed = []
    while left and right:
        mixed.append((left if draw(st.booleans()) else right).pop(0))
    return mixed + left + right


@st.composite
def topology(draw: st.DrawFn) -> Stage:
    queue = draw(st.sampled_from(["q0", "q1"]))
    headers = {"k": ("S", b"v")}
    said = draw(
        st.sampled_from(
            [
                methods.QueueBind(queue, "amq.direct", "a.b", True),
                methods.QueueUnbind(queue, "amq.direct", "a.b"),
                methods.QueueBind(queue, "amq.topic", "a.#"),
                methods.QueueUnbind(queue, "amq.topic", "a.#"),
                methods.QueueBind(queue, "amq.fanout", ""),
                methods.QueueBind(queue, "amq.headers", "", False, headers),
                methods.QueueDeclare(queue, exclusive=True),
                methods.QueueDeclare("", exclusive=True),
                methods.QueueDelete("q1"),
                methods.QueuePurge(queue),
                methods.ExchangeDeclare("x", "fanout", auto_delete=True),
                methods.ExchangeDelete("x"),
            ]
        )
    )
    return [method(draw(channels), said)]


@st.composite
def settling(draw: st.DrawFn) -> Stage:
    """Runs of acks, in order and out of it, of known and unknown deliveries."""
    first = draw(st.integers(0, CONSUMED_MESSAGES + 2))
    tags = draw(
        st.one_of(
            st.just(list(range(first, first + draw(st.integers(1, 6))))),
            st.just([first, first - 2, first - 1, first, first + 1] if first > 2 else [first]),
            st.lists(st.integers(1, CONSUMED_MESSAGES), max_size=5),
        )
    )
    multiple = draw(st.integers(0, 6))
    return [method(CONFIRM, methods.BasicAck(tag, at + 1 == multiple)) for at, tag in enumerate(tags)]


@st.composite
def fetching(draw: st.DrawFn) -> Stage:
    channel = draw(st.sampled_from([TX, FETCHING]))
    tag = draw(st.integers(1, 3))
    said = draw(
        st.sampled_from(
            [
                methods.BasicGet("q0", False),
                methods.BasicGet("q1", True),
                methods.BasicAck(tag, draw(st.booleans())),
                methods.BasicReject(tag, True),
                methods.BasicRecover(True),
            ]
        )
    )
    return [method(channel, said)]


@st.composite
def others(draw: st.DrawFn) -> Stage:
    """Commits, errors of a channel and their end, heartbeats."""
    number = draw(channels)
    reopening = [method(number, methods.ChannelCloseOk()), method(number, methods.ChannelOpen())]
    return draw(
        st.sampled_from(
            [
                [method(TX, methods.TxCommit())],
                [method(TX, methods.TxRollback())],
                [Frame(frames.HEARTBEAT, 0, b"")],
                publish(number, "no exchange", "q0", b"lost"),
                publish(number, "", "q0", b"x" * (MESSAGE_BYTES_MAX + 1)),
                publish(number, "", "q0", b"lost", Properties(expiration="soon")),
                [*publish(number, "no exchange", "q0", b"lost"), *reopening, *publish(number, "", "q0", b"found")],
                [method(number, methods.ChannelClose(200, "", 0, 0)), method(number, methods.ChannelOpen())],
                [method(number, methods.BasicPublish("", "q0"))],
            ]
        )
    )


@st.composite
def stages_of(draw: st.DrawFn) -> Stage:
    steps = draw(
        st.lists(
            st.one_of(
                publish_runs(),
                publish_runs(),
                changed_meaning(),
                interleaved(),
                topology(),
                settling(),
                fetching(),
                others(),
            ),
            max_size=8,
        )
    )
    return [frame for step in steps for frame in step]


# What closes the connection.
FATAL: dict[str, Stage] = {
    "immediate": [method(1, methods.BasicPublish("", "q0", False, True))],
    "consumer tag again": [method(CONSUMING, methods.BasicConsume("q0", "t"))],
    "publish cut short": [Frame(frames.METHOD, 1, b"\x00\x3c\x00\x28\x00\x00\x05x")],
    "publish without arguments": [Frame(frames.METHOD, 1, b"\x00\x3c\x00\x28")],
    "publish in a content": publish(1, "", "q0", b"x")[:2] + publish(1, "", "q0", b"x"),
    "bad properties": [
        *publish(1, "", "q0", b"")[:1],
        Frame(frames.HEADER, 1, b"\x00\x3c\x00\x00" + bytes(8) + b"\xff\xff"),
    ],
    "weight": [*publish(1, "", "q0", b"")[:1], Frame(frames.HEADER, 1, b"\x00\x3c\x00\x01" + bytes(10))],
    "other class": [*publish(1, "", "q0", b"")[:1], Frame(frames.HEADER, 1, b"\x00\x32\x00\x00" + bytes(10))],
    "body too long": [*publish(1, "", "q0", b"x")[:2], Frame(frames.BODY, 1, b"xx")],
    "one body too many": [*publish(1, "", "q0", b"x"), Frame(frames.BODY, 1, b"x")],
    "header larger than a frame": publish(1, "", "q0", b"x", Properties(headers={"big": ("S", bytes(9000))})),
    "body larger than a frame": publish(1, "", "q0", bytes(9000)),
    "ack with too much": [Frame(frames.METHOD, 1, b"\x00\x3c\x00\x50" + bytes(10))],
    "heartbeat with a payload": [Frame(frames.HEARTBEAT, 0, b"x")],
    "unknown method": [Frame(frames.METHOD, 1, b"\x00\x3c\x00\xff")],
}


SMALL_MESSAGES = Config(message_bytes_max=MESSAGE_BYTES_MAX)


@budget.fuzz_settings(120)
@given(stages=st.lists(stages_of(), min_size=1, max_size=3), seed=st.integers(0, 2**32))
def check_streams(stages: list[Stage], seed: int) -> None:
    reference = check_cuts_agree(SMALL_MESSAGES, OPENING, stages, seed)
    check_turns_agree(SMALL_MESSAGES, reference, OPENING, stages, seed)


def test_a_stream_means_the_same_however_it_is_cut() -> None:
    for _ in budget.rounds(budget.CHUNKING_SHARE):
        check_streams()


@budget.fuzz_settings(60)
@given(stage=stages_of(), last=st.sampled_from(sorted(FATAL)), seed=st.integers(0, 2**32))
def check_fatal_streams(stage: Stage, last: str, seed: int) -> None:
    # What follows must not matter any more.
    after = publish(1, "", "q0", b"too late")
    check_cuts_agree(SMALL_MESSAGES, OPENING, [[*stage, *FATAL[last], *after]], seed)


def test_an_error_of_the_connection_is_the_same_however_the_stream_is_cut() -> None:
    for _ in budget.rounds(budget.CHUNKING_SHARE):
        check_fatal_streams()


def test_a_random_session_means_the_same_however_it_is_cut() -> None:
    for seed in budget.seeds(60, budget.CHUNKING_SHARE):
        sent = SessionWriter(Random(f"chunking {seed}"), timeless=True).write(25)
        try:
            check_cuts_agree(Config(), [], [sent], seed)
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {fault}") from fault
