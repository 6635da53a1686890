"""pika's BlockingConnection: reply codes and texts that clients match on, and how connections end."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ConnectionWrongStateError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tests.interop.fixture_types import Connect, Name
from tests.interop.pika_inbox import Inbox, get_one, publish_all


def refusal(action: Callable[[], object]) -> tuple[int, str]:
    """The reply code and text with which the broker closed the channel."""
    with pytest.raises(ChannelClosedByBroker) as closed:
        action()
    return closed.value.reply_code, closed.value.reply_text


def test_a_missing_queue_is_not_found(connection: pika.BlockingConnection, name: Name) -> None:
    queue = name("missing")
    text = f"NOT_FOUND - no queue '{queue}' in vhost '/'"
    for action in (
        lambda: connection.channel().queue_declare(queue, passive=True),
        lambda: connection.channel().basic_get(queue),
        lambda: connection.channel().basic_consume(queue, Inbox()),
        lambda: connection.channel().queue_purge(queue),
        lambda: connection.channel().queue_bind(queue, "amq.direct", "k"),
    ):
        assert refusal(action) == (404, text)
    assert connection.is_open


def test_a_missing_exchange_is_not_found(connection: pika.BlockingConnection, name: Name) -> None:
    exchange = name("missing")
    text = f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"

    def publish() -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, "k", b"x")

    def bind() -> None:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, exchange, "k")

    for action in (
        lambda: connection.channel().exchange_declare(exchange, passive=True),
        lambda: connection.channel().exchange_bind("amq.fanout", exchange),
        publish,
        bind,
    ):
        assert refusal(action) == (404, text)


def test_a_redeclare_with_other_properties_is_a_precondition_failure(
    connection: pika.BlockingConnection, name: Name
) -> None:
    queue, exchange = name(), name("exchange")
    channel = connection.channel()
    ttl = {"x-message-ttl": 1000}
    channel.queue_declare(queue, exclusive=True, arguments=ttl)
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    channel.queue_bind(queue, exchange, "k")
    assert refusal(
        lambda: connection.channel().queue_declare(queue, exclusive=True, auto_delete=True, arguments=ttl)
    ) == (
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{queue}' in vhost '/': "
        "received 'true' but current is 'false'",
    )
    assert refusal(
        lambda: connection.channel().queue_declare(queue, exclusive=True, arguments={"x-message-ttl": 2000})
    ) == (
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{queue}' in vhost '/': "
        "received '2000' but current is '1000'",
    )
    assert refusal(lambda: connection.channel().queue_declare(queue, exclusive=True)) == (
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{queue}' in vhost '/': "
        "received none but current is the value '1000' of type 'signedint'",
    )
    assert refusal(lambda: connection.channel().exchange_declare(exchange, "fanout", auto_delete=True)) == (
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{exchange}' in vhost '/': "
        "received 'fanout' but current is 'direct'",
    )


def test_a_durable_queue_redeclared_as_transient_is_a_precondition_failure(
    channel: BlockingChannel, connect: Connect, name: Name
) -> None:
    queue = name()
    channel.queue_declare(queue, durable=True)
    assert refusal(lambda: connect().channel().queue_declare(queue)) == (
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/': "
        "received 'false' but current is 'true'",
    )
    channel.queue_delete(queue)


def test_an_exclusive_queue_may_be_redeclared_durable_because_exclusive_queues_never_are(
    channel: BlockingChannel, name: Name
) -> None:
    queue = name()
    channel.queue_declare(queue, exclusive=True)
    assert channel.queue_declare(queue, exclusive=True, durable=True).method.queue == queue


def test_an_exclusive_queue_of_another_connection_is_locked(connect: Connect, name: Name) -> None:
    queue = name()
    connect().channel().queue_declare(queue, exclusive=True)
    other = connect()
    for action in (
        lambda: other.channel().queue_declare(queue, exclusive=True),
        lambda: other.channel().queue_declare(queue, passive=True),
        lambda: other.channel().basic_get(queue),
        lambda: other.channel().basic_consume(queue, Inbox()),
        lambda: other.channel().queue_delete(queue),
        lambda: other.channel().queue_purge(queue),
    ):
        code, text = refusal(action)
        assert code == 405
        assert text.startswith(
            f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'"
        )


def test_reserved_names_are_refused(connection: pika.BlockingConnection) -> None:
    assert refusal(lambda: connection.channel().queue_declare("amq.mine")) == (
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    )
    assert refusal(lambda: connection.channel().exchange_declare("amq.mine", "direct")) == (
        403,
        "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    )


def test_the_default_exchange_cannot_be_bound_declared_or_deleted(
    connection: pika.BlockingConnection,
) -> None:
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    queue = connection.channel().queue_declare("", exclusive=True).method.queue
    for action in (
        lambda: connection.channel().queue_bind(queue, "", "k"),
        lambda: connection.channel().queue_unbind(queue, "", "k"),
        lambda: connection.channel().exchange_delete(""),
    ):
        assert refusal(action) == (403, text)


def test_an_exclusive_consumer_keeps_others_out(connection: pika.BlockingConnection, name: Name) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, exclusive=True)
    channel.basic_consume(queue, Inbox(), exclusive=True)
    code, text = refusal(lambda: connection.channel().basic_consume(queue, Inbox()))
    assert (code, text) == (403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use")
    shared = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_consume(shared, Inbox())
    assert refusal(lambda: connection.channel().basic_consume(shared, Inbox(), exclusive=True))[0] == 403


def test_delete_if_unused_and_if_empty_are_precondition_failures(
    connection: pika.BlockingConnection, name: Name
) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, exclusive=True)
    publish_all(channel, queue, b"x")
    method, _, _ = get_one(channel, queue)
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert refusal(lambda: connection.channel().queue_delete(queue, if_empty=True)) == (
        406,
        f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty",
    )
    channel.basic_consume(queue, Inbox())
    assert refusal(lambda: connection.channel().queue_delete(queue, if_unused=True)) == (
        406,
        f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use",
    )
    exchange = name("exchange")
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channel.queue_bind(queue, exchange)
    assert refusal(lambda: connection.channel().exchange_delete(exchange, if_unused=True)) == (
        406,
        f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use",
    )


def test_an_unknown_delivery_tag_and_a_double_ack_close_the_channel(
    connection: pika.BlockingConnection,
) -> None:
    channel = connection.channel()
    channel.basic_ack(99)
    answer = refusal(lambda: channel.queue_declare("", exclusive=True))
    assert answer == (406, "PRECONDITION_FAILED - unknown delivery tag 99")
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"x")
    get_one(channel, queue)
    channel.basic_ack(1)
    channel.basic_ack(1)
    answer = refusal(lambda: channel.queue_declare(queue, passive=True))
    assert answer == (406, "PRECONDITION_FAILED - unknown delivery tag 1")


def test_ack_all_with_nothing_unacked_is_legal(channel: BlockingChannel) -> None:
    channel.basic_ack(0, multiple=True)
    assert channel.queue_declare("", exclusive=True).method.queue


def test_a_wrong_x_match_is_a_precondition_failure(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    code, _ = refusal(lambda: channel.queue_bind(queue, "amq.headers", "", {"x-match": "some"}))
    assert code == 406


def test_a_bad_expiration_is_a_precondition_failure(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"x", pika.BasicProperties(expiration="soon"))
    code, text = refusal(lambda: channel.queue_declare(queue, passive=True))
    assert code == 406
    assert text.startswith("PRECONDITION_FAILED - invalid expiration 'soon'")


def test_a_consumer_priority_that_is_no_number_is_a_precondition_failure(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    code, text = refusal(lambda: channel.basic_consume(queue, Inbox(), arguments={"x-priority": "high"}))
    assert code == 406
    assert text.startswith("PRECONDITION_FAILED - invalid arg 'x-priority'")


def test_a_cc_header_that_is_no_array_is_a_precondition_failure(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"", pika.BasicProperties(headers={"CC": "one"}))
    code, _ = refusal(lambda: channel.queue_declare(queue, passive=True))
    assert code == 406


def test_direct_reply_to_is_consumed_without_acks_and_published_to_only_with_a_consumer(
    connection: pika.BlockingConnection, name: Name
) -> None:
    code, text = refusal(lambda: connection.channel().basic_consume("amq.rabbitmq.reply-to", Inbox()))
    assert (code, text) == (406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")
    channel = connection.channel()
    channel.basic_publish("", name(), b"", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    code, text = refusal(lambda: channel.queue_declare("", exclusive=True))
    assert (code, text) == (406, "PRECONDITION_FAILED - fast reply consumer does not exist")


def test_an_unknown_exchange_type_closes_the_connection_with_command_invalid(connect: Connect, name: Name) -> None:
    connection = connect()
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.channel().exchange_declare(name("exchange"), "no-such-type")
    assert closed.value.reply_code == 503
    assert closed.value.reply_text == "COMMAND_INVALID - unknown exchange type 'no-such-type'"
    assert connection.is_closed
    assert connect().channel().is_open


def test_a_reused_consumer_tag_closes_the_connection_with_not_allowed(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_consume(queue, Inbox(), consumer_tag="mine")
    channel._impl._send_method(pika.spec.Basic.Consume(queue=queue, consumer_tag="mine"))
    with pytest.raises(ConnectionClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 530
    assert closed.value.reply_text == "NOT_ALLOWED - attempt to reuse consumer tag 'mine'"


def test_a_prefetch_by_size_is_not_implemented(connect: Connect) -> None:
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connect().channel().basic_qos(prefetch_size=1000)
    assert closed.value.reply_code == 540


def test_a_wrong_password_is_a_probable_authentication_error(connect: Connect) -> None:
    with pytest.raises(ProbableAuthenticationError) as refused:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
    assert "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN" in str(refused.value)


def test_an_unknown_user_is_a_probable_authentication_error(connect: Connect) -> None:
    with pytest.raises(ProbableAuthenticationError):
        connect(credentials=pika.PlainCredentials("nobody", "guest"))


def test_an_unknown_vhost_is_a_probable_access_denied_error(connect: Connect) -> None:
    with pytest.raises(ProbableAccessDeniedError) as refused:
        connect(virtual_host="no-such-vhost")
    assert "NOT_ALLOWED" in str(refused.value)
    assert "vhost no-such-vhost not found" in str(refused.value)


def test_the_channel_limit_of_the_handshake_is_respected(connect: Connect) -> None:
    connection = connect(channel_max=5)
    channels = [connection.channel() for _ in range(5)]
    with pytest.raises(pika.exceptions.NoFreeChannels):
        connection.channel()
    channels[0].close()
    assert connection.channel().is_open


def test_a_closed_connection_says_so(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    connection.close(200, "done")
    assert connection.is_closed
    assert channel.is_closed
    with pytest.raises(ConnectionWrongStateError):
        connection.channel()


def test_a_closed_channel_number_can_be_used_again(connection: pika.BlockingConnection) -> None:
    for _ in range(3):
        channel = connection.channel(channel_number=7)
        queue = channel.queue_declare("", exclusive=True).method.queue
        publish_all(channel, queue, b"x")
        assert get_one(channel, queue)[0].delivery_tag == 1
        channel.close()


def test_update_secret_is_answered_and_the_connection_goes_on(connection: pika.BlockingConnection) -> None:
    connection.update_secret("guest", "rotation")
    assert connection.channel().queue_declare("", exclusive=True).method.queue
