"""What a session can meet instead of a good broker: one that says what the test wants, and one behind TLS."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

from penstock.client.amqp.frame_reader import FrameReader
from penstock.testing import Broker
from penstock.wire import frames, methods

# For what must happen; a test that fails waits so long for it.
PATIENCE_S = 60.0


class FakeBroker:
    """Accepts connections one after the other and runs the test's script with each, on a thread of its own."""

    def __init__(self, script: Callable[[FakeConnection], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._accepted: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self.url = f"amqp://guest:secret@127.0.0.1:{self.port}/"

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for accepted in self._accepted:
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        for accepted in self._accepted:
            accepted.close()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._accepted.append(accepted)
            # A client that has had enough hangs up.
            with contextlib.suppress(OSError, EOFError):
                self._script(FakeConnection(accepted))


class FakeConnection:
    """The broker's side of a connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self._reader = FrameReader(131_072)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, channel: int, *said: methods.Method) -> None:
        self.send(b"".join(frames.method_frame(channel, method.encode()) for method in said))

    def hear(self, *wanted: type[methods.Method]) -> tuple[int, methods.Method]:
        """The next method of one of these kinds, or of any; its channel, and what it is."""
        while True:
            frame = self._reader.next()
            if frame is None:
                data = self.socket.recv(65_536)
                if not data:
                    raise EOFError
                self._reader.feed(data)
            elif frame.kind == frames.METHOD:
                method = methods.decode_method(frame.payload, 0, len(frame.payload))
                if not wanted or type(method) in wanted:
                    return frame.channel, method

    def hear_nothing_more(self) -> None:
        """Until the client hangs up."""
        while self.socket.recv(65_536):
            pass

    def hear_header(self) -> None:
        assert self.socket.recv(8, socket.MSG_WAITALL) == frames.PROTOCOL_HEADER

    def welcome(self, tune: methods.ConnectionTune | None = None) -> None:
        """The whole handshake."""
        self.hear_header()
        self.say(0, methods.ConnectionStart(0, 9, {}, b"PLAIN AMQPLAIN", b"en_US"))
        self.hear(methods.ConnectionStartOk)
        self.say(0, tune or methods.ConnectionTune(2047, 131_072, 60))
        self.hear(methods.ConnectionOpen)
        self.say(0, methods.ConnectionOpenOk())

    def serve_until(self, last: type[methods.Method]) -> tuple[int, methods.Method]:
        """Answer whatever a producer or consumer needs, until it calls this."""
        while True:
            channel, method = self.hear()
            if type(method) is last:
                return channel, method
            if isinstance(method, methods.ConnectionClose):
                self.say(0, methods.ConnectionCloseOk())
            elif isinstance(method, methods.ChannelClose):
                self.say(channel, methods.ChannelCloseOk())
            elif isinstance(method, methods.ChannelOpen):
                self.say(channel, methods.ChannelOpenOk())
            elif isinstance(method, methods.QueueDeclare):
                self.say(channel, methods.QueueDeclareOk(method.queue, 0, 0))
            elif isinstance(method, methods.ConfirmSelect):
                self.say(channel, methods.ConfirmSelectOk())
            elif isinstance(method, methods.BasicGet):
                self.say(channel, methods.BasicGetEmpty())
            elif isinstance(method, methods.BasicQos):
                self.say(channel, methods.BasicQosOk())
            elif isinstance(method, methods.BasicConsume):
                self.say(channel, methods.BasicConsumeOk(method.consumer_tag))


@contextmanager
def behind_tls(broker: Broker, folder: Path) -> Iterator[tuple[int, Path]]:
    """The port of a proxy that speaks TLS for the broker, and the certificate that vouches for it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with (apt-get install openssl)")
    certificate, key = folder / "broker.pem", folder / "broker.key"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:TRUE"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def proxy(connection: FakeConnection) -> None:
        # A client that does not trust us goes away in the middle of the handshake.
        with (
            context.wrap_socket(connection.socket, server_side=True) as near,
            socket.create_connection((broker.host, broker.port)) as far,
        ):
            back = threading.Thread(target=pump, args=(far, near), daemon=True)
            back.start()
            pump(near, far)
            back.join(PATIENCE_S)

    with FakeBroker(proxy) as front:
        yield front.port, certificate


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
