"""Random policies: refused in one line or applied and taken back without a trace; and queues that live under them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from penstock.backing.renumbered import GENERATIONS_MAX, RenumberedBackingQueue
from penstock.broker.broker import Broker
from penstock.broker.migration.migration import Migration, redefine
from penstock.broker.migration.redefinition import plan
from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.policies.policy import Policy, policy_from_json
from penstock.broker.policies.policy_check import checked_policy
from penstock.broker.policies.policy_keys import KEYS
from penstock.broker.vhost.vhost import VHost
from penstock.clock import ManualClock
from penstock.config import Config
from penstock.fields import Table
from penstock.message import Envelope, Incoming, body_bytes
from penstock.queues.queue import Queue
from penstock.wire.properties import Properties, encode_properties
from penstock.wire.tables import decode_table, encode_table

from . import budget

ODD: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 1000, 2**31, 2**64, -(2**70), 1.5, 1e308, "", "x", "all", "é\ud800", "a" * 300),
    *([], {}, ["a"], {"a": {"b": []}}, "lazy", "drop-head", "reject-publish", "ring", "at-least-once", "shared"),
]
PATTERNS: list[Any] = [".*", "^q", "(", "a" * 2000, "(a+)+$", "", None, 5, "^(?!amq)", "q|x", "\\1", "[", "é"]


def random_definition(random: Random) -> Any:
    if random.random() < 0.05:
        return random.choice(ODD)
    known = sorted(KEYS)
    return {
        random.choice(known) if random.random() < 0.95 else random.choice(["", "x" * 300, "max_length", "é"]): (
            random.choice(ODD)
        )
        for _ in range(random.randint(0, 4))
    }


def put(vhost: VHost, clock: ManualClock, policy: Any, is_operator: bool = False) -> None:
    over: list[bool] = []
    vhost.policies.put(policy, is_operator, lambda: over.append(True))
    assert over, "a few queues change at once"


def test_a_definition_is_refused_in_one_line_or_applied_and_taken_back_without_a_trace() -> None:
    taken = refused = 0
    for seed in budget.seeds(3_000, budget.POLICIES_SHARE):
        random = Random(seed)
        clock = ManualClock()
        vhost = Broker(Config(), clock).vhosts["/"]
        queue = vhost.declare_queue("q", True, False, None, {})
        exchange = vhost.declare_exchange("qx", "direct", True, False, False, {})
        is_operator = random.random() < 0.3
        try:
            policy: Policy | None = checked_policy(
                random.choice(["p", "", "é", "x" * 300]),
                random.choice(PATTERNS),
                random_definition(random),
                random.choice([0, 1, -5, True, "1", 2**80, 0.5]) if random.random() < 0.3 else 0,
                random.choice(["all", "queues", "exchanges", "classic_queues", "streams", "", None]),
                is_operator,
            )
        except BadRequest as error:
            refused += 1
            said = str(error)
            policy = None
        if policy is None:
            assert "\n" not in said, seed
            assert len(said) < 4000, seed
            continue
        taken += 1
        assert policy_from_json(json.loads(json.dumps(policy.to_json()))) == policy, seed
        put(vhost, clock, policy, is_operator)
        raw = encode_table(queue.effective_arguments)
        assert decode_table(raw, 0, len(raw)) == (queue.effective_arguments, len(raw)), seed
        publish(queue, random, 0)
        over: list[bool] = []
        vhost.policies.clear(policy.name, is_operator, lambda over=over: over.append(True))  # type: ignore[misc]
        assert (over, queue.effective_arguments, exchange.alternate) == ([True], {}, None), seed
        seams = (queue.intake, queue.dead_letters, queue.returns, queue.lifetime)
        assert seams == (None,) * 4, seed
        # What an order has shelved stays on the shelf until it is taken.
        assert queue.selection is None or queue.selection.ready_count(), seed
    assert taken
    assert refused


# --- a queue under changing rules ---------------------------------------------------------------------------

# None of them takes a message away.
HARMLESS: list[dict[str, Any]] = [
    {"max-length": 10_000},
    {"max-length": 10_000, "overflow": "reject-publish"},
    {"max-length-bytes": 10_000_000, "overflow": "ring"},
    {"max-length": 10_000, "overflow": "flow-to-disk"},
    {"message-ttl": 3_600_000_000},
    {"expires": 3_600_000_000},
    {"delivery-limit": 1_000},
    {"dead-letter-exchange": "amq.fanout"},
    {"dead-letter-exchange": "amq.fanout", "dead-letter-strategy": "at-least-once"},
    {"queue-mode": "lazy"},
    {"group-header": "g"},
    {"group-header": "g", "group-type": "standard"},
    {"sort-header": "s"},
    {"last-value-header": "unique"},
    {"expire-anywhere": True},
    {"message-deduplication": True, "cache-size": 1_000, "deduplication-header": "unique"},
    {"hold-on-publish": True},
]


def publish(queue: Queue, random: Random, number: int) -> None:
    headers: Table = {
        "g": ("l", random.randrange(3)),
        "s": ("l", random.randrange(100)),
        "unique": ("l", number),
    }
    priority = random.randrange(4)
    raw = encode_properties(Properties(delivery_mode=2, priority=priority, headers=headers))
    queue.publish(Incoming(Envelope("", "q", raw, True, priority), [b"%d\xce" % number]), None)


def change(vhost: VHost, queue: Queue, random: Random, clock: ManualClock, broker: Broker) -> None:
    """Another policy, none, or other arguments."""
    act = random.random()
    if act < 0.5:
        put(vhost, clock, checked_policy("p", "^q", random.choice(HARMLESS), 0, "all", False))
    elif act < 0.7 and "p" in vhost.policies.ordinary.by_name:
        vhost.policies.clear("p", False, lambda: None)
    else:
        ended: list[object] = []
        set_to, unset = random.choice(
            [({"x-max-priority": random.randint(1, 4)}, []), ({}, ["x-max-priority"]), ({"x-max-length": 9_999}, [])]
        )
        wanted = plan(vhost, queue, set_to, unset)
        if not wanted.moves:
            redefine(vhost, queue, wanted)
            return
        if isinstance(queue.backing, RenumberedBackingQueue) and queue.backing.generation == GENERATIONS_MAX:
            return
        Migration(vhost, queue, wanted, broker.expiries, ended.append, random.randint(1, 5))
        while not ended:
            clock.advance(0.001)
            broker.expiries.run_due(clock.wall_ms())
        assert ended == [None]


def test_messages_outlive_every_change_of_policies_and_arguments() -> None:
    for seed in budget.seeds(400, budget.POLICIES_SHARE):
        random = Random(seed)
        clock = ManualClock()
        broker = Broker(Config(), clock)
        vhost = broker.vhosts["/"]
        queue = vhost.declare_queue("q", True, False, None, {})
        there: set[int] = set()
        held: dict[int, int] = {}
        count = 0
        for _ in range(random.randint(5, 40)):
            act = random.random()
            if act < 0.4:
                publish(queue, random, count)
                there.add(count)
                count += 1
            elif act < 0.6:
                run = queue.get(False)
                if run is not None:
                    number = int(body_bytes(run.entries[0][1]))
                    assert number in there, seed
                    assert number not in held, seed
                    held[number] = run.first_seq_id
            elif act < 0.8 and held:
                number = random.choice(sorted(held))
                seq_id = held.pop(number)
                if random.random() < 0.5:
                    queue.requeue([seq_id])
                else:
                    queue.ack([seq_id])
                    there.discard(number)
            else:
                change(vhost, queue, random, clock, broker)
            queue.backing.check_invariants()
            if queue.selection is not None:
                queue.selection.check_invariants()
            assert queue.backing.depth() == len(there), seed
            assert queue.ready_count() == len(there) - len(held), seed
        if "p" in vhost.policies.ordinary.by_name:
            vhost.policies.clear("p", False, lambda: None)
        queue.requeue(list(held.values()))
        left = []
        while (run := queue.get(True)) is not None:
            left.append(int(body_bytes(run.entries[0][1])))
        assert sorted(left) == sorted(there), seed
        assert queue.backing.depth() == 0, seed
