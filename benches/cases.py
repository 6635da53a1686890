"""What is measured. Bodies of 100 bytes and transient messages unless a case says otherwise."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOADS: Final = Path(__file__).parent / "loads"


class Kind(enum.Enum):
    THROUGHPUT = "throughput"
    LATENCY = "latency"
    CONFIRM = "confirm"
    DURABLE = "durable"
    ROUND_TRIP = "round trip"
    BULK = "bulk"
    CHURN = "churn"
    MEMORY = "memory"
    SPAWN = "spawn"
    BACKLOG = "backlog"
    RESTART = "restart"
    EXPIRY = "expiry"
    DEAD_LETTERS = "dead letters"
    ORDERED = "ordered"
    DELAYED = "delayed"


# Cases of a feature of queues, with their own number of messages.
FEATURE_KINDS: Final = (Kind.EXPIRY, Kind.DEAD_LETTERS, Kind.ORDERED, Kind.DELAYED)
BACKLOG_KINDS: Final = (Kind.BACKLOG, Kind.RESTART, *FEATURE_KINDS)
# Their brokers are not shared with other cases: each repeat has a new one.
FRESH_KINDS: Final = (Kind.SPAWN, *BACKLOG_KINDS)
DISK_KINDS: Final = (Kind.DURABLE, Kind.ROUND_TRIP, Kind.BULK, *BACKLOG_KINDS)


@dataclass(frozen=True)
class Case:
    name: str
    kind: Kind
    title: str
    load: str = ""
    """Arguments for amqpload; @NAME is a file in `loads`."""
    seconds_min: float = 0.0
    large: bool = False
    """Takes minutes: measured with --large, or when it is named."""
    alone: bool = False
    """For penstock only."""
    share: float = 1.0
    """Of the messages that were asked for."""
    wait_us: float = 0.0
    """How long a message lives or is held: so much for each message of the case (`{wait_ms}` in the load)."""
    keys: int = 0
    """A last-value queue: how many keys there are. Otherwise 0."""

    @property
    def arguments(self) -> list[str]:
        parts = [str(LOADS / part.removeprefix("@")) if part.startswith("@") else part for part in self.load.split()]
        return ["--prefix", self.prefix, *parts]

    @property
    def prefix(self) -> str:
        return f"bench-{self.name}"


ACK_100: Final = "--ack-every 100 --prefetch 1000"
ACK_1: Final = "--ack-every 1 --prefetch 1000"
TEN: Final = "--queues 10 --producers 10 --consumers 10"
# Real publishers do not send the same frames again and again: bodies of 20 to 180 bytes, a message-id in each.
VARIED: Final = "--size-spread 80 --unique-ids"
WINDOW: Final = 1000
CONFIRM: Final = f"--confirm {WINDOW}"
DURABLE: Final = "--durable --persistent"
# What the persistent cases have in common: publish, confirm, deliver, ack, each message followed by its number.
PERSISTENT: Final = f"{DURABLE} {CONFIRM} {ACK_100} --verify"

BULK_BODY_BYTES: Final = 16 * 1024
# Brokers of the memory cases are started with this limit, so that a test of seconds reaches it.
MEMORY_LIMIT_BYTES: Final = 256 * 1024 * 1024
# The limit counts messages; the interpreter itself and the allocator's slack come on top.
MEMORY_SLACK: Final = 1.5
# Large enough that even a broker on a busy machine takes more than the limit in the time given.
MEMORY_BODY_BYTES: Final = 16 * 1024
# A tenth of what RabbitMQ takes on two cores with auto-ack and with acks.
LATENCY_RATE_AUTO_ACK: Final = 12_000
LATENCY_RATE_ACK: Final = 10_000
# Well under what any broker delivers; the publisher beside it is flat out.
SLOW_CONSUMER_RATE: Final = 2_000
BACKLOG_MESSAGES: Final = 1_000_000
FANOUT_QUEUES: Final = 10
# Messages of the features' cases; with --large as many as a backlog has.
FEATURE_MESSAGES: Final = 100_000
PRIORITIES: Final = 10
GROUPS: Final = 1_000
LAST_VALUES: Final = 10_000

# As Celery sends its tasks: 19 headers, three ids, a body of JSON (tests/interop/test_bench_loads.py).
CELERY: Final = "--properties @celery-transient --size 190 --size-spread 30 --ack-every 50 --prefetch 1000"
HEADERS_3: Final = f"--properties @headers-3 --size 180 --size-spread 40 {ACK_100}"
# Clients that send and get little: what most connections of a broker are like.
QUIET: Final = "--producers {0} --consumers {0} --queues {0} --auto-ack --rate 3000"
CELERY_PERSISTENT: Final = f"--durable {CELERY.replace('transient', 'persistent')} --verify"

REAL_CASES: Final = (
    Case("celery", Kind.THROUGHPUT, "Celery's tasks, ack every 50", CELERY),
    Case("headers-3", Kind.THROUGHPUT, "three headers and a message-id, ack every 100", HEADERS_3),
    Case("rpc-1", Kind.THROUGHPUT, "request and reply by direct reply-to, one client", "--rpc 1"),
    Case("rpc-16", Kind.THROUGHPUT, "request and reply by direct reply-to, 16 clients", "--rpc 16"),
    Case("many-connections", Kind.LATENCY, "1,000 connections, 3,000/s", QUIET.format(500)),
    Case("many-connections-2000", Kind.LATENCY, "2,000 connections, 3,000/s", QUIET.format(1000)),
    Case("churn", Kind.CHURN, "a connection with all that it makes, again and again", "--churn"),
    Case("celery-persistent", Kind.DURABLE, "Celery's tasks, without confirms", CELERY_PERSISTENT),
    Case("celery-confirm", Kind.DURABLE, "Celery's tasks", f"{CELERY_PERSISTENT} {CONFIRM}"),
)
TRANSIENT_CASES: Final = (
    Case("auto-ack", Kind.THROUGHPUT, "auto-ack", "--auto-ack"),
    Case("ack-100", Kind.THROUGHPUT, "ack every 100", ACK_100),
    Case("ack-1", Kind.THROUGHPUT, "ack one by one", ACK_1),
    Case("ten-queues", Kind.THROUGHPUT, "10 queues, 10 producers, 10 consumers", f"{TEN} {ACK_100}"),
    Case("auto-ack-varied", Kind.THROUGHPUT, "auto-ack, varied messages", f"--auto-ack {VARIED}"),
    Case("ack-100-varied", Kind.THROUGHPUT, "ack every 100, varied messages", f"{ACK_100} {VARIED}"),
    Case("ack-1-varied", Kind.THROUGHPUT, "ack one by one, varied messages", f"{ACK_1} {VARIED}"),
    Case("auto-ack-sizes", Kind.THROUGHPUT, "auto-ack, varied sizes only", "--auto-ack --size-spread 80"),
    Case("auto-ack-ids", Kind.THROUGHPUT, "auto-ack, message-ids only", "--auto-ack --unique-ids"),
    Case("topic", Kind.THROUGHPUT, "topic exchange, 2,000 routing keys", f"--topic 2000 {ACK_100}"),
    Case("confirm", Kind.CONFIRM, "confirms, window 1000", f"{CONFIRM} {ACK_100}"),
    # What `persistent-window-1` could reach with a disk that takes no time.
    Case("window-1", Kind.CONFIRM, "confirms, window 1", "--confirm 1 --ack-every 1 --prefetch 1000"),
    Case(
        "latency-auto-ack",
        Kind.LATENCY,
        f"{LATENCY_RATE_AUTO_ACK:,}/s, auto-ack",
        f"--rate {LATENCY_RATE_AUTO_ACK} --auto-ack",
    ),
    Case(
        "latency-ack-10",
        Kind.LATENCY,
        f"{LATENCY_RATE_ACK:,}/s, ack every 10",
        f"--rate {LATENCY_RATE_ACK} --ack-every 10 --prefetch 1000",
    ),
)
PERSISTENT_CASES: Final = (
    Case("persistent-100", Kind.DURABLE, "100 bytes", PERSISTENT),
    Case("persistent-1k", Kind.DURABLE, "1 KiB", f"{PERSISTENT} --size 1024"),
    Case("persistent-16k", Kind.BULK, "16 KiB", f"{PERSISTENT} --size {BULK_BODY_BYTES}"),
    Case("persistent-varied", Kind.DURABLE, "100 bytes, varied messages", f"{PERSISTENT} {VARIED}"),
    Case(
        "persistent-fanout",
        Kind.DURABLE,
        f"100 bytes, fan-out to {FANOUT_QUEUES} queues",
        # Not followed by number: ten copies of each message are meant to come.
        f"{DURABLE} {CONFIRM} {ACK_100} --fanout --queues {FANOUT_QUEUES} --consumers {FANOUT_QUEUES}",
    ),
    Case(
        "persistent-ten-queues", Kind.DURABLE, "100 bytes, 10 queues, 10 producers, 10 consumers", f"{PERSISTENT} {TEN}"
    ),
    Case(
        "persistent-window-1",
        Kind.ROUND_TRIP,
        "100 bytes, one unconfirmed message",
        f"{DURABLE} --confirm 1 {ACK_100} --verify",
    ),
)
MEMORY_CASES: Final = (
    Case(
        "flood",
        Kind.MEMORY,
        "flat-out publisher, no consumer, 16 KiB",
        f"--publish-only --no-drain --size {MEMORY_BODY_BYTES}",
        seconds_min=6.0,
    ),
    Case(
        "slow-consumer",
        Kind.MEMORY,
        f"flat-out publisher, consumer of {SLOW_CONSUMER_RATE:,}/s, 16 KiB",
        f"--no-drain --size {MEMORY_BODY_BYTES} --consume-rate {SLOW_CONSUMER_RATE} --ack-every 10 --prefetch 100",
        seconds_min=6.0,
    ),
)
BACKLOG_CASES: Final = (
    Case("backlog", Kind.BACKLOG, "publish all, then drain", large=True),
    Case("backlog-deep", Kind.BACKLOG, "publish all, then drain; five times as many", large=True, alone=True, share=5),
    Case("restart", Kind.RESTART, "publish all, kill -9, clean stop, drain", large=True),
)
# Messages live so long that most brokers have taken them all before the first is due. So all are there at once, and
# are due at the pace at which they were published.
LIFE_US: Final = 20.0
# Held messages are due at random times between this and twice as much: 10,000 each second.
HOLD_US: Final = 100.0
EXPIRING: Final = "--queue-arg x-message-ttl={wait_ms}"
FEATURE_CASES: Final = (
    Case("ttl", Kind.EXPIRY, "x-message-ttl, nobody consumes", EXPIRING, wait_us=LIFE_US),
    Case(
        "dead-letter-expired",
        Kind.DEAD_LETTERS,
        "expired by x-message-ttl",
        f"--dead-letters {EXPIRING}",
        wait_us=LIFE_US,
    ),
    Case("dead-letter-rejected", Kind.DEAD_LETTERS, "rejected by a consumer", "--dead-letters --reject"),
    Case(
        "priority",
        Kind.ORDERED,
        f"x-max-priority, {PRIORITIES} priorities",
        f"--queue-arg x-max-priority={PRIORITIES} --priorities {PRIORITIES}",
    ),
    Case("plain", Kind.ORDERED, "a plain queue, messages with a header", f"--cycle key={GROUPS}", alone=True),
    Case(
        "grouped",
        Kind.ORDERED,
        f"x-group-header, {GROUPS:,} groups, 10 consumers",
        f"--queue-arg x-group-header=key --cycle key={GROUPS} --consumers 10",
        alone=True,
    ),
    Case(
        "last-value",
        Kind.ORDERED,
        f"x-last-value-header, {LAST_VALUES:,} keys",
        f"--queue-arg x-last-value-header=key --cycle key={LAST_VALUES}",
        alone=True,
        keys=LAST_VALUES,
    ),
    Case("delayed", Kind.DELAYED, "random x-delay", "--delay {wait_ms}-{last_ms}", alone=True, wait_us=HOLD_US),
    Case(
        "delayed-tenth",
        Kind.DELAYED,
        "random x-delay, a tenth as many",
        "--delay {wait_ms}-{last_ms}",
        alone=True,
        wait_us=HOLD_US,
        share=0.1,
    ),
)
CASES: Final = (
    *REAL_CASES,
    *TRANSIENT_CASES,
    *PERSISTENT_CASES,
    *MEMORY_CASES,
    Case("spawn", Kind.SPAWN, "start of an empty broker"),
    *BACKLOG_CASES,
    *FEATURE_CASES,
)
# Plain queues: what must not become slower.
PLAIN: Final = ("auto-ack", "ack-100", "ack-1", "ten-queues", "confirm", "persistent-100")
# What `--against` compares with an earlier revision, or with another build.
COMPARED: Final = (*(case.name for case in REAL_CASES), "auto-ack-varied", "topic", "persistent-varied", *PLAIN)
# Messages that differ, in a plain queue: what the ordered queues are divided by.
ORDERED_BASE: Final = "plain"
# The same load with equal and with varied messages.
VARIED_OF: Final = {
    "auto-ack": "auto-ack-varied",
    "ack-100": "ack-100-varied",
    "ack-1": "ack-1-varied",
    "persistent-100": "persistent-varied",
}
BY_NAME: Final = {case.name: case for case in CASES}
