"""kombu: producers and consumers, SimpleQueue, pools, pidbox mailboxes, compression, reconnection, errors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import kombu
import pytest
from amqp.exceptions import AccessRefused, NotAllowed, NotFound, PreconditionFailed
from kombu.common import Broadcast, collect_replies, send_reply
from kombu.pidbox import Mailbox
from kombu.pools import connections, producers

from tests.interop.deadline import wait_until
from tests.interop.fixture_types import Name


@pytest.fixture
def connection(broker_url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(broker_url, connect_timeout=60) as opened:
        yield opened


def drain_until(connection: kombu.Connection, condition: Callable[[], Any], what: str) -> None:
    wait_until(condition, what, lambda: drain_once(connection))


def drain_once(connection: kombu.Connection) -> None:
    with suppress(socket.timeout):
        connection.drain_events(timeout=0.2)


def test_a_simple_queue_puts_and_gets_in_order(connection: kombu.Connection, name: Name) -> None:
    with connection.SimpleQueue(name(), queue_opts={"durable": False, "auto_delete": True}) as queue:
        for number in range(5):
            queue.put({"number": number}, headers={"n": number})
        wait_until(lambda: queue.qsize() == 5, "five messages")
        for number in range(5):
            message = queue.get(timeout=60)
            assert message.payload == {"number": number}
            assert message.headers["n"] == number
            message.ack()
        with pytest.raises(queue.Empty):
            queue.get_nowait()


def test_a_simple_buffer_is_transient_and_can_be_cleared(connection: kombu.Connection, name: Name) -> None:
    with connection.SimpleBuffer(name()) as buffer:
        for text in ("a", "b"):
            buffer.put(text)
        wait_until(lambda: buffer.qsize() == 2, "two messages")
        assert buffer.clear() == 2
        buffer.queue.delete()


@pytest.mark.parametrize("serializer", ["json", "pickle"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_payloads_survive_serializers_and_compression(
    connection: kombu.Connection, name: Name, serializer: str, compression: str | None
) -> None:
    payload = {"text": "grün", "list": [1, 2.5, None, True], "nested": {"a": {"b": []}}}
    received: list[Any] = []
    queue = kombu.Queue(name(), kombu.Exchange(name("e"), "direct", auto_delete=True), "k", exclusive=True)
    with connection.channel() as channel:
        producer = kombu.Producer(channel)
        with kombu.Consumer(
            channel,
            [queue],
            callbacks=[lambda body, m: (received.append(body), m.ack())],
            accept=[serializer],
        ):
            producer.publish(
                payload,
                exchange=queue.exchange,
                routing_key="k",
                serializer=serializer,
                compression=compression,
                declare=[queue],
                priority=3,
                expiration=60,
            )
            drain_until(connection, lambda: received, "the message")
    assert received == [payload]


def test_a_confirming_producer_returns_after_the_broker_has_the_message(broker_url: str, name: Name) -> None:
    options = {"confirm_publish": True}
    with kombu.Connection(broker_url, transport_options=options) as connection:
        queue = kombu.Queue(name(), exclusive=True)(connection)
        queue.declare()
        producer = connection.Producer()
        for number in range(20):
            producer.publish({"n": number}, routing_key=name(), timeout=60)
        assert queue.queue_declare(passive=True).message_count == 20


def test_a_returned_message_reaches_the_return_callback(connection: kombu.Connection, name: Name) -> None:
    returned: list[tuple[int, str]] = []

    def on_return(error: Any, _exchange: str, routing_key: str, _message: Any) -> None:
        returned.append((error.reply_code, routing_key))

    producer = kombu.Producer(connection.channel(), on_return=on_return)
    producer.publish({"lost": True}, routing_key=name("nowhere"), mandatory=True)
    drain_until(connection, lambda: returned, "the return")
    assert returned == [(312, name("nowhere"))]


def test_requeued_and_rejected_messages(connection: kombu.Connection, name: Name) -> None:
    seen: list[tuple[str, bool]] = []

    def on_message(message: kombu.Message) -> None:
        redelivered = message.delivery_info["redelivered"]
        seen.append((message.payload, redelivered))
        if message.payload == "again" and not redelivered:
            message.requeue()
        elif message.payload == "drop":
            message.reject()
        else:
            message.ack()

    queue = kombu.Queue(name(), exclusive=True)
    with connection.Consumer(queue, on_message=on_message, prefetch_count=1):
        producer = connection.Producer()
        for payload in ("again", "drop", "keep"):
            producer.publish(payload, routing_key=name())
        drain_until(connection, lambda: len(seen) == 4, "four deliveries")
        assert seen == [("again", False), ("again", True), ("drop", False), ("keep", False)]
        assert queue(connection).queue_declare(passive=True).message_count == 0


def test_fanout_topic_and_headers_exchanges(connection: kombu.Connection, name: Name) -> None:
    channel = connection.channel()
    fanout = kombu.Exchange(name("fanout"), "fanout", auto_delete=True)
    topic = kombu.Exchange(name("topic"), "topic", auto_delete=True)
    headers = kombu.Exchange(name("headers"), "headers", auto_delete=True)
    queues = {
        "fanout": kombu.Queue("", fanout, exclusive=True),
        "topic": kombu.Queue("", topic, routing_key="a.*.#", exclusive=True),
        "headers": kombu.Queue("", headers, binding_arguments={"x-match": "any", "k": 1}, exclusive=True),
    }
    bound = {kind: queue(channel) for kind, queue in queues.items()}
    for queue in bound.values():
        queue.declare()
    producer = kombu.Producer(channel)
    producer.publish("f", exchange=fanout)
    for key in ("a.b", "a", "a.b.c"):
        producer.publish(key, exchange=topic, routing_key=key)
    for value in (1, 2):
        producer.publish(str(value), exchange=headers, headers={"k": value})
    channel.queue_declare(exclusive=True)
    payloads = {kind: [m.payload for m in iter(lambda q=q: q.get(no_ack=True), None)] for kind, q in bound.items()}
    assert payloads == {"fanout": ["f"], "topic": ["a.b", "a.b.c"], "headers": ["1"]}


def test_exchanges_bind_to_exchanges_through_entities(connection: kombu.Connection, name: Name) -> None:
    channel = connection.channel()
    source = kombu.Exchange(name("source"), "topic", auto_delete=True)(channel)
    target = kombu.Exchange(name("target"), "fanout", auto_delete=True)(channel)
    source.declare()
    target.declare()
    queue = kombu.Queue("", target, exclusive=True)(channel)
    queue.declare()
    target.bind_to(source, routing_key="x.#")
    kombu.Producer(channel).publish("through", exchange=source, routing_key="x.y")
    wait_until(lambda: queue.queue_declare(passive=True).message_count == 1, "the message")
    assert queue.get(no_ack=True).payload == "through"
    target.unbind_from(source, routing_key="x.#")


def test_queue_arguments_of_kombu_reach_the_broker(connection: kombu.Connection, name: Name) -> None:
    channel = connection.channel()
    options = {"exclusive": True, "expires": 30.0, "message_ttl": 20.0, "max_priority": 10}
    kombu.Queue(name(), **options)(channel).declare()
    with pytest.raises(PreconditionFailed, match="x-max-priority"):
        kombu.Queue(name(), **{**options, "max_priority": 5})(channel).declare()


def test_a_producer_pool_hands_out_producers_to_threads(broker_url: str, name: Name) -> None:
    options = {"client_properties": {"connection_name": name("pool")}}
    pooled = kombu.Connection(broker_url, transport_options=options)
    with kombu.Connection(broker_url) as connection:
        queue = kombu.Queue(name(), auto_delete=False, durable=False)(connection)
        queue.declare()

        def publish() -> None:
            for number in range(25):
                with producers[pooled].acquire(block=True, timeout=60) as producer:
                    producer.publish({"n": number}, routing_key=name(), retry=True)

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        with connections[pooled].acquire(block=True) as borrowed:
            assert borrowed.connected
        wait_until(lambda: queue.queue_declare(passive=True).message_count == 100, "100 messages")
        queue.delete()
    producers[pooled].force_close_all()
    connections[pooled].force_close_all()


def test_a_mailbox_calls_casts_and_collects_from_all_nodes(broker_url: str, name: Name) -> None:
    mailbox = Mailbox(name("mail"), type="fanout", accept=["json"])
    casts: list[str] = []
    with kombu.Connection(broker_url) as server, kombu.Connection(broker_url) as client:
        nodes = []
        for host in ("node1", "node2"):
            node = mailbox(server).Node(host, channel=server.channel(), state=None)
            node.handlers["double"] = lambda _state, number: {"result": number * 2}
            node.handlers["note"] = lambda _state, host=host, **_kwargs: casts.append(host)
            node.listen()
            nodes.append(node)
        stopping = threading.Event()

        def serve() -> None:
            while not stopping.is_set():
                drain_once(server)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            bound = mailbox(client)
            replies = bound.multi_call("double", {"number": 21}, timeout=60, limit=2)
            assert sorted(next(iter(reply)) for reply in replies) == ["node1", "node2"]
            assert [next(iter(reply.values()))["result"] for reply in replies] == [42, 42]
            assert bound.call(["node2"], "double", {"number": 2}, timeout=60) == [{"node2": {"result": 4}}]
            bound.cast(["node1"], "note")
            bound.abcast("note")
            wait_until(lambda: len(casts) == 3, "three casts")
            assert sorted(casts) == ["node1", "node1", "node2"]
        finally:
            stopping.set()
            serving.join(60)


def test_a_broadcast_reaches_every_consumer(broker_url: str, name: Name) -> None:
    received: list[tuple[int, str]] = []
    with kombu.Connection(broker_url) as one, kombu.Connection(broker_url) as two:
        consumers = []
        for number, connection in enumerate((one, two)):
            queue = Broadcast(name("news"), unique=True)
            consumer = connection.Consumer(
                queue,
                no_ack=True,
                callbacks=[lambda body, _m, number=number: received.append((number, body))],
            )
            consumer.consume()
            consumers.append(consumer)
        one.Producer().publish("hello", exchange=name("news"))
        for connection in (one, two):
            drain_once(connection)
        drain_until(two, lambda: len(received) == 2, "both copies")
    assert sorted(received) == [(0, "hello"), (1, "hello")]


def test_a_request_is_answered_through_its_reply_queue(connection: kombu.Connection, name: Name) -> None:
    exchange = kombu.Exchange(name("rpc"), "direct", auto_delete=True)
    requests = kombu.Queue(name("requests"), exchange, "request", exclusive=True)
    replies = kombu.Queue(name("replies"), exchange, name("replies"), exclusive=True)

    def on_request(body: Any, message: kombu.Message) -> None:
        send_reply(exchange, message, {"answer": body["n"] + 1}, connection.Producer())
        message.ack()

    with connection.Consumer(requests, callbacks=[on_request]):
        replies(connection).declare()
        connection.Producer().publish(
            {"n": 41}, exchange=exchange, routing_key="request", reply_to=name("replies"), correlation_id="c"
        )
        answers = collect_replies(connection, connection.channel(), replies, timeout=60, limit=1)
        assert next(iter(answers)) == {"answer": 42}


def test_a_lost_socket_is_mended_by_ensure(connection: kombu.Connection, name: Name) -> None:
    queue = kombu.Queue(name(), durable=False, auto_delete=False)
    producer = connection.Producer()
    producer.publish("before", routing_key=name(), declare=[queue])
    connection.connection.transport.sock.shutdown(socket.SHUT_RDWR)
    producer.publish("after", routing_key=name(), retry=True, retry_policy={"max_retries": 5, "interval_start": 0.0})
    bound = queue(connection)
    wait_until(lambda: bound.queue_declare(passive=True).message_count == 2, "both messages")
    assert [bound.get(no_ack=True).payload for _ in range(2)] == ["before", "after"]
    bound.delete()


def test_an_unknown_vhost_is_an_error_that_names_it(broker_url: str) -> None:
    connection = kombu.Connection(broker_url.rpartition("/")[0] + "/no-such-vhost")
    with connection, pytest.raises(NotAllowed, match="vhost no-such-vhost not found"):
        connection.connect()


def test_a_wrong_password_is_not_retried_for_ever(broker_url: str) -> None:
    connection = kombu.Connection(broker_url.replace("guest:guest@", "guest:wrong@"))
    with connection, pytest.raises(AccessRefused, match="Login was refused"):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_a_missing_queue_is_not_found_and_the_connection_goes_on(connection: kombu.Connection, name: Name) -> None:
    with pytest.raises(NotFound):
        kombu.Queue(name("missing"))(connection.channel()).get()
    assert kombu.Queue("", exclusive=True)(connection.channel()).declare().startswith("amq.gen-")


def test_heartbeats_are_checked_without_complaint(broker_url: str) -> None:
    with kombu.Connection(broker_url, heartbeat=1) as connection:
        connection.ensure_connection(max_retries=1)
        deadline = threading.Event()
        timer = threading.Timer(2.5, deadline.set)
        timer.start()
        while not deadline.is_set():
            connection.heartbeat_check(rate=4)
            drain_once(connection)
        timer.join()
        assert connection.connected
        assert connection.get_heartbeat_interval() == 1
