"""Reading: bytes apart into frames, and the two kinds of frames that come in thousands handled at once.

The loop in `_parse` is the hottest code of the broker. It tries, in this order: the same publish once more (a run), a
publish with its whole content, a run of acknowledgements; any other frame goes to `dispatch`. What is unusual in any
way is left to `dispatch` too, where every fault has its error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.vhost.route_memory import RouteMemory
from penstock.errors import AmqpError, ChannelException, frame_error
from penstock.message import Entry, Incoming, unlike
from penstock.server.channel.channel import Channel
from penstock.server.channel.publishing import Prepared, PublishRoute
from penstock.server.channel.unacked import unknown_tag
from penstock.server.connection import dispatch
from penstock.server.connection.dispatch import describe
from penstock.server.settling.transaction import ACK
from penstock.wire import frames, methods
from penstock.wire.content import scan_run
from penstock.wire.mixed_run import scan_mixed

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

PUBLISH_ID = b"\x00\x3c\x00\x28"
# A basic.ack frame behind its channel number, up to the delivery tag.
ACK_START = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
ACK_FRAME_BYTES = 21
ACKS_AT_ONCE = 512
# Frames that are handled between two looks at the clock; behind a run there is one.
LOOK_AFTER = 16


class HotPublish:
    """The last publish, in the form in which its repetition is recognised."""

    __slots__ = ("body_size", "prefix", "prepared", "route")

    def __init__(self, prefix: bytes, body_size: int, route: PublishRoute, prepared: Prepared) -> None:
        # Method frame, header frame and the head of the body frame.
        self.prefix = prefix
        self.body_size = body_size
        self.route = route
        self.prepared = prepared


class FrameReader(RouteMemory):
    __deletable__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The beginning of a frame that is not complete yet.
        self._rest = b""
        # What publish frames mean, by their bytes.
        self._routes: dict[bytes, PublishRoute] = {}
        self._hot: HotPublish | None = None

    def feed(self, data: bytes) -> None:
        """Handle what has arrived; raises AmqpError for what closes the connection."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self._connection.parsing_stopped:
            self._rest = data
            return
        pos = self._parse(data)
        if pos < len(data):
            self._rest = data[pos:]

    @property
    def rest_bytes(self) -> int:
        """What has arrived and was not handled yet."""
        return len(self._rest)

    def forget_channel(self, channel: Channel) -> None:
        """A channel is gone: nothing remembered may lead to it."""
        self._hot = None
        for frame in [frame for frame, route in self._routes.items() if route.channel is channel]:
            del self._routes[frame]

    def forget_routes(self) -> None:
        self._routes.clear()
        self._hot = None

    def clear(self) -> None:
        self._rest = b""
        self.forget_routes()

    def close(self) -> None:
        """The connection is gone. Nothing here leads to it or to queues any more."""
        self.clear()
        if self._connection.opened:
            self._connection.vhost.forget_memory(self)
        del self._connection

    def _parse(self, data: bytes) -> int:
        """Handle every whole frame; return where the rest begins."""
        connection = self._connection
        pos = 0
        end = len(data)
        if not connection.opened:
            pos = connection.handshake.read_header(data)
            if pos < 0:
                return 0
        clock = connection.broker.clock
        until_s = clock.monotonic_s() + limits.PARSE_TURN_S
        left = LOOK_AFTER
        while end - pos >= limits.FRAME_HEAD_BYTES:
            left -= 1
            if left == 0:
                left = LOOK_AFTER
                if clock.monotonic_s() >= until_s:
                    connection.yield_parsing()
                    break
            hot = self._hot
            if hot is not None and data.startswith(hot.prefix, pos):
                pos_after = self._publish_run(hot, data, pos)
                if pos_after != pos:
                    pos = pos_after
                    left = 1
                    continue
            kind = data[pos]
            size = int.from_bytes(data[pos + 3 : pos + 7], "big")
            stop = pos + size + limits.FRAME_OVERHEAD_BYTES
            if size > connection.frame_bytes_max:
                # RabbitMQ's rule and numbers: the whole frame may be 8 octets larger than negotiated.
                largest = connection.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
                raise frame_error(f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{largest}}}")
            if stop > end:
                break
            if data[stop - 1] != frames.END:
                marker = data[stop - 1]
                raise frame_error(f"{describe(kind, data[pos + 7 : stop - 1])}: {{invalid_frame_end_marker,{marker}}}")
            if kind == frames.METHOD and connection.opened and not connection.closing:
                if data.startswith(PUBLISH_ID, pos + 7):
                    pos = self._publish(data, pos, stop, end)
                    if connection.parsing_stopped:
                        break
                    continue
                if data.startswith(ACK_START, pos + 3):
                    pos = self._acks(data, pos, end)
                    left = 1
                    if connection.parsing_stopped:
                        break
                    continue
            dispatch.on_frame(connection, kind, data[pos + 1] << 8 | data[pos + 2], data, pos + 7, stop - 1)
            pos = stop
            # It may have served consumers with thousands of messages (`Queue.offer`).
            left = 1
            if connection.parsing_stopped and not connection.definition_answers.may_be_followed(data, pos):
                break
        return pos

    def _publish_run(self, hot: HotPublish, data: bytes, pos: int) -> int:
        """The same publish again, perhaps many times: only the bodies differ."""
        bodies: list[bytes] = []
        connection = self._connection
        route = hot.route
        channel = route.channel
        if channel.closing or connection.closing or channel.in_content():
            self._hot = None
            return pos
        stop = scan_run(data, pos, hot.prefix, hot.body_size, bodies)
        if not bodies:
            return pos
        try:
            prepared = hot.prepared
            if prepared.version != connection.vhost.topology_version:
                hot.prepared = prepared = route.prepare(prepared.properties)
            channel.publisher.publish(route, prepared, Incoming(prepared.envelope, bodies, hot.body_size))
        except ChannelException as error:
            connection.close_channel(channel, error, methods.BasicPublish.INDEX)
        return stop

    def _publish(self, data: bytes, pos: int, stop: int, end: int) -> int:
        """A basic.publish frame stands at pos..stop; take its content too if it is all there."""
        connection = self._connection
        number = data[pos + 1] << 8 | data[pos + 2]
        channel = connection.channels.get(number)
        if channel is None or channel.closing or channel.in_content():
            dispatch.on_frame(connection, frames.METHOD, number, data, pos + 7, stop - 1)
            return stop
        frame = data[pos:stop]
        route = self._routes.get(frame)
        try:
            whole = self._whole_content(channel, data, stop, end)
            if whole is None and route is None:
                dispatch.on_frame(connection, frames.METHOD, number, data, pos + 7, stop - 1)
                return stop
            if route is None:
                route = self._remember_route(channel, frame)
            if whole is None:
                channel.begin_content(route)
                return stop
            body_start, after, body_size, properties, body = whole
            channel.check_size(body_size)
            prepared = route.prepare(properties)
            channel.publisher.publish(route, prepared, Incoming(prepared.envelope, [body]))
            if body_size and data.startswith(frame, after):
                if data.startswith(data[pos:body_start], after):
                    self._hot = HotPublish(data[pos:body_start], body_size, route, prepared)
                else:
                    return self._publish_mixed(route, data, after)
        except ChannelException as error:
            # The content that follows is ignored, frame by frame, because the channel is closing.
            connection.close_channel(channel, error, methods.BasicPublish.INDEX)
            return stop
        except AmqpError as error:
            connection.close_with(error, methods.BasicPublish.INDEX)
            return stop
        return after

    def _publish_mixed(self, route: PublishRoute, data: bytes, pos: int) -> int:
        """More publishes that go the same way, with sizes and properties of their own."""
        mixed = route.mixed_route()
        if mixed is None or self._connection.parsing_stopped or route.channel.closing:
            return pos
        entries: list[Entry] = []
        pos = scan_mixed(mixed, data, pos, entries)
        if entries:
            publisher = route.channel.publisher
            if route.is_delayed:
                publisher.publish_delayed(route, entries)
            else:
                publisher.publish(route, route.plain(), unlike(entries))
        return pos

    def _remember_route(self, channel: Channel, frame: bytes) -> PublishRoute:
        method = methods.decode_method(frame, 7, len(frame) - 1)
        assert isinstance(method, methods.BasicPublish)
        route = PublishRoute(channel, method, frame)
        if len(self._routes) >= limits.PUBLISH_ROUTES_MAX:
            self._routes.clear()
        self._routes[frame] = route
        self._connection.vhost.route_remembered(self)
        return route

    def _whole_content(
        self, channel: Channel, data: bytes, pos: int, end: int
    ) -> tuple[int, int, int, bytes, bytes] | None:
        """Where the body starts and ends, its size, properties and body; None if anything is missing or unusual.

        Unusual content is read frame by frame, where every fault has its error.
        """
        if end - pos < frames.CONTENT_HEADER_BYTES + 10:
            return None
        number = channel.number.to_bytes(2, "big")
        if data[pos] != frames.HEADER or data[pos + 1 : pos + 3] != number:
            return None
        size = int.from_bytes(data[pos + 3 : pos + 7], "big")
        body_frame = pos + size + 8
        if (
            size < frames.CONTENT_HEADER_BYTES + 2
            or size > self._connection.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
            or body_frame > end
            or data[body_frame - 1] != frames.END
            or not data.startswith(frames.CONTENT_HEADER_START, pos + 7)
        ):
            return None
        body_size = int.from_bytes(data[pos + 11 : pos + 19], "big")
        properties = data[pos + 19 : body_frame - 1]
        if body_size == 0:
            return body_frame, body_frame, 0, properties, b"\xce"
        after = body_frame + body_size + 8
        if (
            after > end
            or body_size > self._connection.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
            or data[body_frame : body_frame + 7] != frames.body_frame_head(channel.number, body_size)
            or data[after - 1] != frames.END
        ):
            return None
        return body_frame + 7, after, body_size, properties, data[body_frame + 7 : after]

    def _acks(self, data: bytes, pos: int, end: int) -> int:
        """A run of basic.ack frames on one channel: tags that follow each other are settled together."""
        connection = self._connection
        number = data[pos + 1] << 8 | data[pos + 2]
        channel = connection.channels.get(number)
        if channel is None or channel.closing or channel.in_content():
            stop = pos + ACK_FRAME_BYTES
            dispatch.on_frame(connection, frames.METHOD, number, data, pos + 7, stop - 1)
            return stop
        head = data[pos : pos + 11]
        first = last = 0
        # No more at once than a turn has time for, whatever their order.
        end = min(end, pos + ACKS_AT_ONCE * ACK_FRAME_BYTES)
        try:
            while (
                data.startswith(head, pos)
                and pos + ACK_FRAME_BYTES <= end
                and data[pos + 20] == frames.END
                and not connection.parsing_stopped
            ):
                tag = int.from_bytes(data[pos + 11 : pos + 19], "big")
                multiple = data[pos + 19] & 1
                pos += ACK_FRAME_BYTES
                if first and tag == last + 1 and not multiple:
                    last = tag
                    continue
                if first:
                    ack_range(channel, first, last)
                    first = 0
                if multiple:
                    channel.settle_through(tag, ACK)
                elif tag == 0:
                    raise unknown_tag(0)
                else:
                    first = last = tag
            if first:
                ack_range(channel, first, last)
        except ChannelException as error:
            connection.close_channel(channel, error, methods.BasicAck.INDEX)
        return pos


def ack_range(channel: Channel, first: int, last: int) -> None:
    """Acknowledge consecutive tags; those before an unknown one are acknowledged all the same."""
    try:
        spans = channel.unacked.take(first, last)
    except ChannelException:
        for tag in range(first, last + 1):
            channel.settle_by_client(channel.unacked.take(tag, tag), ACK)
    else:
        channel.settle_by_client(spans, ACK)
