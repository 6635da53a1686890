"""A client's connection: bytes in, frames apart, methods to channels; output gathered, written once a turn.

The loop in `_parse` is the hottest code of the broker. It tries, in this order: the same publish once more (a run), a
publish with its whole content, a run of acknowledgements, any other frame. Errors of the peer are turned into close
methods here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.users import User
from penstock.broker.vhost import VHost
from penstock.errors import (
    AmqpError,
    ChannelException,
    channel_error,
    command_invalid,
    frame_error,
    not_allowed,
    resource_error,
    unexpected_frame,
)
from penstock.queues.queue import Queue
from penstock.server import dispatch
from penstock.server.channel import Channel
from penstock.server.handshake import Handshake
from penstock.server.heartbeat import Heartbeat
from penstock.server.publishing import Prepared, PublishRoute
from penstock.server.transaction import ACK
from penstock.wire import frames, methods
from penstock.wire.content import scan_run

if TYPE_CHECKING:
    from penstock.server.server import Server

log = logging.getLogger("penstock.connection")

PUBLISH_ID = b"\x00\x3c\x00\x28"
# A basic.ack frame behind its channel number, up to the delivery tag.
ACK_START = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
ACK_FRAME_BYTES = 21
# What is gathered before it is handed to the transport in the middle of a turn.
OUT_BYTES_FLUSH = 256 * 1024


class HotPublish:
    """The last publish, in the form in which its repetition is recognised."""

    __slots__ = ("body_size", "prefix", "prepared", "route")

    def __init__(self, prefix: bytes, body_size: int, route: PublishRoute, prepared: Prepared) -> None:
        # Method frame, header frame and the head of the body frame.
        self.prefix = prefix
        self.body_size = body_size
        self.route = route
        self.prepared = prepared


class Connection(asyncio.Protocol):
    """One client."""

    # Set by the handshake before the first channel can be opened.
    user: User
    vhost: VHost

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker = server.broker
        self.peer = ""
        self.peer_is_loopback = False
        self.frame_bytes_max = limits.PRE_AUTH_FRAME_BYTES_MAX
        self.channels_max = 0
        self.channels: dict[int, Channel] = {}
        self.client_properties: dict[str, object] = {}
        self.capabilities: dict[str, object] = {}
        # Output of this turn, in order.
        self.out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = False
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        # True once the handshake is over.
        self.opened = False
        # True from the moment that connection.close was sent or received.
        self.closing = False
        self._handshake = Handshake(self)
        self._heartbeat = Heartbeat(self)
        self._close_timer: asyncio.TimerHandle | None = None
        self._routes: dict[bytes, PublishRoute] = {}
        self._hot: HotPublish | None = None
        # Queues that got messages from the bytes that are being parsed.
        self._fed: dict[Queue, None] = {}
        self._has_published = False
        # Why the socket is not read: "flow", "memory".
        self._read_stops: set[str] = set()
        self._writable = True
        self._partial_bytes = 0
        # Channels with notified consumers, in the order of their turn; whether the scheduler knows.
        self._working: deque[Channel] = deque()
        self._scheduled = False
        self._confirming: list[Channel] = []

    # --- the transport --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(limits.WRITE_BUFFER_BYTES_HIGH, limits.WRITE_BUFFER_BYTES_LOW)
        self.peer, self.peer_is_loopback = self._handshake.peer_of(transport)
        if not self.server.connection_opened(self):
            transport.abort()
            return
        self._handshake.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._transport = None
        self._heartbeat.stop()
        self._handshake.stop()
        if self._close_timer is not None:
            self._close_timer.cancel()
        for channel in list(self.channels.values()):
            channel.release()
        self.channels.clear()
        self._routes.clear()
        self._hot = None
        self._working.clear()
        self.broker.connection_closed(self)
        self.server.connection_closed(self)

    def pause_writing(self) -> None:
        self._writable = False
        self._update_interest()

    def resume_writing(self) -> None:
        self._writable = True
        self._update_interest()

    def is_writable(self) -> bool:
        """False while the client does not read: its consumers are not interested then."""
        return self._writable and not self.closing

    def _update_interest(self) -> None:
        for channel in self.channels.values():
            channel.update_interest()

    def stop_reading(self, reason: str) -> None:
        if not self._read_stops and self._transport is not None:
            self._transport.pause_reading()
        self._read_stops.add(reason)

    def resume_reading(self, reason: str) -> None:
        self._read_stops.discard(reason)
        if not self._read_stops and self._transport is not None and not self._transport.is_closing():
            self._heartbeat.heard()
            self._transport.resume_reading()

    def is_read(self) -> bool:
        return not self._read_stops

    # --- output ---------------------------------------------------------------------------------------

    def send(self, channel: int, method: methods.Method) -> None:
        self.out.append(frames.method_frame(channel, method.encode()))
        self.sent_bytes(0)

    def send_content(self, channel: int, properties: bytes, body: bytes) -> None:
        content = frames.content_frames(channel, properties, body, self.frame_bytes_max)
        self.out.append(content)
        self.sent_bytes(len(content))

    def send_raw(self, data: bytes) -> None:
        self.out.append(data)
        self.sent_bytes(len(data))

    def sent_bytes(self, count: int) -> None:
        """Something was put on `out`."""
        self._out_bytes += count
        if not self._flush_due:
            self._flush_due = True
            self.server.scheduler.flush_soon(self)
        elif self._out_bytes > OUT_BYTES_FLUSH:
            self._write()

    def confirms_ready(self, channel: Channel) -> None:
        self._confirming.append(channel)
        self.sent_bytes(0)

    def flush(self) -> None:
        """The turn is over: write everything."""
        self._flush_due = False
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            if not self.server.faults.holds_confirms(self, confirming):
                for channel in confirming:
                    channel.flush_confirms()
                self._flush_due = False
        self._write()

    def _write(self) -> None:
        out = self.out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_bytes = 0
        self._heartbeat.spoke()
        if self._transport is not None:
            self._transport.write(data)

    # --- work -----------------------------------------------------------------------------------------

    def channel_has_work(self, channel: Channel) -> None:
        self._working.append(channel)
        if not self._scheduled:
            self._scheduled = True
            self.server.scheduler.wake(self)

    def deliver_some(self) -> int:
        """Let each channel with work, in turn, deliver for one consumer; return how many messages."""
        working = self._working
        count = 0
        for _ in range(len(working)):
            channel = working.popleft()
            if channel.has_work():
                count += channel.deliver_some()
                if channel.has_work():
                    working.append(channel)
        if not working:
            self._scheduled = False
        return count

    def has_work(self) -> bool:
        return self._scheduled

    def published(self) -> None:
        """Called for each run that the client publishes."""
        if not self._has_published:
            self._has_published = True
            self.server.first_publish(self)

    @property
    def has_published(self) -> bool:
        return self._has_published

    def feed(self, queues: list[Queue]) -> None:
        fed = self._fed
        for queue in queues:
            fed[queue] = None

    def count_partial(self, size: int) -> None:
        """Content that was received in part; bounded over all channels of the connection."""
        self._partial_bytes += size
        if self._partial_bytes > limits.PARTIAL_CONTENT_BYTES_MAX:
            raise resource_error("too much unfinished content on this connection")

    def has_capability(self, name: str) -> bool:
        return self.capabilities.get(name) is True

    # --- input ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heartbeat.heard()
        if self._rest:
            data = self._rest + data
        try:
            pos = self._parse(data)
            self._rest = data[pos:] if pos < len(data) else b""
        except AmqpError as error:
            self._rest = b""
            self.close_with(error, 0)
        except Exception:
            # A bug of ours must cost this client its connection and nobody else anything.
            log.exception("internal error on connection %s", self.peer)
            self.server.internal_errors += 1
            self._rest = b""
            self.close_with(AmqpError(541, "internal error"), 0)
        if self._fed:
            fed = list(self._fed)
            self._fed.clear()
            self.server.flow.after_publish(self, fed)

    def _parse(self, data: bytes) -> int:
        """Handle every whole frame; return where the rest begins."""
        pos = 0
        end = len(data)
        if not self.opened:
            pos = self._handshake.read_header(data)
        while end - pos >= limits.FRAME_OVERHEAD_BYTES:
            hot = self._hot
            if hot is not None and data.startswith(hot.prefix, pos):
                pos_after = self._publish_run(hot, data, pos)
                if pos_after != pos:
                    pos = pos_after
                    continue
            kind = data[pos]
            size = int.from_bytes(data[pos + 3 : pos + 7], "big")
            stop = pos + size + limits.FRAME_OVERHEAD_BYTES
            if size > self.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES:
                self._refuse_frame(data, pos, size)
            if kind not in (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT):
                raise frame_error(f"unknown frame type {kind}")
            if stop > end:
                break
            if data[stop - 1] != frames.END:
                raise frame_error(f"frame end octet is {data[stop - 1]}, not {frames.END}")
            if kind == frames.METHOD and self.opened and not self.closing:
                if data.startswith(PUBLISH_ID, pos + 7):
                    pos = self._publish(data, pos, stop, end)
                    continue
                if data.startswith(ACK_START, pos + 3):
                    pos = self._acks(data, pos, end)
                    continue
            self._on_frame(kind, data[pos + 1] << 8 | data[pos + 2], data, pos + 7, stop - 1)
            pos = stop
        return pos

    def _refuse_frame(self, data: bytes, pos: int, size: int) -> None:
        largest = self.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
        raise frame_error(
            f"type {data[pos]}, first 16 octets = {data[pos + 7 : pos + 23]!r}: frame_too_large,"
            f"{{frame_size,{size}}}, {{max_size,{largest}}}"
        )

    def _publish_run(self, hot: HotPublish, data: bytes, pos: int) -> int:
        """The same publish again, perhaps many times: only the bodies differ."""
        bodies: list[bytes] = []
        route = hot.route
        channel = route.channel
        if channel.closing or self.closing or channel.in_content():
            self._hot = None
            return pos
        stop = scan_run(data, pos, hot.prefix, hot.body_size, bodies)
        if not bodies:
            return pos
        try:
            prepared = hot.prepared
            if prepared.version != self.vhost.topology_version:
                hot.prepared = prepared = route.prepare(prepared.properties)
            channel.publisher.publish(route, prepared, bodies)
        except ChannelException as error:
            self.close_channel(channel, error, methods.BasicPublish.INDEX)
        return stop

    def _publish(self, data: bytes, pos: int, stop: int, end: int) -> int:
        """A basic.publish frame stands at pos..stop; take its content too if it is all there."""
        frame = data[pos:stop]
        number = data[pos + 1] << 8 | data[pos + 2]
        route = self._routes.get(frame)
        channel = self.channels.get(number)
        if channel is None or channel.closing or channel.in_content():
            self._on_frame(frames.METHOD, number, data, pos + 7, stop - 1)
            return stop
        try:
            if route is None:
                route = self._remember_route(channel, frame)
            whole = self._whole_content(channel, data, stop, end)
            if whole is None:
                channel.begin_content(route)
                return stop
            body_start, after, body_size, properties, body = whole
            channel.check_size(body_size)
            prepared = route.prepare(properties)
            channel.publisher.publish(route, prepared, [body])
            if body_size and data.startswith(data[pos:body_start], after):
                self._hot = HotPublish(data[pos:body_start], body_size, route, prepared)
        except ChannelException as error:
            self.close_channel(channel, error, methods.BasicPublish.INDEX)
            return stop
        return after

    def _remember_route(self, channel: Channel, frame: bytes) -> PublishRoute:
        method = methods.decode_method(frame, 7, len(frame) - 1)
        assert isinstance(method, methods.BasicPublish)
        route = PublishRoute(channel, method)
        if len(self._routes) >= limits.PUBLISH_ROUTES_MAX:
            self._routes.clear()
        self._routes[frame] = route
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
            or body_size > self.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
            or data[body_frame : body_frame + 7] != frames.body_frame_head(channel.number, body_size)
            or data[after - 1] != frames.END
        ):
            return None
        return body_frame + 7, after, body_size, properties, data[body_frame + 7 : after]

    def _acks(self, data: bytes, pos: int, end: int) -> int:
        """A run of basic.ack frames on one channel: tags that follow each other are settled together."""
        head = data[pos : pos + 11]
        number = data[pos + 1] << 8 | data[pos + 2]
        channel = self.channels.get(number)
        if channel is None or channel.closing or channel.in_content():
            stop = pos + ACK_FRAME_BYTES
            self._on_frame(frames.METHOD, number, data, pos + 7, stop - 1)
            return stop
        first = last = 0
        try:
            while data.startswith(head, pos) and pos + ACK_FRAME_BYTES <= end and data[pos + 20] == frames.END:
                tag = int.from_bytes(data[pos + 11 : pos + 19], "big")
                if data[pos + 19] & 1:
                    if first:
                        channel.settle_by_client(channel.unacked.take(first, last), ACK)
                        first = 0
                    pos += ACK_FRAME_BYTES
                    channel.settle_by_client(channel.unacked.take_through(tag), ACK)
                    continue
                if first and tag == last + 1:
                    last = tag
                else:
                    if first:
                        channel.settle_by_client(channel.unacked.take(first, last), ACK)
                    first = last = tag
                    if tag == 0:
                        channel.unacked.take(0, 0)
                pos += ACK_FRAME_BYTES
            if first:
                channel.settle_by_client(channel.unacked.take(first, last), ACK)
        except ChannelException as error:
            self.close_channel(channel, error, methods.BasicAck.INDEX)
        return pos

    def _on_frame(self, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
        """Any frame, carefully. The payload is data[start:stop]."""
        if kind == frames.HEARTBEAT:
            self._on_heartbeat(number, stop - start)
        elif number == 0:
            self._on_connection_frame(kind, data, start, stop)
        elif self.closing:
            return
        elif not self.opened:
            raise unexpected_frame(f"frame on channel {number} before connection.open")
        else:
            self._on_channel_frame(kind, number, data, start, stop)

    def _on_heartbeat(self, number: int, size: int) -> None:
        if number != 0:
            raise unexpected_frame(f"heartbeat on channel {number}")
        if size:
            raise frame_error("heartbeat with a payload")

    def _on_connection_frame(self, kind: int, data: bytes, start: int, stop: int) -> None:
        if kind != frames.METHOD:
            if self.closing:
                return
            raise command_invalid("content on channel 0")
        method = methods.decode_method(data, start, stop)
        if isinstance(method, methods.ConnectionCloseOk):
            self.abort()
        elif isinstance(method, methods.ConnectionClose):
            self.closing = True
            self.send(0, methods.ConnectionCloseOk())
            self._finish()
        elif self.closing:
            return
        elif not self.opened:
            self._handshake.on_method(method)
        elif isinstance(method, methods.ConnectionUpdateSecret):
            self._handshake.update_secret(method)
        else:
            raise command_invalid(f"{method.NAME} is not expected on channel 0")

    def _on_channel_frame(self, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
        channel = self.channels.get(number)
        if channel is None:
            self._open_channel(kind, number, data, start, stop)
            return
        if channel.closing:
            self._on_closing_channel(channel, kind, data, start, stop)
            return
        index = 0
        try:
            if kind == frames.HEADER:
                channel.on_header(data[start:stop])
            elif kind == frames.BODY:
                channel.on_body(data[start:stop])
            else:
                index = int.from_bytes(data[start : start + 4], "big")
                if channel.in_content():
                    raise unexpected_frame("expected content header for class 60, got non content header frame instead")
                dispatch.handle(channel, methods.decode_method(data, start, stop))
        except ChannelException as error:
            self.close_channel(channel, error, index or methods.BasicPublish.INDEX)
        except AmqpError as error:
            self.close_with(error, index)

    def _open_channel(self, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
        if kind != frames.METHOD:
            raise channel_error(f"expected 'channel.open' on channel {number}")
        method = methods.decode_method(data, start, stop)
        if isinstance(method, (methods.ChannelCloseOk, methods.ChannelClose)):
            # The other half of a close that both sides sent.
            if isinstance(method, methods.ChannelClose):
                self.send(number, methods.ChannelCloseOk())
            return
        if not isinstance(method, methods.ChannelOpen):
            raise channel_error("expected 'channel.open'")
        if number > self.channels_max:
            raise not_allowed(
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max"
            )
        self.channels[number] = Channel(self, number)
        self.send(number, methods.ChannelOpenOk())

    def _on_closing_channel(self, channel: Channel, kind: int, data: bytes, start: int, stop: int) -> None:
        """Only close and close-ok count on a channel that we have closed; the rest was sent before it knew."""
        if kind != frames.METHOD:
            return
        index = int.from_bytes(data[start : start + 4], "big")
        if index == methods.ChannelClose.INDEX:
            self.send(channel.number, methods.ChannelCloseOk())
        elif index == methods.ChannelCloseOk.INDEX:
            self.channels.pop(channel.number, None)

    # --- the end --------------------------------------------------------------------------------------

    def close_channel(self, channel: Channel, error: AmqpError, index: int) -> None:
        """The broker closes a channel."""
        log.info("channel %d of %s closed: %s", channel.number, self.peer, error.reply_text)
        self.forget_channel(channel)
        self.send(channel.number, methods.ChannelClose(error.reply_code, text(error), index >> 16, index & 0xFFFF))

    def forget_channel(self, channel: Channel) -> None:
        """Release what the channel holds; its number stays taken until the close is complete."""
        channel.flush_confirms()
        channel.release()
        self._hot = None
        for frame in [frame for frame, route in self._routes.items() if route.channel is channel]:
            del self._routes[frame]

    def close_with(self, error: AmqpError, index: int) -> None:
        """The broker closes the connection and waits a little for the client to agree."""
        if self.closing:
            self.abort()
            return
        log.warning("connection %s closed: %s", self.peer, error.reply_text)
        self.closing = True
        self._handshake.stop()
        for channel in list(self.channels.values()):
            channel.release()
        self._hot = None
        self.send(0, methods.ConnectionClose(error.reply_code, text(error), index >> 16, index & 0xFFFF))
        self.flush()
        # Only now: the client must be read again to hear its close-ok.
        for reason in list(self._read_stops):
            self.resume_reading(reason)
        self._close_timer = self.server.loop.call_later(limits.CLOSE_OK_S, self.abort)

    def _finish(self) -> None:
        """Everything is said: write it and close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def finish_soon(self) -> None:
        """Close once what was sent is written; for answers before a connection exists."""
        self.closing = True
        self._finish()

    def abort(self) -> None:
        """Close as soon as what was sent is written."""
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """Close at once; what was not written is lost."""
        if self._transport is not None:
            self._transport.abort()

    def start_heartbeat(self, interval_s: float) -> None:
        self._heartbeat.start(interval_s)


def text(error: AmqpError) -> str:
    """A reply text is a short string."""
    raw = error.reply_text.encode()[: limits.SHORT_STRING_BYTES_MAX]
    return raw.decode("utf-8", "ignore")
