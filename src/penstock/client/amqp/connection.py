"""One connection, from the protocol header to its end, without a socket.

Feed it what arrives; `take_outgoing` is what to send. A connection is greeting, tuned, open, then failed, and a failed
one is never used again. `failure` says why, and all calls that wait on its channels get the same.

Whatever a broker sends, `feed` does not raise: bytes that are not AMQP fail the connection with a text that says what
they were. Threads may use a connection and its channels together; nothing blocks within its lock.
"""

from __future__ import annotations

from threading import RLock
from typing import Final

from penstock import __version__
from penstock.client.amqp.address import Address
from penstock.client.amqp.answer import Answer
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.frame_reader import Frame, FrameReader
from penstock.client.errors import ClientError, Closed, ConnectionLost, SetupMissing
from penstock.errors import AmqpError, channel_error, command_invalid, unexpected_frame
from penstock.limits import CHANNELS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN
from penstock.wire import frames, methods
from penstock.wire.tables import table_from_python

CAPABILITIES: Final[dict[str, object]] = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
# Answers to connection.start-ok and connection.open that calling again does not change: login, vhost.
REFUSALS: Final = (403, 530)


class Connection:
    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_open = False
        self.failure: ClientError | None = None
        # Why the broker takes no messages at present, in its words.
        self.blocked: str | None = None
        self.heartbeat_s = 0
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.channels_max = CHANNELS_MAX
        self.channels: dict[int, Channel] = {}
        self._lock = RLock()
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._outgoing: list[bytes] = [frames.PROTOCOL_HEADER]
        self._expected: type[methods.Method] = methods.ConnectionStart
        self._closing: Answer | None = None

    def take_outgoing(self) -> bytes:
        """What is to be sent; it is forgotten here."""
        with self._lock:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
        return data

    def open_channel(self) -> tuple[Channel, Answer]:
        """Return a channel, and the answer to wait for before it is used."""
        with self._lock:
            number = next((n for n in range(1, self.channels_max + 1) if n not in self.channels), 0)
            if not number:
                raise ClientError(f"{self.address} allows {self.channels_max} channels; each consumer needs one")
            channel = Channel(number, self.frame_bytes_max, self._outgoing.append, self._lock)
            if self.failure is not None:
                channel.fail(self.failure)
            else:
                self.channels[number] = channel
            return channel, channel.call(methods.ChannelOpen())

    def close(self) -> Answer:
        """Say goodbye; the answer is done when the broker has."""
        with self._lock:
            self._closing = Answer((methods.ConnectionCloseOk,))
            if self.failure is not None:
                self._closing.fail(self.failure)
            else:
                self._send(methods.ConnectionClose(200, "OK"))
            return self._closing

    def send_heartbeat(self) -> None:
        self._outgoing.append(frames.HEARTBEAT_FRAME)

    def _send(self, method: methods.Method) -> None:
        self._outgoing.append(frames.method_frame(0, method.encode()))

    def lose(self, why: str) -> None:
        """The connection is gone, for a reason of the network's or of ours."""
        self._fail(ConnectionLost(f"{self.address}: {why}"))

    def _fail(self, error: ClientError) -> None:
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
            self.is_open = False
            for channel in self.channels.values():
                channel.fail(error)
            self.channels.clear()
            # A goodbye that was answered is none that failed.
            if self._closing is not None and not self._closing.is_done:
                self._closing.fail(error)

    def feed(self, data: bytes) -> None:
        """Take bytes in. What they change is seen in answers, channels and `failure`."""
        with self._lock:
            if self.failure is not None:
                return
            self._reader.feed(data)
            try:
                while self.failure is None:
                    frame = self._reader.next()
                    if frame is None:
                        return
                    self._on_frame(frame)
            except AmqpError as error:
                self.lose(f"the broker sent what it must not: {error.reply_text}")

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == frames.HEARTBEAT:
            if frame.channel:
                raise unexpected_frame(f"a heartbeat on channel {frame.channel}")
        elif frame.channel == 0:
            if frame.kind != frames.METHOD:
                raise unexpected_frame("content on channel 0")
            self._on_method(methods.decode_method(frame.payload, 0, len(frame.payload)))
        else:
            self._on_channel_frame(frame)

    def _on_channel_frame(self, frame: Frame) -> None:
        channel = self.channels.get(frame.channel)
        if channel is None:
            raise channel_error(f"a frame on channel {frame.channel}, which is not open")
        if frame.kind == frames.METHOD:
            method = methods.decode_method(frame.payload, 0, len(frame.payload))
            if method.INDEX >> 16 == methods.ConnectionStart.INDEX >> 16:
                raise command_invalid(f"{method.NAME} on channel {frame.channel}")
            channel.on_method(method)
            if channel.failure is not None:
                del self.channels[frame.channel]
        elif frame.kind == frames.HEADER:
            channel.on_header(frame.payload)
        else:
            channel.on_body(frame.payload)

    def _on_method(self, method: methods.Method) -> None:
        if isinstance(method, methods.ConnectionClose):
            self._send(methods.ConnectionCloseOk())
            self._fail(self._closed_by(method))
        elif isinstance(method, methods.ConnectionCloseOk) and self._closing is not None:
            self._closing.succeed(method)
            self._fail(Closed("the connection is closed"))
        elif isinstance(method, methods.ConnectionBlocked):
            self.blocked = method.reason
        elif isinstance(method, methods.ConnectionUnblocked):
            self.blocked = None
        elif type(method) is not self._expected or self.is_open:
            raise command_invalid(f"{method.NAME}, which is not expected now")
        elif isinstance(method, methods.ConnectionStart):
            self._start(method)
        elif isinstance(method, methods.ConnectionTune):
            self._tune(method)
        else:
            self.is_open = True

    def _closed_by(self, method: methods.ConnectionClose) -> ClientError:
        if not self.is_open and method.reply_code in REFUSALS:
            who = f"user {self.address.user!r} in vhost {self.address.vhost!r}"
            return SetupMissing(f"{self.address} does not let in {who}, check the URL: {method.reply_text}")
        return ConnectionLost(f"{self.address}: the broker closed the connection: {method.reply_text}")

    def _start(self, method: methods.ConnectionStart) -> None:
        if b"PLAIN" not in method.mechanisms.split():
            self._fail(SetupMissing(f"{self.address} does not take a login with name and password (PLAIN)"))
            return
        ours: dict[str, object] = {"product": "penstock", "version": __version__, "capabilities": CAPABILITIES}
        response = b"\0%b\0%b" % (self.address.user.encode(), self.address.password.encode())
        self._send(methods.ConnectionStartOk(table_from_python(ours), "PLAIN", response))
        self._expected = methods.ConnectionTune

    def _tune(self, method: methods.ConnectionTune) -> None:
        if 0 < method.frame_max < FRAME_BYTES_MIN:
            raise command_invalid(f"frames of {method.frame_max} bytes, where {FRAME_BYTES_MIN} are the least")
        self.frame_bytes_max = min(method.frame_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        self._reader.frame_bytes_max = self.frame_bytes_max
        self.channels_max = min(method.channel_max or CHANNELS_MAX, CHANNELS_MAX)
        # Ours alone, 0 included: a client that works on a message for an hour sends none, and must not be cut off for
        # it.
        self.heartbeat_s = self.address.heartbeat_s
        self._send(methods.ConnectionTuneOk(self.channels_max, self.frame_bytes_max, self.heartbeat_s))
        self._send(methods.ConnectionOpen(self.address.vhost))
        self._expected = methods.ConnectionOpenOk
