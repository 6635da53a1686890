"""pika's SelectConnection: callbacks in order, asynchronous confirms and returns, cancel and close."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pika
import pytest
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ConnectionClosedByClient

from tests.interop.fixture_types import Name

Script = Callable[["SelectSession"], Generator[Any, Any, None]]


class SelectSession:
    """Runs a script on a SelectConnection's loop.

    The script is a generator. It yields calls that take a `callback`, and gets back what the callback was
    given; or it yields None, and goes on when `resume` is called. The loop ends with the connection.
    """

    def __init__(self, url: str, script: Script) -> None:
        self.script = script
        self.steps: Generator[Any, Any, None] | None = None
        self.failure: BaseException | None = None
        self.close_reason: BaseException | None = None
        self.channel_close_reason: BaseException | None = None
        self.channel: Channel
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda c: c.channel(on_open_callback=self._begin),
            on_open_error_callback=lambda _c, error: self._end(error),
            on_close_callback=lambda _c, reason: self._end(reason),
        )
        self.connection.ioloop.call_later(20, lambda: self._fail(AssertionError("script timed out")))

    def run(self) -> SelectSession:
        try:
            self.connection.ioloop.start()
        finally:
            self.connection.ioloop.close()
        if self.failure is not None:
            raise self.failure
        return self

    def resume(self, *args: Any) -> None:
        assert self.steps is not None
        try:
            call = self.steps.send(args[0] if len(args) == 1 else args or None)
        except StopIteration:
            if self.connection.is_open:
                self.connection.close()
        except BaseException as error:
            self._fail(error)
        else:
            if call is not None:
                call(callback=self.resume)

    def _begin(self, channel: Channel) -> None:
        self.channel = channel
        channel.add_on_close_callback(lambda _ch, reason: setattr(self, "channel_close_reason", reason))
        self.steps = self.script(self)
        self.resume()

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        if self.connection.is_open:
            self.connection.close()
        else:
            self.connection.ioloop.stop()

    def _end(self, reason: BaseException) -> None:
        self.close_reason = reason
        self.connection.ioloop.stop()


def test_declare_bind_publish_and_consume_answer_their_callbacks(broker_url: str, name: Name) -> None:
    received: list[tuple[str, bytes]] = []

    def script(session: SelectSession) -> Generator[Any, Any, None]:
        channel, exchange = session.channel, name("exchange")
        yield partial(channel.exchange_declare, exchange, "topic", auto_delete=True)
        queue = (yield partial(channel.queue_declare, "", exclusive=True)).method.queue
        yield partial(channel.queue_bind, queue, exchange, "a.*")

        def on_message(_ch: Channel, method: Any, _properties: Any, body: bytes) -> None:
            received.append((method.routing_key, body))
            channel.basic_ack(method.delivery_tag)
            if len(received) == 3:
                session.resume()

        channel.basic_consume(queue, on_message)
        for number in range(3):
            channel.basic_publish(exchange, f"a.{number}", b"%d" % number)
        yield
        answer = yield partial(channel.queue_declare, queue, passive=True)
        assert answer.method.message_count == 0

    session = SelectSession(broker_url, script).run()
    assert received == [("a.0", b"0"), ("a.1", b"1"), ("a.2", b"2")]
    assert isinstance(session.close_reason, ConnectionClosedByClient)


def test_confirms_cover_every_publish_exactly_once_even_when_multiple(broker_url: str) -> None:
    count = 2000
    confirmed: list[int] = []

    def script(session: SelectSession) -> Generator[Any, Any, None]:
        channel = session.channel
        queue = (yield partial(channel.queue_declare, "", exclusive=True)).method.queue
        highest = 0

        def on_confirm(frame: Any) -> None:
            nonlocal highest
            assert frame.method.NAME == "Basic.Ack"
            first = highest + 1 if frame.method.multiple else frame.method.delivery_tag
            confirmed.extend(range(first, frame.method.delivery_tag + 1))
            highest = max(highest, frame.method.delivery_tag)
            if len(confirmed) == count:
                session.resume()

        yield partial(channel.confirm_delivery, on_confirm)
        for _ in range(count):
            channel.basic_publish("", queue, b"x", mandatory=True)
        yield
        assert (yield partial(channel.queue_declare, queue, passive=True)).method.message_count == count

    SelectSession(broker_url, script).run()
    assert sorted(confirmed) == list(range(1, count + 1))


def test_a_return_comes_before_the_ack_of_the_same_publish(broker_url: str, name: Name) -> None:
    log: list[tuple[str, Any]] = []

    def script(session: SelectSession) -> Generator[Any, Any, None]:
        channel = session.channel
        queue = (yield partial(channel.queue_declare, "", exclusive=True)).method.queue

        def on_confirm(frame: Any) -> None:
            log.append((frame.method.NAME, frame.method.delivery_tag))
            if frame.method.delivery_tag == 4:
                session.resume()

        channel.add_on_return_callback(lambda _c, _m, _p, body: log.append(("return", int(body))))
        yield partial(channel.confirm_delivery, on_confirm)
        for number, key in enumerate((queue, name("nowhere"), queue, name("nowhere")), start=1):
            channel.basic_publish("", key, b"%d" % number, mandatory=True)
        yield

    SelectSession(broker_url, script).run()
    returns = [number for kind, number in log if kind == "return"]
    assert returns == [2, 4]
    for number in returns:
        covering = next(i for i, (kind, tag) in enumerate(log) if kind == "Basic.Ack" and tag >= number)
        assert log.index(("return", number)) < covering


def test_a_channel_error_reaches_the_close_callback_and_another_channel_can_be_opened(
    broker_url: str, name: Name
) -> None:
    def script(session: SelectSession) -> Generator[Any, Any, None]:
        first = session.channel
        first.add_on_close_callback(lambda _ch, _reason: session.resume())
        first.basic_publish(name("no-exchange"), "k", b"x")
        yield
        second = yield lambda callback: session.connection.channel(on_open_callback=callback)
        assert second.is_open

    session = SelectSession(broker_url, script).run()
    assert isinstance(session.channel_close_reason, ChannelClosedByBroker)
    assert session.channel_close_reason.reply_code == 404


def test_a_connection_error_reaches_the_close_callback(broker_url: str, name: Name) -> None:
    def script(session: SelectSession) -> Generator[Any, Any, None]:
        yield partial(session.channel.exchange_declare, name("exchange"), "no-such-type")

    session = SelectSession(broker_url, script).run()
    assert isinstance(session.close_reason, ConnectionClosedByBroker)
    assert session.close_reason.reply_code == 503


def test_a_cancelled_consumer_gets_nothing_more_and_can_still_ack(broker_url: str) -> None:
    received: list[bytes] = []

    def script(session: SelectSession) -> Generator[Any, Any, None]:
        channel = session.channel
        queue = (yield partial(channel.queue_declare, "", exclusive=True)).method.queue

        def on_message(_ch: Channel, method: Any, _properties: Any, body: bytes) -> None:
            received.append(body)
            if method.delivery_tag == 10:
                session.resume()

        yield partial(channel.basic_qos, prefetch_count=10)
        tag = channel.basic_consume(queue, on_message)
        for number in range(20):
            channel.basic_publish("", queue, b"%d" % number)
        yield
        answer = yield partial(channel.basic_cancel, tag)
        assert answer.method.consumer_tag == tag
        channel.basic_ack(10, multiple=True)
        assert (yield partial(channel.queue_declare, queue, passive=True)).method.message_count == 10

    SelectSession(broker_url, script).run()
    assert received == [b"%d" % number for number in range(10)]


def test_deleting_a_queue_is_answered_and_then_cancels_its_consumer(broker_url: str) -> None:
    cancelled: list[str] = []

    def script(session: SelectSession) -> Generator[Any, Any, None]:
        channel = session.channel
        queue = (yield partial(channel.queue_declare, "", exclusive=True)).method.queue
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        yield partial(channel.basic_consume, queue, lambda *_: None, consumer_tag="watched")
        yield partial(channel.queue_delete, queue)
        assert cancelled == []
        channel.add_on_cancel_callback(lambda _frame: session.resume())
        yield

    SelectSession(broker_url, script).run()
    assert cancelled == ["watched"]


def test_transactions_are_answered(broker_url: str) -> None:
    def script(session: SelectSession) -> Generator[Any, Any, None]:
        channel = session.channel
        queue = (yield partial(channel.queue_declare, "", exclusive=True)).method.queue
        yield channel.tx_select
        channel.basic_publish("", queue, b"no")
        yield channel.tx_rollback
        channel.basic_publish("", queue, b"yes")
        yield channel.tx_commit
        _, method, _, body = yield partial(channel.basic_get, queue, auto_ack=True)
        assert (body, method.message_count) == (b"yes", 0)

    SelectSession(broker_url, script).run()


def test_update_secret_is_answered(broker_url: str) -> None:
    def script(session: SelectSession) -> Generator[Any, Any, None]:
        answer = yield partial(session.connection.update_secret, "guest", "rotation")
        assert answer.method.NAME == "Connection.UpdateSecretOk"

    SelectSession(broker_url, script).run()


def test_a_wrong_password_reaches_the_open_error_callback(broker_url: str) -> None:
    url = broker_url.replace("guest:guest@", "guest:wrong@")

    def script(_session: SelectSession) -> Generator[Any, Any, None]:
        pytest.fail("the connection opened")
        yield

    session = SelectSession(url, script).run()
    assert isinstance(session.close_reason, pika.exceptions.AMQPConnectionError)
