"""pika's BlockingConnection: queues, deliveries, acknowledgements, prefetch, consumers."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.deadline import wait_until
from tests.interop.fixture_types import Connect, Name
from tests.interop.pika_inbox import Inbox, get_one, publish_all, ready_count, wait_for_ready


def test_the_server_announces_what_pika_asks_for(connection: pika.BlockingConnection) -> None:
    assert connection.basic_nack_supported
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported
    assert connection.publisher_confirms_supported


def test_get_on_an_empty_queue_answers_empty(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    assert channel.basic_get(queue) == (None, None, None)


def test_get_tells_how_many_messages_remain(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"1", b"2", b"3")
    wait_for_ready(channel, queue, 3)
    remaining = [channel.basic_get(queue, auto_ack=True)[0].message_count for _ in range(3)]
    assert remaining == [2, 1, 0]


def test_server_named_queues_have_distinct_names_in_the_amq_gen_space(channel: BlockingChannel) -> None:
    first = channel.queue_declare("", exclusive=True).method.queue
    second = channel.queue_declare("", exclusive=True).method.queue
    assert first != second
    assert first.startswith("amq.gen-")
    assert second.startswith("amq.gen-")


def test_a_passive_declare_counts_messages_and_consumers(channel: BlockingChannel, name: Name) -> None:
    queue = name()
    channel.queue_declare(queue, exclusive=True)
    channel.confirm_delivery()
    publish_all(channel, queue, b"a", b"b")
    answer = channel.queue_declare(queue, passive=True).method
    assert (answer.queue, answer.message_count, answer.consumer_count) == (queue, 2, 0)
    channel.basic_consume(queue, Inbox())
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1


def test_messages_arrive_in_the_order_of_publishing(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    bodies = [b"%d" % i for i in range(500)]
    publish_all(channel, queue, *bodies)
    inbox = Inbox()
    channel.basic_consume(queue, inbox, auto_ack=True)
    inbox.wait_for(channel, 500)
    assert inbox.bodies == bodies
    assert inbox.tags == list(range(1, 501))


def test_acked_messages_are_gone_and_unacked_ones_come_back_after_the_channel_closes(
    connection: pika.BlockingConnection, name: Name
) -> None:
    queue = name()
    first = connection.channel()
    first.queue_declare(queue, exclusive=True)
    publish_all(first, queue, b"1", b"2", b"3", b"4")
    inbox = Inbox()
    first.basic_consume(queue, inbox)
    inbox.wait_for(first, 4)
    first.basic_ack(2, multiple=True)
    first.close()
    second = connection.channel()
    wait_for_ready(second, queue, 2)
    back = [second.basic_get(queue, auto_ack=True) for _ in range(2)]
    assert [(m.redelivered, b) for m, _, b in back] == [(True, b"3"), (True, b"4")]


def test_unacked_messages_come_back_after_the_connection_closes(connect: Connect, name: Name) -> None:
    queue = name()
    lost = connect()
    channel = lost.channel()
    channel.queue_declare(queue)
    publish_all(channel, queue, b"x", b"y")
    get_one(channel, queue)
    lost.close()
    channel = connect().channel()
    wait_for_ready(channel, queue, 2)
    found = [channel.basic_get(queue, auto_ack=True) for _ in range(2)]
    assert [(m.redelivered, b) for m, _, b in found] == [(True, b"x"), (False, b"y")]
    channel.queue_delete(queue)


def test_a_requeued_message_returns_to_its_original_position(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"1", b"2", b"3", b"4")
    taken = [get_one(channel, queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(taken[1], requeue=True)
    channel.basic_reject(taken[0], requeue=True)
    channel.basic_nack(taken[2], requeue=True)
    wait_for_ready(channel, queue, 4)
    back = [channel.basic_get(queue, auto_ack=True) for _ in range(4)]
    assert [b for _, _, b in back] == [b"1", b"2", b"3", b"4"]
    assert [m.redelivered for m, _, _ in back] == [True, True, True, False]


def test_nack_multiple_requeues_everything_up_to_the_tag(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"1", b"2", b"3")
    tags = [get_one(channel, queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[1], multiple=True, requeue=True)
    wait_for_ready(channel, queue, 2)
    channel.basic_nack(0, multiple=True, requeue=True)
    wait_for_ready(channel, queue, 3)


def test_reject_without_requeue_drops_the_message(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"bad", b"good")
    channel.basic_reject(get_one(channel, queue)[0].delivery_tag, requeue=False)
    assert get_one(channel, queue, auto_ack=True)[2] == b"good"
    assert ready_count(channel, queue) == 0


def test_a_message_requeued_to_its_own_consumer_is_marked_redelivered(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    inbox = Inbox()
    channel.basic_consume(queue, inbox)
    publish_all(channel, queue, b"again")
    inbox.wait_for(channel, 1)
    channel.basic_reject(inbox.tags[0], requeue=True)
    inbox.wait_for(channel, 2)
    assert inbox.redelivered == [False, True]
    assert inbox.tags == [1, 2]


def test_basic_recover_redelivers_what_is_unacked(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    inbox = Inbox()
    channel.basic_consume(queue, inbox)
    publish_all(channel, queue, b"1", b"2")
    inbox.wait_for(channel, 2)
    channel.basic_recover(requeue=True)
    inbox.wait_for(channel, 4)
    assert inbox.bodies == [b"1", b"2", b"1", b"2"]
    assert inbox.redelivered == [False, False, True, True]


def test_prefetch_limits_each_consumer_of_a_channel_on_its_own(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    publish_all(channel, queue, *[b"%d" % i for i in range(10)])
    channel.basic_qos(prefetch_count=2)
    one, two = Inbox(), Inbox()
    channel.basic_consume(queue, one)
    channel.basic_consume(queue, two)
    one.wait_for(channel, 2)
    two.wait_for(channel, 2)
    assert ready_count(channel, queue) == 6
    assert (len(one), len(two)) == (2, 2)
    channel.basic_ack(one.tags[0])
    one.wait_for(channel, 3)
    assert ready_count(channel, queue) == 5
    assert (len(one), len(two)) == (3, 2)


def test_a_global_prefetch_is_shared_by_the_consumers_of_a_channel(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    publish_all(channel, queue, *[b"%d" % i for i in range(10)])
    channel.basic_qos(prefetch_count=3, global_qos=True)
    one, two = Inbox(), Inbox()
    channel.basic_consume(queue, one)
    channel.basic_consume(queue, two)
    wait_until(
        lambda: len(one) + len(two) == 3,
        "three deliveries",
        lambda: channel.connection.process_data_events(time_limit=0.05),
    )
    assert ready_count(channel, queue) == 7
    channel.basic_ack(0, multiple=True)
    wait_until(
        lambda: len(one) + len(two) == 6,
        "three more deliveries",
        lambda: channel.connection.process_data_events(time_limit=0.05),
    )
    assert ready_count(channel, queue) == 4


def test_an_auto_ack_consumer_ignores_the_prefetch(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, *[b"%d" % i for i in range(20)])
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox()
    channel.basic_consume(queue, inbox, auto_ack=True)
    inbox.wait_for(channel, 20)
    assert inbox.tags == list(range(1, 21))


def test_consumers_of_one_queue_are_served_round_robin(connect: Connect, name: Name) -> None:
    queue = name()
    channels = [connect().channel() for _ in range(3)]
    channels[0].queue_declare(queue, auto_delete=True)
    inboxes = [Inbox(), Inbox(), Inbox()]
    for channel, inbox in zip(channels, inboxes, strict=True):
        channel.basic_consume(queue, inbox, auto_ack=True)
    publisher = connect().channel()
    publisher.confirm_delivery()
    publish_all(publisher, queue, *[b"%d" % i for i in range(30)])
    for channel, inbox in zip(channels, inboxes, strict=True):
        inbox.wait_for(channel, 10)
    assert [len(inbox) for inbox in inboxes] == [10, 10, 10]
    assert sorted(int(b) for inbox in inboxes for b in inbox.bodies) == list(range(30))


def test_a_consumer_of_higher_priority_is_served_first_while_it_has_credit(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=3)
    low, high = Inbox(), Inbox()
    channel.basic_consume(queue, low, arguments={"x-priority": -5})
    channel.basic_consume(queue, high, arguments={"x-priority": 10})
    publish_all(channel, queue, *[b"%d" % i for i in range(5)])
    high.wait_for(channel, 3)
    low.wait_for(channel, 2)
    assert high.bodies == [b"0", b"1", b"2"]
    assert low.bodies == [b"3", b"4"]


def test_deleting_a_queue_notifies_its_consumer(connect: Connect, name: Name) -> None:
    queue = name()
    channel = connect().channel()
    channel.queue_declare(queue)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, Inbox())
    connect().channel().queue_delete(queue)
    wait_until(lambda: cancelled, "basic.cancel", lambda: channel.connection.process_data_events(0.05))
    assert cancelled == [tag]
    assert channel.is_open
    assert channel.consumer_tags == []


def test_cancelling_a_consumer_keeps_its_unacked_messages_out_of_the_queue(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"held")
    inbox = Inbox()
    tag = channel.basic_consume(queue, inbox)
    inbox.wait_for(channel, 1)
    channel.basic_cancel(tag)
    assert ready_count(channel, queue) == 0
    channel.basic_nack(inbox.tags[0], requeue=True)
    assert get_one(channel, queue)[0].redelivered


def test_the_consume_generator_hands_back_what_it_did_not_yield(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"1", b"2", b"3")
    for method, _properties, body in channel.consume(queue, inactivity_timeout=60):
        assert body == b"1"
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()
    wait_for_ready(channel, queue, 2)


def test_an_exclusive_queue_dies_with_its_connection(connect: Connect, name: Name) -> None:
    queue = name()
    owner = connect()
    owner.channel().queue_declare(queue, exclusive=True)
    owner.close()
    other = connect()

    def is_gone() -> bool:
        try:
            other.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return closed.reply_code == 404
        return False

    wait_until(is_gone, "the exclusive queue to be deleted")


def test_an_auto_delete_queue_dies_with_its_last_consumer(channel: BlockingChannel, name: Name) -> None:
    queue = name()
    channel.queue_declare(queue, auto_delete=True)
    first = channel.basic_consume(queue, Inbox())
    second = channel.basic_consume(queue, Inbox())
    channel.basic_cancel(first)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    channel.basic_cancel(second)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 404


def test_purge_answers_how_many_ready_messages_it_removed(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    publish_all(channel, queue, b"1", b"2", b"3")
    method, _, _ = get_one(channel, queue)
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_nack(method.delivery_tag, requeue=True)
    wait_for_ready(channel, queue, 1)


def test_delete_answers_how_many_messages_went_with_the_queue(channel: BlockingChannel, name: Name) -> None:
    queue = name()
    channel.queue_declare(queue)
    channel.confirm_delivery()
    publish_all(channel, queue, b"1", b"2")
    assert channel.queue_delete(queue).method.message_count == 2
    assert channel.queue_delete(queue).method.message_count == 0


def test_the_empty_queue_name_means_the_last_declared_queue(channel: BlockingChannel, name: Name) -> None:
    queue = name()
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind("", "amq.direct", routing_key=queue)
    channel.basic_publish("amq.direct", queue, b"found")
    assert get_one(channel, "", auto_ack=True)[2] == b"found"
    assert channel.queue_purge("").method.message_count == 0


def test_client_flow_off_and_on_is_answered(channel: BlockingChannel) -> None:
    assert channel.flow(active=True) is True


def test_several_hundred_channels_of_one_connection_work_at_once(connection: pika.BlockingConnection) -> None:
    channels = [connection.channel() for _ in range(300)]
    queue = channels[0].queue_declare("", exclusive=True).method.queue
    for number, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % number)
    wait_for_ready(channels[0], queue, 300)
    bodies = [int(channel.basic_get(queue, auto_ack=True)[2]) for channel in reversed(channels)]
    assert sorted(bodies) == list(range(300))
    for channel in channels:
        channel.close()
    assert connection.channel().is_open


def test_per_message_expiration_removes_messages_at_the_head(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"short", pika.BasicProperties(expiration="50"))
    channel.basic_publish("", queue, b"none", pika.BasicProperties(expiration="0"))
    channel.basic_publish("", queue, b"stays")
    wait_for_ready(channel, queue, 1)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"stays"


def test_queue_arguments_of_current_clients_are_accepted(channel: BlockingChannel, name: Name) -> None:
    queue = name()
    channel.queue_declare(
        queue,
        exclusive=True,
        arguments={"x-max-priority": 10, "x-message-ttl": 60_000, "x-expires": 60_000, "x-unknown": "kept"},
    )
    channel.basic_publish("", queue, b"p", pika.BasicProperties(priority=7))
    assert get_one(channel, queue, auto_ack=True)[1].priority == 7


def test_a_direct_reply_to_rpc_reaches_the_asking_channel(connect: Connect, name: Name) -> None:
    queue = name("rpc")
    server, client = connect().channel(), connect().channel()
    server.queue_declare(queue, exclusive=True)
    replies = Inbox()
    client.basic_consume("amq.rabbitmq.reply-to", replies, auto_ack=True)
    properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="c1")
    client.basic_publish("", queue, b"question", properties)
    _, asked, body = get_one(server, queue, auto_ack=True)
    assert asked.reply_to.startswith("amq.rabbitmq.reply-to.")
    server.basic_publish("", asked.reply_to, body + b"!", pika.BasicProperties(correlation_id="c1"))
    replies.wait_for(client, 1)
    method, answered, body = replies.deliveries[0]
    assert (body, answered.correlation_id, method.exchange) == (b"question!", "c1", "")
