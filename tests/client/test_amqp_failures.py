"""What a session says, and does next, when its broker refuses, is cut off, or is no broker at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.amqp.refused import Refused
from penstock.client.errors import ClientError, Closed, ConnectionLost, NotReserved, SetupMissing
from penstock.config import Config
from penstock.testing import Broker
from penstock.wire import frames, methods
from tests.client.amqp_servers import FakeBroker, FakeConnection, behind_tls
from tests.client.any_driver import FACES, PATIENCE_S, Place, drain, opened
from tests.interop.deadline import wait_until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=FACES)
def place(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Place]:
    with opened(broker.url, request.param) as place:
        yield place


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def cut_when_waiting(broker: Broker, queue: str) -> threading.Thread:
    """Cut all connections as soon as somebody waits for the queue."""

    def has_consumer() -> bool:
        return broker.call(
            lambda server: bool(sum(server.broker.vhosts["/"].queues[queue].consumers.counts().values()))
        )

    def work() -> None:
        wait_until(has_consumer, "somebody waits")
        broker.faults.cut_connections()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


# --- refusals ---------------------------------------------------------------------------------------


def test_a_put_that_is_not_confirmed_raises_and_the_next_one_works(place: Place, broker: Broker) -> None:
    queue = place.queue()
    producer = place.session().producer_for(queue)
    with broker.faults.refused_confirms():
        with pytest.raises(Refused, match="refused the message"):
            producer.put(b"a")
        with pytest.raises(Refused):
            producer.put_many([b"b", b"c"])
    producer.put(b"d")
    assert broker.queue_depth(queue) == 1


def test_a_requeue_whose_copy_is_refused_keeps_the_message_reserved(place: Place, broker: Broker) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"a")
    consumer = session.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    with broker.faults.refused_confirms():
        with pytest.raises(Refused):
            consumer.requeue(message, delay=0.01)
        with pytest.raises(Refused):
            consumer.bury(message)
    consumer.finalize(message, "all the same")
    assert consumer.reserve() is None


def test_a_put_onto_a_queue_that_was_deleted_raises_and_the_next_one_makes_it(place: Place) -> None:
    queue = place.queue()
    producer = place.session().producer_for(queue)
    other = place.session()
    for arguments in ({}, {"delay": 0.02}):
        other.drop_queue(queue)
        with pytest.raises(Refused, match=queue) as refusal:
            producer.put(b"lost", **arguments)
        assert refusal.value.reply_code in (312, 404)
        producer.put(b"kept", **arguments)
        consumer = other.consumer_for(queue)
        assert consumer.reserve(wait=PATIENCE_S).payload == b"kept"
        consumer.close()


def test_a_name_that_the_broker_keeps_for_itself_is_refused(place: Place) -> None:
    session = place.session()
    with pytest.raises(Refused, match="ACCESS_REFUSED") as refusal:
        session.producer_for("amq.mine")
    assert refusal.value.reply_code == 403
    session.producer_for(place.queue()).put(b"the session is none the worse")


def test_a_ladder_that_somebody_else_has_built_otherwise_is_refused(place: Place) -> None:
    session = place.session()
    session.use_queue("penstock.delay.10")
    producer = session.producer_for(place.queue())
    with pytest.raises(Refused, match="PRECONDITION_FAILED"):
        producer.put(b"later", delay=1)
    producer.put(b"now")


def test_a_login_that_is_refused_says_who_and_keeps_the_password(broker: Broker, face: str) -> None:
    url = f"amqp://guest:hunter2@{broker.host}:{broker.port}/"
    with opened(url, face) as place, pytest.raises(SetupMissing, match=r"'guest'.*check the URL") as refusal:
        place.session().use_queue("q")
    assert "hunter2" not in str(refusal.value)


def test_a_vhost_that_is_not_there_is_named(broker: Broker, face: str) -> None:
    url = f"amqp://guest:guest@{broker.host}:{broker.port}/no%20where"
    with opened(url, face) as place, pytest.raises(SetupMissing, match="'no where'"):
        place.session().use_queue("q")


def test_a_broker_with_few_channels_says_so(face: str) -> None:
    with Broker(Config(channels_max=3)) as broker, opened(broker.url, face) as place:
        session = place.session()
        consumers = [session.consumer_for("q") for _ in range(3)]
        assert [consumer.reserve() for consumer in consumers[:2]] == [None, None]
        with pytest.raises(ClientError, match="allows 3 channels"):
            consumers[2].reserve()
        consumers[0].close()
        assert consumers[2].reserve() is None


# --- lost connections -------------------------------------------------------------------------------


def test_a_connection_that_is_cut_ends_the_wait_and_the_next_call_connects(place: Place, broker: Broker) -> None:
    queue = place.queue()
    session = place.session()
    consumer, producer = session.consumer_for(queue), session.producer_for(queue)
    cutter = cut_when_waiting(broker, queue)
    with pytest.raises(ConnectionLost, match=f"{broker.port}"):
        consumer.reserve(wait=PATIENCE_S)
    cutter.join()
    producer.put(b"after all")
    assert consumer.reserve(wait=PATIENCE_S).payload == b"after all"


def test_a_consumer_that_is_sent_messages_ahead_is_one_again_after_a_cut(place: Place, broker: Broker) -> None:
    queue = place.queue()
    session = place.session()
    consumer = session.consumer_for(queue, prefetch=3)
    cutter = cut_when_waiting(broker, queue)
    with pytest.raises(ConnectionLost):
        consumer.reserve(wait=PATIENCE_S)
    cutter.join()
    assert consumer.reserve(wait=0.01) is None
    place.session().producer_for(queue).put_many(["a", "b"])
    assert [message.text for message in drain(consumer, 2)] == ["a", "b"]


def test_what_was_reserved_before_a_cut_is_not_ours_any_more(place: Place, broker: Broker) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"a")
    consumer = session.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    broker.faults.cut_connections()
    with pytest.raises(ConnectionLost):
        consumer.reserve(wait=PATIENCE_S)
    with pytest.raises(NotReserved):
        consumer.finalize(message)
    again = consumer.reserve(wait=PATIENCE_S)
    assert (again.id, again.deliveries) == (message.id, 2)
    consumer.finalize(again)


def test_a_put_whose_confirm_is_cut_off_raises(place: Place, broker: Broker) -> None:
    queue = place.queue()
    session = place.session()
    producer = session.producer_for(queue)
    producer.put(b"first")
    with broker.faults.delayed_confirms(60):

        def cut() -> None:
            wait_until(lambda: broker.queue_depth(queue) == 2, "the message is there")
            broker.faults.cut_connections()

        cutter = threading.Thread(target=cut)
        cutter.start()
        with pytest.raises(ConnectionLost):
            producer.put(b"second")
        cutter.join()
    producer.put(b"third")
    assert broker.queue_depth(queue) == 3


def test_a_session_lives_on_when_its_broker_was_killed_and_started(tmp_path: Path, face: str) -> None:
    with Broker(data_dir=tmp_path) as broker, opened(broker.url, face) as place:
        session = place.session()
        producer, consumer = session.producer_for("q"), session.consumer_for("q")
        producer.put(b"kept")
        producer.put(b"kept and late", delay=0.5)
        broker.kill()
        with pytest.raises(ConnectionLost):
            consumer.reserve(wait=PATIENCE_S)
        with pytest.raises(ConnectionLost, match="cannot connect"):
            consumer.reserve()
        broker.start()
        assert [message.text for message in drain(consumer, 2)] == ["kept", "kept and late"]
        producer.put(b"new")
        assert consumer.reserve(wait=PATIENCE_S).payload == b"new"


def test_a_broker_that_closes_says_why(place: Place, broker: Broker) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    assert consumer.reserve() is None
    broker.stop()
    with pytest.raises(ConnectionLost, match="CONNECTION_FORCED"):
        consumer.reserve(wait=PATIENCE_S)
    broker.start()


def test_what_was_closed_says_so_also_when_the_broker_is_gone(place: Place, broker: Broker) -> None:
    session = place.session()
    queue = place.queue()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    consumer.reserve()
    broker.stop()
    for one in (producer, consumer, session, consumer):
        one.close()
    for call in (lambda: producer.put(b"x"), consumer.reserve, lambda: session.stats(queue)):
        with pytest.raises(Closed):
            call()
    broker.start()


@pytest.mark.parametrize("is_together", [True, False])
def test_a_channel_that_the_broker_closes_takes_its_reservations_with_it(face: str, is_together: bool) -> None:
    def impatient(connection: FakeConnection) -> None:
        connection.welcome()
        channel, _ = connection.serve_until(methods.BasicGet)
        connection.say(channel, methods.BasicGetOk(1, False, "", "q", 0))
        connection.send(frames.header_frame(channel, 0, b"\0\0"))
        if not is_together:
            connection.hear(methods.BasicGet)
        connection.say(channel, methods.ChannelClose(406, "PRECONDITION_FAILED - delivery acknowledgement timed out"))
        connection.hear(methods.ChannelCloseOk)
        channel, _ = connection.serve_until(methods.BasicGet)
        connection.say(channel, methods.BasicGetOk(1, True, "", "q", 0))
        connection.send(frames.header_frame(channel, 0, b"\0\0"))
        connection.serve_until(methods.BasicAck)
        connection.serve_until(methods.ConnectionCloseOk)

    with FakeBroker(impatient) as fake, opened(f"{fake.url}?timeout=60", face) as place:
        consumer = place.session().consumer_for("q")
        message = consumer.reserve()
        with pytest.raises(ConnectionLost, match="timed out"):
            consumer.reserve(wait=PATIENCE_S)
        with pytest.raises(NotReserved):
            consumer.finalize(message)
        again = consumer.reserve()
        assert again.deliveries == 2
        # The same tag on another channel is another delivery.
        assert again.id != message.id
        consumer.finalize(again)


def test_waiting_for_several_ends_when_the_connection_does(place: Place, broker: Broker) -> None:
    session = place.session()
    queues = [place.queue() for _ in range(2)]
    consumers = [session.consumer_for(queue) for queue in queues]
    cutter = cut_when_waiting(broker, queues[1])
    with pytest.raises(ConnectionLost):
        session.wait_any(consumers, PATIENCE_S)
    cutter.join()
    session.wait_any(consumers, 0.01)
    place.session().drop_queue(queues[0])
    session.wait_any(consumers, 0.01)
    session.producer_for(queues[0]).put(b"x")
    session.wait_any(consumers, PATIENCE_S)
    assert consumers[0].reserve().payload == b"x"


def test_the_smallest_frames_that_amqp_allows_will_do(face: str) -> None:
    with Broker(Config(frame_bytes_max=4096)) as broker, opened(broker.url, face) as place:
        session = place.session()
        producer, consumer = session.producer_for("q"), session.consumer_for("q")
        body = bytes(range(256)) * 100
        producer.put(body, delay=0.05)
        message = consumer.reserve(wait=PATIENCE_S)
        assert message.payload == body
        consumer.requeue(message, delay=0.01, note="n" * 5000)
        again = consumer.reserve(wait=PATIENCE_S)
        assert (again.payload, again.note) == (body, "n" * 1024)
        producer.put(b"much later", delay=3650 * 86_400)


# --- heartbeats -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_waits_long_sends_heartbeats(face: str) -> None:
    with Broker(Config(heartbeat_s=1)) as broker, opened(f"{broker.url}?heartbeat=1", face) as place:
        session = place.session()
        consumer = session.consumer_for("q")
        # More than the two intervals after which either side gives up.
        assert consumer.reserve(wait=3.2) is None
        session.producer_for("q").put(b"still there")
        assert consumer.reserve(wait=PATIENCE_S).payload == b"still there"


@pytest.mark.slow
def test_who_asks_for_no_heartbeats_may_be_busy_elsewhere(face: str) -> None:
    with Broker(Config(heartbeat_s=1)) as broker, opened(broker.url, face) as place:
        busy, other = place.session(), place.session()
        other.producer_for("q").put(b"work")
        consumer = busy.consumer_for("q")
        message = consumer.reserve(wait=PATIENCE_S)
        assert other.consumer_for("other").reserve(wait=3.2) is None
        consumer.finalize(message)
        assert consumer.reserve() is None


@pytest.mark.slow
def test_who_asks_for_heartbeats_and_is_busy_elsewhere_is_cut_off(face: str) -> None:
    with Broker() as broker, opened(f"{broker.url}?heartbeat=1", face) as place:
        busy, other = place.session(), place.session()
        other.producer_for("q").put(b"work")
        consumer = busy.consumer_for("q")
        message = consumer.reserve(wait=PATIENCE_S)
        # The broker gives the message to somebody who is there.
        assert other.consumer_for("q").reserve(wait=PATIENCE_S).id == message.id
        with pytest.raises(ConnectionLost):
            consumer.finalize(message)


@pytest.mark.slow
def test_a_broker_that_falls_silent_is_noticed(face: str) -> None:
    def silent(connection: FakeConnection) -> None:
        connection.welcome()
        connection.serve_until(methods.ConnectionClose)

    with FakeBroker(silent) as fake, opened(f"{fake.url}?heartbeat=1", face) as place:
        consumer = place.session().consumer_for("q")
        with pytest.raises(ConnectionLost, match="silent for two heartbeats"):
            consumer.reserve(wait=PATIENCE_S)


# --- no broker at all -------------------------------------------------------------------------------


def hang_up(connection: FakeConnection) -> None:
    connection.socket.close()


def say_nothing(connection: FakeConnection) -> None:
    connection.hear_nothing_more()


def speak_http(connection: FakeConnection) -> None:
    connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.hear_nothing_more()


def want_another_version(connection: FakeConnection) -> None:
    connection.send(b"AMQP\x03\x01\x00\x00")
    connection.hear_nothing_more()


def take_no_password(connection: FakeConnection) -> None:
    connection.say(0, methods.ConnectionStart(0, 9, {}, b"EXTERNAL", b"en_US"))
    connection.hear_nothing_more()


def send_endless_frames(connection: FakeConnection) -> None:
    connection.send(b"\x01\x00\x00\xff\xff\xff\xff")
    while True:
        connection.send(bytes(65_536))


def send_empty_frames(connection: FakeConnection) -> None:
    while True:
        connection.send(frames.HEARTBEAT_FRAME * 1000)


NO_BROKERS = [
    (hang_up, "no connection"),
    (say_nothing, "within 0.3 s"),
    (speak_http, "does not speak AMQP"),
    (want_another_version, "another version"),
    (take_no_password, "PLAIN"),
    (send_endless_frames, "a frame of 4294967295 bytes"),
    (send_empty_frames, "within 0.3 s"),
]


@pytest.mark.parametrize(("script", "words"), NO_BROKERS, ids=lambda value: getattr(value, "__name__", None))
def test_what_is_no_broker_is_told_from_one(script: Any, words: str, face: str) -> None:
    # Only those who wait for the end of it have a short one.
    timeout_s = 0.3 if "0.3" in words else 60
    with FakeBroker(script) as fake, opened(f"{fake.url}?timeout={timeout_s}", face) as place:
        with pytest.raises((ConnectionLost, SetupMissing), match=words) as failure:
            place.session().use_queue("q")
        assert "secret" not in str(failure.value)


def test_nobody_there_is_a_connection_lost(face: str) -> None:
    with FakeBroker(hang_up) as fake:
        pass
    with opened(fake.url, face) as place, pytest.raises(ConnectionLost, match="cannot connect"):
        place.session().use_queue("q")


def test_a_broker_that_does_not_confirm_is_given_up(face: str) -> None:
    def forgetful(connection: FakeConnection) -> None:
        connection.welcome()
        connection.serve_until(methods.BasicPublish)
        connection.say(0, methods.ConnectionBlocked("low on memory"))
        connection.hear_nothing_more()

    with FakeBroker(forgetful) as fake, opened(f"{fake.url}?timeout=2", face) as place:
        producer = place.session().producer_for("q")
        with pytest.raises(ConnectionLost, match=r"no answer within 2 s.*low on memory"):
            producer.put(b"x")


def test_a_broker_that_reads_no_more_is_given_up(face: str) -> None:
    done = threading.Event()

    def deaf(connection: FakeConnection) -> None:
        connection.welcome()
        connection.serve_until(methods.ConfirmSelect)
        connection.say(2, methods.ConfirmSelectOk())
        done.wait(PATIENCE_S)

    with FakeBroker(deaf) as fake, opened(f"{fake.url}?timeout=2", face) as place:
        producer = place.session().producer_for("q")
        with pytest.raises(ConnectionLost, match="takes nothing any more"):
            producer.put(bytes(50_000_000))
        done.set()


def test_a_queue_that_is_never_there_though_it_was_made_is_given_up(face: str) -> None:
    def contradictory(connection: FakeConnection) -> None:
        connection.welcome()
        while True:
            channel, _ = connection.serve_until(methods.BasicGet)
            connection.say(channel, methods.ChannelClose(404, "NOT_FOUND - no queue", 60, 70))

    with FakeBroker(contradictory) as fake, opened(fake.url, face) as place:
        consumer = place.session().consumer_for("q")
        with pytest.raises(Refused, match="NOT_FOUND"):
            consumer.reserve(wait=PATIENCE_S)


def test_a_broker_that_sends_more_than_was_asked_for_is_left(face: str) -> None:
    def generous(connection: FakeConnection) -> None:
        connection.welcome()
        channel, method = connection.serve_until(methods.BasicConsume)
        assert isinstance(method, methods.BasicConsume)
        connection.say(channel, methods.BasicConsumeOk(method.consumer_tag))
        for tag in range(1, 4):
            connection.say(channel, methods.BasicDeliver(method.consumer_tag, tag, False, "", "q"))
            connection.send(frames.header_frame(channel, 0, b"\0\0"))
        connection.hear_nothing_more()

    with FakeBroker(generous) as fake, opened(fake.url, face) as place:
        consumer = place.session().consumer_for("q")
        with pytest.raises(ConnectionLost, match="more than the 1 messages"):
            consumer.reserve(wait=PATIENCE_S)


# --- TLS --------------------------------------------------------------------------------------------


def test_a_session_over_tls(broker: Broker, tmp_path: Path, face: str) -> None:
    with behind_tls(broker, tmp_path) as (port, certificate):
        url = f"amqps://guest:guest@localhost:{port}/?cacertfile={certificate}"
        with opened(url, face) as place:
            session = place.session()
            body = bytes(range(256)) * 4000
            session.producer_for("q").put(body)
            consumer = session.consumer_for("q")
            assert consumer.reserve(wait=PATIENCE_S).payload == body
            assert consumer.reserve(wait=0.01) is None


def test_a_certificate_that_nobody_vouches_for_is_refused(broker: Broker, tmp_path: Path, face: str) -> None:
    with (
        behind_tls(broker, tmp_path) as (port, _),
        opened(f"amqps://localhost:{port}/", face) as place,
        pytest.raises(ConnectionLost, match=r"(?i)certificate"),
    ):
        place.session().use_queue("q")


def test_a_broker_without_tls_is_not_spoken_to_in_the_clear(broker: Broker, face: str) -> None:
    with opened(f"amqps://{broker.host}:{broker.port}/", face) as place, pytest.raises(ConnectionLost, match="TLS"):
        place.session().use_queue("q")


def test_certificates_that_are_not_there_are_named(broker: Broker, face: str) -> None:
    url = f"amqps://{broker.host}:{broker.port}/?cacertfile=nowhere.pem"
    with opened(url, face) as place, pytest.raises(ConnectionLost, match="No such file"):
        place.session().use_queue("q")
