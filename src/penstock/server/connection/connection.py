"""A client's connection: its transport, its channels, its output, its end.

Output is gathered and written once a turn. Errors of the peer are turned into close methods here and nowhere else. What
arrives is taken apart by `reader`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock import limits
from penstock.broker.access.rights import Rights
from penstock.broker.access.user import User
from penstock.broker.audit.event import ACCESS_REFUSED, CONNECTION_CLOSED
from penstock.broker.vhost.vhost import VHost
from penstock.call_all import call_all
from penstock.disk.files import is_temporary
from penstock.errors import AmqpError, internal_error, resource_error
from penstock.queues.queue import Queue
from penstock.server.channel.channel import Channel
from penstock.server.connection.acts import note
from penstock.server.connection.awaited_answer import DISK
from penstock.server.connection.churn_pace import CHURN, ChurnPace
from penstock.server.connection.definition_answers import DEFINITIONS, DefinitionAnswers
from penstock.server.connection.handshake import Handshake
from penstock.server.connection.heartbeat import Heartbeat
from penstock.server.connection.reader import FrameReader
from penstock.server.settling.settlements import SETTLING, WAITING
from penstock.server.tls.certificate_names import user_of
from penstock.wire import frames, methods

if TYPE_CHECKING:
    from penstock.server.server import Server

log = logging.getLogger("penstock.connection")

# What is gathered before it is handed to the transport in the middle of a turn.
OUT_BYTES_FLUSH = 256 * 1024
# Why what has arrived is not even parsed: the client does not read its answers, or an answer waits for the disk.
OUTPUT = "output"
TURN = "turn"
# Or what it has settled takes more than a turn, or what others have in a queue that it asks about.
PARSE_STOPS = frozenset((OUTPUT, DISK, DEFINITIONS, SETTLING, WAITING, TURN, CHURN))


class Connection(asyncio.Protocol):
    """One client."""

    # Set by the handshake before the first channel can be opened.
    user: User
    vhost: VHost
    rights: Rights

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker = server.broker
        self.peer = ""
        # What it is counted by before it has logged in.
        self.address = ""
        # Our end, as the peer has it.
        self.local = ""
        self.peer_is_loopback = False
        self.is_tls = False
        # The user that a verified client certificate names; empty without one.
        self.certificate_user = ""
        self.frame_bytes_max = limits.PRE_AUTH_FRAME_BYTES_MAX
        self.channels_max = 0
        self.channels: dict[int, Channel] = {}
        self.client_properties: dict[str, object] = {}
        self.capabilities: dict[str, object] = {}
        # Output of this turn, in order.
        self.out: list[frames.Piece] = []
        self._out_bytes = 0
        self._flush_due = False
        self._transport: asyncio.Transport | None = None
        # True once the handshake is over.
        self.opened = False
        # True from the moment that connection.close was sent or received.
        self.closing = False
        # True once our last word is written: what comes is read and thrown away until the client hangs up.
        self.is_finished = False
        self._is_released = False
        self.handshake = Handshake(self)
        self._reader = FrameReader(self)
        self.heartbeat = Heartbeat(self)
        self.churn = ChurnPace(self)
        self._close_timer: asyncio.TimerHandle | None = None
        # The socket is kept until then, whatever the client says.
        self._linger_until_s = 0.0
        # Queues that got messages from the bytes that are being parsed.
        self._fed: dict[Queue, None] = {}
        self._has_published = False
        # Why the socket is not read: "flow", "store", "alarm", and the two that also stop the parsing.
        self._read_stops: set[str] = set()
        # The reader leaves what it has where it is.
        self.parsing_stopped = False
        self._writable = True
        # More output has gathered than is written in one turn.
        self._is_draining = False
        self._partial_bytes = 0
        # What was read since its last turn.
        self._read_bytes = 0
        self.definition_answers = DefinitionAnswers(self)
        # Channels with notified consumers, in the order of their turn; whether the scheduler knows.
        self._working: deque[Channel] = deque()
        self._scheduled = False
        self._confirming: list[Channel] = []
        # Settlements under way, and what happens when they are over.
        self._settling = 0
        self._when_settled: list[Callable[[], None]] = []

    # --- the transport --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but ancestry.
        transport = cast(asyncio.Transport, transport)
        pending, self._transport = self._transport, transport
        transport.set_write_buffer_limits(limits.WRITE_BUFFER_BYTES_HIGH, limits.WRITE_BUFFER_BYTES_LOW)
        if pending is not None:
            self._secured(transport)
            return
        self.peer, self.peer_is_loopback = self.handshake.peer_of(transport)
        self.address = self.handshake.address_of(transport)
        self.local = self.handshake.local_of(transport)
        if not self.server.connection_opened(self):
            transport.abort()
            return
        self.handshake.begin()

    def _secured(self, transport: asyncio.Transport) -> None:
        """The TLS handshake is over: the connection was admitted when it began."""
        self.is_tls = True
        self.certificate_user = user_of(transport.get_extra_info("peercert"), self.broker.config.tls_login_from)

    def shown_name(self) -> str:
        """Return the name for people: what the client calls itself, else both addresses."""
        name = self.client_properties.get("connection_name")
        return name if isinstance(name, str) and name else f"{self.peer} -> {self.local}"

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._transport = None
        if self._close_timer is not None:
            self._close_timer.cancel()
        try:
            self._release()
        finally:
            # What belongs to the connection does not lead back to it: it is freed by reference counting.
            self.heartbeat.close()
            self.churn.close()
            self.handshake.close()
            self._reader.close()
            self.definition_answers.close()
            self._working.clear()
            self._confirming.clear()
            self.server.connection_closed(self)
        self.server.arm_expiry()

    def _release(self) -> None:
        """Give back what the client held: its consumers, what it has not acknowledged, its exclusive queues."""
        self._release_channels()
        self.channels.clear()
        if not self._is_released:
            self._is_released = True
            if self.opened:
                note(self, CONNECTION_CLOSED)
            self.broker.connection_closed(self)

    def pause_writing(self) -> None:
        self._writable = False
        self.broker.memory.touch([self])
        self._update_interest()

    def resume_writing(self) -> None:
        self._writable = True
        if self._is_draining:
            self._flush_later()
            return
        self._update_interest()
        self.resume_parsing(OUTPUT)

    def is_writable(self) -> bool:
        """False while the client does not read: its consumers are not interested then."""
        return self._writable and not self._is_draining and not self.closing

    def _update_interest(self) -> None:
        for channel in self.channels.values():
            channel.update_interest()

    def stop_reading(self, reason: str) -> None:
        if self.is_finished:
            return
        if not self._read_stops and self._transport is not None:
            self._transport.pause_reading()
        self._read_stops.add(reason)

    def resume_reading(self, reason: str) -> None:
        if reason not in self._read_stops:
            return
        self._read_stops.discard(reason)
        if not self._read_stops and self._transport is not None and not self._transport.is_closing():
            self.heartbeat.heard()
            self._transport.resume_reading()

    def stop_parsing(self, reason: str) -> None:
        """Handle nothing more of what has arrived, nor read on."""
        self.parsing_stopped = True
        self.stop_reading(reason)

    def resume_parsing(self, reason: str) -> None:
        self.resume_reading(reason)
        if self.parsing_stopped and not self._read_stops & PARSE_STOPS:
            self.parsing_stopped = False
            # What the reader had left when it stopped.
            self.server.loop.call_soon(self.data_received, b"")

    def is_parsing_stopped_only_by(self, reason: str) -> bool:
        return not self.closing and self._read_stops & PARSE_STOPS == {reason}

    def yield_parsing(self) -> None:
        """The client has sent more than is handled in one go: the others first."""
        self.stop_parsing(TURN)
        self.server.parse_turns.add(self)

    def parse_on(self) -> None:
        """Go on with parsing: the connection's turn has come."""
        self.resume_reading(TURN)
        if self.parsing_stopped and not self._read_stops & PARSE_STOPS:
            self.parsing_stopped = False
            self.data_received(b"")

    def settling_begun(self) -> None:
        """What the client has settled, or left behind, takes several turns."""
        self._settling += 1
        self.stop_parsing(SETTLING)

    def settling_over(self) -> None:
        self._settling -= 1
        if self._settling == 0:
            when_settled, self._when_settled = self._when_settled, []
            call_all([*when_settled, partial(self.resume_parsing, SETTLING)])

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call when all that the client has settled is done; mostly at once."""
        if self._settling:
            self._when_settled.append(call)
        else:
            call()

    def may_be_silent(self) -> bool:
        """True while we do not read for reasons of our own; a client that does not read us has no such excuse."""
        return bool(self._read_stops - {OUTPUT})

    # --- output ---------------------------------------------------------------------------------------

    def send(self, channel: int, method: methods.Method) -> None:
        self.send_raw(frames.method_frame(channel, method.encode()))

    def send_content(self, channel: int, properties: bytes, body: bytes) -> None:
        pieces = frames.content_pieces(channel, properties, body, self.frame_bytes_max)
        self.out += pieces
        self.sent_bytes(len(properties) + len(body))

    def send_raw(self, data: bytes) -> None:
        self.out.append(data)
        self.sent_bytes(len(data))

    def sent_bytes(self, count: int) -> None:
        """Something was put on `out`."""
        self._out_bytes += count
        if not self._flush_due:
            self._flush_later()
        elif self._out_bytes > OUT_BYTES_FLUSH and not self._is_draining:
            self._write()

    def _flush_later(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.server.scheduler.flush_soon(self)

    def confirms_ready(self, channel: Channel) -> None:
        self._confirming.append(channel)
        self.sent_bytes(0)

    def flush(self) -> None:
        """The turn is over: write everything."""
        # Confirms come last, so that a return precedes the ack of its publish; still due, they do not ask for a turn.
        self._flush_confirms()
        self._flush_due = False
        self._write()

    def _flush_confirms(self) -> None:
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            for channel in confirming:
                channel.flush_confirms()

    def _write(self) -> None:
        out = self.out
        if not out:
            return
        if not self.closing and (self._out_bytes > limits.WRITE_BYTES_PER_TURN or self._is_draining):
            self._write_some()
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_bytes = 0
        self.heartbeat.spoke()
        transport = self._transport
        if transport is not None and not self.is_finished:
            transport.write(data)
            self._check_output(transport)

    def _write_some(self) -> None:
        """Write a part of a large output; the rest follows in later turns, as the client reads."""
        out = self.out
        transport = self._transport
        if transport is None or self.is_finished:
            out.clear()
            self._out_bytes = 0
            return
        if not self._is_draining:
            self._is_draining = True
            self._update_interest()
        if self._writable:
            size = count = 0
            while count < len(out) and size < limits.WRITE_BYTES_PER_TURN:
                size += len(out[count])
                count += 1
            data = b"".join(out[:count])
            del out[:count]
            self._out_bytes = max(0, self._out_bytes - size) if out else 0
            self.heartbeat.spoke()
            transport.write(data)
        self._check_output(transport)
        if not out:
            self._is_draining = False
            if self._writable:
                self._update_interest()
                self.resume_parsing(OUTPUT)
        elif self._writable:
            self._flush_later()

    def _check_output(self, transport: asyncio.Transport) -> None:
        """Do not read a client that does not read. A closing connection is read on: see `close_with`."""
        if self._writable or self.closing:
            return
        if transport.get_write_buffer_size() + self._out_bytes > limits.OUTPUT_BYTES_MAX:
            self.stop_parsing(OUTPUT)

    # --- work -----------------------------------------------------------------------------------------

    def channel_has_work(self, channel: Channel) -> None:
        self._working.append(channel)
        if not self._scheduled:
            self._scheduled = True
            self.server.scheduler.wake(self)

    def deliver_some(self) -> int:
        """Let channels with work, in turn, deliver for one consumer; each once, unless it is enough for a turn before.

        Returns how many messages were delivered.
        """
        working = self._working
        count = 0
        for _ in range(len(working)):
            channel = working.popleft()
            channel.listed = False
            if channel.has_work():
                count += channel.deliver_some()
                if channel.has_work() and not channel.listed:
                    channel.listed = True
                    working.append(channel)
                if count >= limits.TURN_MESSAGES_MAX:
                    break
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
        """Content that was received in part, or waits for its commit.

        Bounded over all channels of the connection, and over all connections.
        """
        if size > 0 and self._partial_bytes + size > limits.PARTIAL_CONTENT_BYTES_MAX:
            raise resource_error("too much unfinished content on this connection")
        if size > 0 and not self.server.has_room_for_partial(size):
            raise resource_error("too much unfinished content on all connections")
        self._partial_bytes += size
        self.server.partial_bytes += size
        if size > 0:
            self.broker.memory.touch([self])

    def ram_bytes(self) -> int:
        """What the connection holds in memory, roughly."""
        size = limits.CONNECTION_OVERHEAD_BYTES + self._partial_bytes + self._out_bytes + self._reader.rest_bytes
        if self._transport is not None:
            size += self._transport.get_write_buffer_size()
        for channel in self.channels.values():
            size += limits.CHANNEL_OVERHEAD_BYTES
            size += channel.unacked.stretch_count() * limits.UNACKED_OVERHEAD_BYTES
        return size

    def look_weight(self) -> int:
        """What it costs to ask for `ram_bytes`."""
        return 1 + len(self.channels) // 8

    def has_capability(self, name: str) -> bool:
        return self.capabilities.get(name) is True

    def qos_reaches_running_consumers(self) -> bool:
        """Return whether this client expects basic.qos(global=false) to change the consumers that it has already.

        py-amqp's users do: kombu sends global=true, which reaches them in RabbitMQ, only to a broker that calls itself
        RabbitMQ 3. See docs/decisions/0016.
        """
        return self.client_properties.get("product") == "py-amqp"

    # --- input ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self.is_finished:
            return
        self.heartbeat.heard()
        try:
            self._reader.feed(data)
        except AmqpError as error:
            self._reader.clear()
            # Behind the answers to the methods that came before the malformed frame.
            self.refuse(error, 0)
        except Exception as error:
            # A bug of ours must cost this client its connection, and other clients nothing.
            self._reader.clear()
            self.failed_with(error)
        if self._fed:
            fed = list(self._fed)
            self._fed.clear()
            self.broker.memory.touch(fed)
            self.server.flow.after_publish(self, fed)
        self._read_bytes += len(data)
        if self._read_bytes > limits.READ_BYTES_PER_TURN and not self.parsing_stopped and not self.closing:
            # The loop would read a socket in which there is always more many times over.
            self._read_bytes = 0
            self.yield_parsing()
        self.server.received(len(data))
        if not self.server.scheduler.is_turn_due:
            # A turn arms it when it is over.
            self.server.arm_expiry()

    def failed_with(self, error: Exception) -> None:
        """Called while the exception is handled, be it a bug or an error of the machine."""
        if isinstance(error, OSError) and is_temporary(error):
            log.warning("connection %s: %s", self.peer, error)
            self.close_with(resource_error("the broker is out of file descriptors or memory: try again later"), 0)
        else:
            self.failed()

    def failed(self) -> None:
        """Called while an unexpected exception is handled."""
        log.exception("internal error on connection %s", self.peer)
        self.server.internal_errors += 1
        self.close_with(internal_error("internal error"), 0)

    def rights_changed(self) -> None:
        """What the user may do has changed: ask again, also for what is published on known routes."""
        self.rights.forget()
        self._reader.forget_routes()

    # --- the end --------------------------------------------------------------------------------------

    def close_channel(self, channel: Channel, error: AmqpError, index: int) -> None:
        """The broker closes a channel."""
        log.info("channel %d of %s closed: %s", channel.number, self.peer, ascii(error.reply_text))
        self.forget_channel(channel)
        if error.reply_code == 403:
            note(self, ACCESS_REFUSED, text=error.reply_text)
        self.send(channel.number, methods.ChannelClose(error.reply_code, text(error), index >> 16, index & 0xFFFF))

    def refuse_channel(self, channel: Channel, error: AmqpError, index: int) -> None:
        """A method's answer is an error that closes its channel; behind the answers that wait, if some do."""
        log = self.broker.log
        if self.definition_answers and log is not None:
            self.definition_answers.wait(log, partial(self._close_open_channel, channel, error, index), is_error=True)
        else:
            self.close_channel(channel, error, index)

    def _close_open_channel(self, channel: Channel, error: AmqpError, index: int) -> None:
        if not channel.closing:
            self.close_channel(channel, error, index)

    def refuse(self, error: AmqpError, index: int) -> None:
        """A method's answer is an error that closes the connection; behind the answers that wait, if some do."""
        log = self.broker.log
        if self.definition_answers and log is not None:
            self.definition_answers.wait(log, partial(self.close_with, error, index), is_error=True)
        else:
            self.close_with(error, index)

    def forget_channel(self, channel: Channel) -> None:
        """Release what the channel holds; its number stays taken until the close is complete."""
        channel.flush_confirms()
        self.server.settlements.give_back(self, [channel.release()])
        self._reader.forget_channel(channel)

    def forget_routes(self) -> None:
        """What publish frames mean has changed: the reply address of a channel is part of it."""
        self._reader.forget_routes()

    def _release_channels(self) -> None:
        self.server.settlements.give_back(self, [channel.release() for channel in list(self.channels.values())])

    def close_with(self, error: AmqpError, index: int, linger_s: float = 0.0) -> None:
        """The broker closes the connection and waits a little for the client to agree.

        It keeps the socket for `linger_s` although the client has agreed.
        """
        if self.closing:
            # What a client sends after our close is read and thrown away: closing with unread input would reset the
            # connection, and the client might never see why.
            return
        log.warning("connection %s closed: %s", self.peer, ascii(error.reply_text))
        self.closing = True
        self.handshake.stop()
        self._release_channels()
        self.send(0, methods.ConnectionClose(error.reply_code, text(error), index >> 16, index & 0xFFFF))
        self.flush()
        # Only now: the client must be read again to hear its close-ok.
        for reason in list(self._read_stops):
            self.resume_parsing(reason)
        self._drop_later()
        self._linger_until_s = self.server.loop.time() + linger_s

    def closed_by_client(self) -> None:
        self.closing = True
        # What is due to the client goes before close-ok: nothing may follow that.
        self._flush_confirms()
        # Exclusive queues are gone when the client hears that its connection is closed, as in RabbitMQ.
        self._release()
        self.when_settled(self._answer_close)

    def _answer_close(self) -> None:
        if self._transport is not None:
            self.send(0, methods.ConnectionCloseOk())
            self._finish()

    def _finish(self) -> None:
        """Everything is said: write it, and read on until the client hangs up, for a limited time.

        To close now would reset the connection if the client has sent anything behind its own close, and the client
        might never see our last word.
        """
        self.flush()
        self.is_finished = True
        self.handshake.stop()
        self.heartbeat.stop()
        self._reader.clear()
        for reason in list(self._read_stops):
            self.resume_reading(reason)
        self._drop_later()
        transport = self._transport
        # There is no half-closed TLS: the client hangs up, or the timer ends it.
        if transport is not None and not transport.is_closing() and not self.is_tls:
            try:
                transport.write_eof()
            except OSError:
                # The client has hung up already, and our last word was answered with a reset.
                transport.abort()

    def _drop_later(self) -> None:
        """A client that does not read must not keep its connection for ever."""
        if self._close_timer is None:
            self._close_timer = self.server.loop.call_later(limits.CLOSE_OK_S, self.drop)

    def finish_soon(self) -> None:
        """End the connection once what was sent is written; for answers before a connection exists."""
        self.closing = True
        self._finish()

    def abort(self) -> None:
        """Close as soon as what was sent is written, unless the connection is to be kept for a while."""
        if self._transport is None:
            return
        left_s = self._linger_until_s - self.server.loop.time()
        if left_s > 0:
            if self._close_timer is not None:
                self._close_timer.cancel()
            self._close_timer = self.server.loop.call_later(left_s, self.drop)
        else:
            self._transport.close()

    def drop(self) -> None:
        """Close at once; what was not written is lost."""
        if self._transport is not None:
            self._transport.abort()


def text(error: AmqpError) -> str:
    """A reply text is a short string: a longer one is cut, and octets that it quotes but are not UTF-8 are replaced."""
    raw = error.reply_text.encode("utf-8", "replace")
    if len(raw) > limits.SHORT_STRING_BYTES_MAX:
        raw = raw[: limits.SHORT_STRING_BYTES_MAX - 3] + b"..."
    return raw.decode("utf-8", "ignore")
