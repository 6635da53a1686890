"""The same policies on penstock and on a real RabbitMQ: what is refused, what counts, and what it does to messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.policies.policy_check import checked_policy
from tests.features.stage import Stage, declare, drain, numbered, on_stage, publish, ready, take
from tests.features.test_policies import ask
from tests.interop.deadline import wait_until
from tests.oracle import RabbitMQ, available

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.fixture(scope="module")
def rabbit() -> Iterator[RabbitMQ]:
    reason = available()
    if reason is not None:
        pytest.skip(reason)
    with RabbitMQ() as broker:
        yield broker


VALUES: list[Any] = [0, 1, -1, 5, 10**30, 1.5, True, None, "", "x", [], {}, ["a"], {"a": 1}]
KEYS_OF_RABBITMQ: dict[str, list[Any]] = {
    "alternate-exchange": [],
    "dead-letter-exchange": [],
    "dead-letter-routing-key": [],
    "dead-letter-strategy": ["at-most-once", "at-least-once"],
    "message-ttl": [],
    "expires": [],
    "max-length": [],
    "max-length-bytes": [],
    "max-in-memory-length": [],
    "max-in-memory-bytes": [],
    "queue-mode": ["default", "lazy"],
    "queue-version": [2, 3],
    "overflow": ["drop-head", "reject-publish", "reject-publish-dlx"],
    "delivery-limit": [],
    "stream-max-segment-size-bytes": [3_000_000_000, 3_000_000_001],
    "queue-leader-locator": ["client-local", "balanced", "random", "least-leaders"],
    "initial-cluster-size": [],
    "max-lenght": [],
    "": [],
}


def definitions() -> list[tuple[bool, dict[str, Any]]]:
    found: list[tuple[bool, dict[str, Any]]] = [(False, {}), (True, {})]
    for key, more in KEYS_OF_RABBITMQ.items():
        for value in [*VALUES, *more]:
            found.append((False, {key: value}))
            if key != "overflow":
                found.append((True, {key: value}))
    found += [
        (False, {"max-length": 3, "expires": 5, "message-ttl": 0}),
        (False, {"max-length": 3, "colour": "red"}),
        (False, {"dead-letter-routing-key": "k"}),
    ]
    return found


def texts_of_rabbitmq(rabbit: RabbitMQ, wanted: list[tuple[bool, dict[str, Any]]]) -> list[str]:
    """Set each as a policy; "" for those that it takes, else what it says. One Erlang does it for all."""
    pairs = ",".join(
        f"{{{'set_op' if is_operator else 'set'}, <<{','.join(str(o) for o in json.dumps(definition).encode())}>>}}"
        for is_operator, definition in wanted
    )
    script = (
        "Take = fun ({Kind, Text}) -> {ok, D} = rabbit_json:try_decode(Text),"
        ' case rabbit_policy:Kind(<<"/">>, <<"p">>, <<"^no$">>, maps:to_list(D), 0, <<"all">>, <<"me">>) of'
        ' ok -> <<>>; {error_string, S} -> iolist_to_binary(io_lib:format("~s", [S])) end end,'
        f' io:format("~s~n", [rabbit_json:encode([Take(P) || P <- [{pairs}]])]).'
    )
    answer = rabbit.ctl("eval", script).stdout
    return [text.removeprefix("Validation failed\n\n").rstrip("\n") for text in json.loads(answer.splitlines()[0])]


def test_definitions_are_refused_in_the_same_words(rabbit: RabbitMQ) -> None:
    wanted = definitions()
    different = []
    for (is_operator, definition), theirs in zip(wanted, texts_of_rabbitmq(rabbit, wanted), strict=True):
        ours = ""
        try:
            checked_policy("p", "^no$", definition, 0, "all", is_operator)
        except BadRequest as error:
            ours = str(error).partition("; ")[0]
        # It breaks long lines.
        if "".join(ours.split()) != "".join(theirs.split()):
            different.append(f"{definition} here: {ours} there: {theirs}")
    assert not different, "\n".join(different)


# --- what counts ----------------------------------------------------------------------------------------

POLICIES: list[tuple[str, str, str, int, str, dict[str, Any]]] = [
    ("set_policy", "low", "^a", 0, "all", {"max-length": 10, "expires": 3_600_000}),
    ("set_policy", "high", "^a\\.b", 5, "queues", {"max-length": 20, "overflow": "reject-publish"}),
    ("set_policy", "exchanges", "^a\\.b\\.c", 9, "exchanges", {"alternate-exchange": "alt"}),
    ("set_policy", "streams", "^a\\.s", 9, "queues", {"max-age": "1D"}),
    ("set_policy", "negative", "z$", -3, "all", {"dead-letter-exchange": "dlx"}),
    ("set_operator_policy", "floor", "^a", 0, "queues", {"max-length": 15, "message-ttl": 3_600_000}),
    ("set_operator_policy", "other", "^o", 1, "all", {"max-length": 15}),
]
# rabbitmqctl 3.10 lists none of it.
WHAT_APPLIES = (
    "Map = fun (undefined) -> undefined; (Pairs) -> maps:from_list(Pairs) end,"
    ' io:format("~s~n", [rabbit_json:encode([[element(4, amqqueue:get_name(Q)), rabbit_policy:name(Q),'
    " rabbit_policy:name_op(Q), Map(rabbit_policy:effective_definition(Q))]"
    ' || Q <- rabbit_amqqueue:list(<<"/">>)])]).'
)
QUEUES: list[str] = ["a", "a.b", "a.b.c", "a.s", "az", "xz", "o", "none", "ba"]


def test_the_same_policies_apply_and_say_the_same_together(rabbit: RabbitMQ) -> None:
    with on_stage() as stage:
        ours, theirs = stage.channel(), pika.BlockingConnection(pika.URLParameters(rabbit.url)).channel()
        for channel in (ours, theirs):
            for name in QUEUES:
                channel.queue_declare(name, durable=True)
            channel.exchange_declare("a.b.c", "fanout")
        for verb, name, pattern, priority, apply_to, definition in POLICIES:
            words = (name, pattern, json.dumps(definition), "--priority", str(priority), "--apply-to", apply_to)
            rabbit.ctl(verb, *words)
            ask(stage, verb, name=name, pattern=pattern, priority=priority, apply_to=apply_to, definition=definition)
        for _ in range(2):
            expected = {
                name: (
                    None if policy == "none" else policy,
                    None if operator == "none" else operator,
                    {} if definition == "undefined" else definition,
                )
                for name, policy, operator, definition in json.loads(
                    rabbit.ctl("eval", WHAT_APPLIES).stdout.splitlines()[0]
                )
            }
            found = {name: tuple(ask(stage, "queue_policies", name=name).values()) for name in QUEUES}
            assert found == expected
            for name in ("high", "negative"):
                rabbit.ctl("clear_policy", name, check=False)
            for name in [each["name"] for each in ask(stage, "list_policies") if each["name"] in ("high", "negative")]:
                ask(stage, "clear_policy", name=name)
        for verb, name, *_ in POLICIES:
            rabbit.ctl(verb.replace("set", "clear"), name, check=False)
        for name in QUEUES:
            theirs.queue_delete(name)
        theirs.connection.close()


# --- what it does ---------------------------------------------------------------------------------------

SetPolicy = Callable[[dict[str, Any]], None]


def _limits(channel: BlockingChannel, set_policy: SetPolicy, with_arguments: dict[str, int]) -> Any:
    channel.queue_declare("q", durable=True, arguments=with_arguments)
    publish(channel, "q", *numbered(0, 10))
    before = drain(channel, "q")
    publish(channel, "q", *numbered(0, 10))
    set_policy({"max-length": 3})
    wait_until(lambda: ready(channel, "q") <= 3, "room was made")
    publish(channel, "q", b"10")
    return before, drain(channel, "q")


def _overflow(channel: BlockingChannel, set_policy: SetPolicy) -> Any:
    declare(channel, "q")
    publish(channel, "q", b"0", b"1")
    taken = []
    for definition in (
        {"max-length": 2, "overflow": "reject-publish"},
        {"max-length": 2},
        {"max-length": 3, "overflow": "reject-publish"},
    ):
        set_policy(definition)
        for number in range(2):
            try:
                publish(channel, "q", b"%d" % (len(taken) + number))
                taken.append(True)
            except NackError:
                taken.append(False)
    return taken, drain(channel, "q")


def _dead_letters(channel: BlockingChannel, set_policy: SetPolicy) -> Any:
    for name in ("q", "one", "two"):
        declare(channel, name)
    publish(channel, "q", *numbered(0, 6))
    for definition in (
        {"dead-letter-exchange": "", "dead-letter-routing-key": "one"},
        {"dead-letter-exchange": "", "dead-letter-routing-key": "two"},
        {"dead-letter-routing-key": "one"},
        {"dead-letter-exchange": "amq.fanout"},
    ):
        set_policy(definition)
        channel.basic_reject(take(channel, "q", ack=False)[0].delivery_tag, requeue=False)
        # The answer comes when the broker has seen the rejection.
        ready(channel, "q")
    wait_until(lambda: ready(channel, "one") == 1 and ready(channel, "two") == 1, "letters have arrived")
    return drain(channel, "one"), drain(channel, "two"), drain(channel, "q")


def _time_to_live(channel: BlockingChannel, set_policy: SetPolicy) -> Any:
    declare(channel, "q")
    publish(channel, "q", b"old")
    set_policy({"message-ttl": 1})
    publish(channel, "q", b"new")
    first = take(channel, "q")[2]
    wait_until(lambda: ready(channel, "q") == 0, "what came later has expired")
    set_policy({"message-ttl": 3_600_000})
    publish(channel, "q", b"longer")
    return first, drain(channel, "q")


def _alternate(channel: BlockingChannel, set_policy: SetPolicy) -> Any:
    declare(channel, "q")
    channel.exchange_declare("q.x", "direct")
    channel.exchange_declare("q.own", "direct", arguments={"alternate-exchange": "amq.direct"})
    channel.queue_bind("q", "amq.fanout")
    channel.basic_publish("q.x", "k", b"before")
    set_policy({"alternate-exchange": "amq.fanout"})
    for exchange in ("q.x", "q.own", "amq.topic", ""):
        channel.basic_publish(exchange, "nobody", exchange.encode() or b"default")
    publish(channel, "q", b"end")
    found: list[bytes] = []
    while not found or found[-1] != b"end":
        found.append(take(channel, "q")[2])
    channel.exchange_delete("q.x")
    channel.exchange_delete("q.own")
    return found


def _expires(channel: BlockingChannel, set_policy: SetPolicy) -> Any:
    declare(channel, "q", x_expires=3_600_000)
    declare(channel, "q.passive")
    set_policy({"expires": 100})

    def is_gone(name: str) -> bool:
        try:
            probe = channel.connection.channel()
            probe.queue_declare(name, passive=True)
            probe.close()
        except pika.exceptions.ChannelClosedByBroker:
            return True
        return False

    # Asking for it is a use: it is asked once, by publishing to it.
    def is_unroutable(name: str) -> bool:
        try:
            channel.basic_publish("", name, b"", mandatory=True)
        except pika.exceptions.UnroutableError:
            return True
        return False

    wait_until(lambda: is_unroutable("q") and is_unroutable("q.passive"), "both have expired")
    return is_gone("q"), is_gone("q.passive")


SCRIPTS: dict[str, Callable[[BlockingChannel, SetPolicy], Any]] = {
    "limits": lambda channel, set_policy: _limits(channel, set_policy, {}),
    "limits with a smaller argument": lambda channel, set_policy: _limits(channel, set_policy, {"x-max-length": 2}),
    "limits with a larger argument": lambda channel, set_policy: _limits(channel, set_policy, {"x-max-length": 7}),
    "overflow": _overflow,
    "dead letters": _dead_letters,
    "time to live": _time_to_live,
    "alternate": _alternate,
    "expires": _expires,
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_same_happens_to_messages(rabbit: RabbitMQ, script: str) -> None:
    with on_stage() as stage:
        ours = _run(stage.channel(), script, lambda definition: _set_here(stage, definition))
    connection = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    channel = connection.channel()
    channel.confirm_delivery()
    try:
        theirs = _run(channel, script, lambda definition: _set_there(rabbit, definition))
    finally:
        rabbit.ctl("clear_policy", "p", check=False)
        for name in ("q", "one", "two"):
            connection.channel().queue_delete(name)
        connection.close()
    assert ours == theirs


def _run(channel: BlockingChannel, script: str, set_policy: SetPolicy) -> Any:
    return SCRIPTS[script](channel, set_policy)


def _set_here(stage: Stage, definition: dict[str, Any]) -> None:
    ask(stage, "set_policy", name="p", pattern="^(q|amq)", definition=definition)


def _set_there(rabbit: RabbitMQ, definition: dict[str, Any]) -> None:
    rabbit.ctl("set_policy", "p", "^(q|amq)", json.dumps(definition))
