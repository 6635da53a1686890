"""A client that sends very much at once is handled in turns with the others."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pamqp import commands
from wire_bench import Bench, Client

from penstock import limits
from penstock.clock import Clock, ManualClock
from penstock.server.connection.reader import ACKS_AT_ONCE, LOOK_AFTER


class RushingClock(Clock):
    """A second passes between two looks: whoever looks has had more than enough."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        self._now_s += 1.0
        return self._now_s


def rushed() -> Bench:
    bench = Bench()
    clock = RushingClock()
    bench.server.broker.clock = clock
    bench.server.parse_turns._clock = clock
    return bench


def declares(client: Client, prefix: str, count: int) -> None:
    client.send(*[commands.Queue.Declare(0, f"{prefix}{number}") for number in range(count)])


def answered(frames: list[Any]) -> list[str]:
    return [frame.queue for frame in frames if isinstance(frame, commands.Queue.DeclareOk)]


def test_one_turn_handles_some_of_what_a_client_has_sent_and_then_others() -> None:
    bench = rushed()
    first, second = bench.client(), bench.client()
    declares(first, "a", 100)
    assert len(bench.vhost.queues) < LOOK_AFTER
    declares(second, "b", 1)
    assert "b0" in bench.vhost.queues
    made = [len(bench.vhost.queues)]
    while len(bench.vhost.queues) < 101:
        bench.loop.turn()
        made.append(len(bench.vhost.queues))
    assert max(after - before for before, after in pairwise(made)) <= LOOK_AFTER
    assert answered(first.read()) == [f"a{number}" for number in range(100)]
    assert answered(second.read()) == ["b0"]


def test_clients_that_have_sent_much_take_turns() -> None:
    bench = rushed()
    clients = [bench.client() for _ in range(3)]
    for client, prefix in zip(clients, "abc", strict=True):
        declares(client, prefix, 60)
    bench.loop.run()
    order = [name[0] for name in bench.vhost.queues]
    # Each has got on before the first one was done.
    assert order.index("c") < len(order) - 1 - order[::-1].index("a")
    assert sorted(order) == sorted("abc" * 60)
    assert [len(answered(client.read())) for client in clients] == [60, 60, 60]


def test_acks_in_any_order_are_settled_some_at_a_time() -> None:
    bench = rushed()
    client = bench.client()
    bench.queue("q")
    count = 3 * ACKS_AT_ONCE
    client.publish("", "q", *[b"x"] * count)
    client.send(commands.Basic.Consume(0, "q", "t"))
    client.read()
    queue = bench.vhost.queues["q"]
    assert queue.backing.depth() == count
    # Backwards: no two follow each other.
    client.send(*[commands.Basic.Ack(tag) for tag in range(count, 0, -1)])
    left = [queue.backing.depth()]
    while queue.backing.depth():
        bench.loop.turn()
        left.append(queue.backing.depth())
    assert left[0] == count - ACKS_AT_ONCE
    assert max(before - after for before, after in pairwise(left)) == ACKS_AT_ONCE
    assert bench.server.internal_errors == 0


def test_methods_that_serve_consumers_first_do_so_some_messages_at_a_time() -> None:
    bench = rushed()
    consumer, client = bench.client(), bench.client()
    queue = bench.queue("q")
    count = 4 * limits.TURN_MESSAGES_MAX
    for _ in range(8):
        client.publish("", "q", *[b"x"] * (count // 8))
    bench.loop.run()
    consumer.send(commands.Basic.Consume(0, "q", "t"))
    client.send(*[commands.Queue.Declare(0, "q", passive=True)] * 10)
    assert count - len(queue) <= limits.TURN_MESSAGES_MAX + limits.PULL_MESSAGES_MAX
    bench.loop.run()
    assert len(queue) == 0
    assert len(answered(client.read())) == 10


def test_a_connection_that_is_closed_before_its_turn_is_left_alone() -> None:
    bench = rushed()
    client = bench.client()
    declares(client, "a", 100)
    client.connection.connection_lost(None)
    bench.loop.run()
    assert len(bench.vhost.queues) < LOOK_AFTER
    assert bench.server.internal_errors == 0


def test_a_client_whose_socket_always_has_more_is_not_read_without_an_end() -> None:
    bench = Bench()
    bench.server.broker.clock = ManualClock()
    client = bench.client()
    client.publish("", "nowhere", *[bytes(4_000)] * (limits.READ_BYTES_PER_TURN // 4_000 + 1))
    assert client.connection.parsing_stopped
    bench.loop.run()
    assert not client.connection.parsing_stopped
    assert isinstance(client.call(commands.Queue.Declare(0, "q"))[0], commands.Queue.DeclareOk)
