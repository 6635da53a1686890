"""What one seed of the feature simulation is about: its queues with their arguments, its sizes, its mixture of steps.

Limits and times are tiny, so that each is reached with a handful of messages. The sizes of store and paging are drawn
by the profile of the storage simulation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from penstock.fields import Table
from tests.simulation.profile import Profile

# A fanout exchange, and one that delays.
FAN = "fan"
LATE = "late"
NAMES = ("a", "b", "c", "d", "e")
GROUP_HEADER = "grp"
VALUE_HEADER = "key"
SORT_HEADER = "rank"
DEDUP_HEADER = "x-deduplication-header"

# Step → how often, relative to the others, when a seed has not left it out.
WEIGHTS: dict[str, float] = {
    "publish": 40,
    "publish_run": 6,
    "publish_late": 6,
    "subscribe": 4,
    "cancel": 2,
    "pull": 26,
    "get": 5,
    "ack": 12,
    "requeue": 10,
    "reject": 8,
    "pass_time": 14,
    "pass_long": 2,
    "purge": 0.7,
    "delete": 0.7,
    "declare": 3,
    "pause": 1,
    "resume": 3,
    "take_out": 1.5,
    "move": 1.5,
    "release": 1.5,
    "reschedule": 1.5,
    "end_turn": 14,
    "answer_sync": 12,
    "work": 6,
    "checkpoint": 3,
    "roll": 2,
    "tend_memory": 2,
    "peek": 8,
    "clean_restart": 1.5,
    "kill": 2,
    "lose_power": 2,
    "plan_crash": 2,
}
# Without these nothing happens.
ALWAYS = ("publish", "pull", "ack", "pass_time", "declare", "end_turn", "answer_sync", "peek")
RESTARTS = ("clean_restart", "kill", "lose_power", "plan_crash")


@dataclass(slots=True)
class QueueSpec:
    """One queue as it is declared, whenever it is."""

    name: str
    durable: bool
    ttl_ms: int = -1
    length_max: int = -1
    overflow: str = "drop-head"
    # None: dead messages are dropped. "": to the queue of `dead_key`. FAN: to all that are bound there.
    dead_exchange: str | None = None
    dead_key: str = ""
    at_least_once: bool = False
    delivery_limit: int = -1
    retry_min_ms: int = 0
    retry_max_ms: int = 0
    retry_type: str = "all"
    # "group", "value", "sort", "priority", "anywhere", or "" for arrival.
    order: str = ""
    holds: bool = False
    dedup_count: int = 0
    dedup_ttl_ms: int = -1
    single_active: bool = False
    group_type: str = "shared"

    def arguments(self) -> Table:
        table: Table = {}
        if self.ttl_ms >= 0:
            table["x-message-ttl"] = ("I", self.ttl_ms)
        if self.length_max >= 0:
            table["x-max-length"] = ("I", self.length_max)
            table["x-overflow"] = ("S", self.overflow.encode())
        if self.dead_exchange is not None:
            table["x-dead-letter-exchange"] = ("S", self.dead_exchange.encode())
            if self.dead_key:
                table["x-dead-letter-routing-key"] = ("S", self.dead_key.encode())
            if self.at_least_once:
                table["x-dead-letter-strategy"] = ("S", b"at-least-once")
        if self.delivery_limit >= 0:
            table["x-delivery-limit"] = ("I", self.delivery_limit)
        if self.retry_min_ms:
            table["x-delayed-retry-min"] = ("I", self.retry_min_ms)
            table["x-delayed-retry-max"] = ("I", self.retry_max_ms)
            table["x-delayed-retry-type"] = ("S", self.retry_type.encode())
        if self.dedup_count:
            table["x-message-deduplication"] = ("t", True)
            table["x-cache-size"] = ("I", self.dedup_count)
            if self.dedup_ttl_ms > 0:
                table["x-cache-ttl"] = ("I", self.dedup_ttl_ms)
        if self.holds:
            table["x-hold-on-publish"] = ("t", True)
        if self.single_active:
            table["x-single-active-consumer"] = ("t", True)
        return table | self._order()

    def _order(self) -> Table:
        if self.order == "group":
            return {"x-group-header": ("S", GROUP_HEADER.encode()), "x-group-type": ("S", self.group_type.encode())}
        if self.order == "value":
            return {"x-last-value-header": ("S", VALUE_HEADER.encode())}
        if self.order == "sort":
            return {"x-sort-header": ("S", SORT_HEADER.encode())}
        if self.order == "priority":
            return {"x-max-priority": ("I", 3)}
        return {"x-expire-anywhere": ("t", True)} if self.order == "anywhere" else {}

    @property
    def refuses(self) -> bool:
        return self.length_max >= 0 and self.overflow.startswith("reject-publish")

    @property
    def drops(self) -> bool:
        """Whether a full queue gives up messages that it has."""
        return self.length_max >= 0 and not self.overflow.startswith("reject-publish")

    @property
    def counts(self) -> bool:
        return self.delivery_limit >= 0 or self.retry_min_ms > 0

    def retries(self, lost: bool) -> bool:
        if self.retry_min_ms == 0:
            return False
        return self.retry_type == "all" or (self.retry_type == "returned") == lost


@dataclass(slots=True)
class Topology:
    """The queues of a seed, and who is bound to the two exchanges."""

    specs: dict[str, QueueSpec]
    fan: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def drawn_topology(rng: random.Random) -> Topology:
    names = NAMES[: rng.randint(2, len(NAMES))]
    specs = {name: _drawn_spec(rng, name, names) for name in names}
    return Topology(specs, _some(rng, names), _some(rng, names))


def _some(rng: random.Random, names: tuple[str, ...]) -> list[str]:
    return sorted(rng.sample(names, rng.randint(1, 2)))


def _drawn_spec(rng: random.Random, name: str, names: tuple[str, ...]) -> QueueSpec:
    spec = QueueSpec(name, rng.random() < 0.93)
    if rng.random() < 0.35:
        spec.ttl_ms = rng.choice((3, 20, 3000))
    if rng.random() < 0.35:
        spec.length_max = rng.choice((0, 1, 2, 4))
        spec.overflow = rng.choice(("drop-head", "drop-head", "reject-publish", "reject-publish-dlx", "ring"))
    if rng.random() < 0.65:
        spec.dead_exchange = rng.choice(("", "", "", FAN, "none"))
        spec.dead_key = rng.choice(names) if spec.dead_exchange == "" else rng.choice(("", "k"))
        spec.at_least_once = rng.random() < 0.5
    if rng.random() < 0.3:
        spec.delivery_limit = rng.choice((0, 1, 2))
    if rng.random() < 0.35:
        spec.retry_min_ms = rng.choice((1, 10, 1000))
        spec.retry_max_ms = spec.retry_min_ms * rng.choice((1, 3))
        spec.retry_type = rng.choice(("all", "all", "failed", "returned"))
    if rng.random() < 0.45:
        spec.order = rng.choice(("group", "value", "sort", "priority", "anywhere"))
        spec.group_type = rng.choice(("shared", "standard"))
    spec.holds = rng.random() < 0.25
    if rng.random() < 0.25:
        spec.dedup_count = rng.choice((1, 3, 100))
        spec.dedup_ttl_ms = rng.choice((-1, 5, 2000))
    spec.single_active = rng.random() < 0.15
    return spec


class FeatureProfile:
    """The numbers of one seed."""

    def __init__(self, rng: random.Random) -> None:
        # With chances of its own: what it draws does not change what happens here.
        self.machine = Profile(random.Random(rng.getrandbits(64)), False)
        self.topology = drawn_topology(rng)
        self.steps = rng.randrange(40, 130)
        self.persistent_share = rng.choice((0.7, 1.0, 1.0))
        self.large_share = rng.choice((0.0, 0.2, 0.6))
        self.releases_per_turn = rng.choice((1, 2, 100))
        self.fill_per_turn = rng.choice((1, 3, 100))
        self.weights = _drawn_weights(rng)
        # What is done in one turn by those who work in slices. Not drawn: what happens in a seed does not depend on it.
        self.slice_count = (1, 3, 250)[self.steps % 3]


def _drawn_weights(rng: random.Random) -> dict[str, float]:
    weights: dict[str, float] = {}
    for name, weight in WEIGHTS.items():
        if name in ALWAYS or rng.random() < 0.75:
            weights[name] = weight * rng.choice((0.3, 1.0, 1.0, 3.0))
    weights["publish"] = max(weights["publish"], WEIGHTS["publish"])
    if not any(name in weights for name in RESTARTS):
        weights["kill"] = 2.0
    return weights
