"""A door between clients and PostgreSQL that knows the protocol's messages: it can be deaf, and it can cut at a COMMIT.

*Deaf*: notifications do not come through; everything else does. *Cut*: the next statement with given words in it either
does not reach the server, or is carried out and committed there, and its answer does not reach the client. An answer
without rows is not worth it where rows are wanted: it is let through, and the next one is waited for.
"""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

SOCKET_NAME = ".s.PGSQL.5432"
# Messages of the protocol, by the letter they begin with.
PARSE, BIND, QUERY = b"P", b"B", b"Q"
NOTIFICATION, READY, ROW = b"A", b"Z", b"D"


class Cut(NamedTuple):
    """Where to cut."""

    words: bytes
    is_carried_out: bool
    needs_rows: bool


class PgProxy:
    """Listens on a socket of its own in `folder`, which it makes if it is not there."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._target = f"{parse_qs(urlsplit(url).query)['host'][0]}/{SOCKET_NAME}"
        self.url = url.split("?")[0] + f"?host={quote(str(folder), safe='')}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET_NAME))
        self._listener.listen(50)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut: Cut | None = None
        self.is_deaf = False
        self._is_shut = False
        self.dropped_count = 0
        self.cut_count = 0
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def cut_at(self, words: bytes, is_carried_out: bool, needs_rows: bool = False) -> None:
        """The next statement with these words is carried out and not answered; or neither."""
        self._cut = Cut(words, is_carried_out, needs_rows)

    def cut_again(self, cut: Cut) -> None:
        """It was not worth it, or somebody else was faster."""
        self._cut = cut

    def cancel_cut(self) -> None:
        self._cut = None

    def drop_all(self) -> None:
        """Cut every connection, wherever it is."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            shut(end)

    def shut(self) -> None:
        """Cut every connection, and let nobody in."""
        self._is_shut = True
        self.drop_all()

    def open(self) -> None:
        self._is_shut = False

    def close(self) -> None:
        shut(self._listener)
        self._listener.close()
        self.drop_all()
        self._acceptor.join()

    def take_cut(self, texts: dict[bytes, bytes], kind: bytes, body: bytes) -> Cut | None:
        """The cut to be made at this message of a client, if there is one. `texts` are its statements by name."""
        with self._lock:
            cut = self._cut
            if cut is None:
                return None
            text = body if kind == QUERY else texts.get(body.split(b"\0", 2)[1], b"") if kind == BIND else b""
            if cut.words not in text:
                return None
            self._cut = None
            return cut

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_shut:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                server.close()
                continue
            Pair(self, client, server).start()

    def opened(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open.update(ends)

    def closed(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open.difference_update(ends)
        for end in ends:
            end.close()


class Pair:
    """One connection through the proxy: a thread for each way."""

    def __init__(self, proxy: PgProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        # Text of the statements that the client has prepared, by name; "" is the unnamed one.
        self._texts: dict[bytes, bytes] = {}
        # The cut that is being made, and the answer that is held back for it.
        self._cut: Cut | None = None
        self._held_back: list[bytes] = []

    def start(self) -> None:
        self._proxy.opened(self._client, self._server)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        back = threading.Thread(target=self._pump, args=(self._server, self._client, False), daemon=True)
        back.start()
        self._pump(self._client, self._server, True)
        back.join()
        if self._cut is not None:
            self._proxy.cut_again(self._cut)
        self._proxy.closed(self._client, self._server)

    def _pump(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        held = b""
        has_begun = not is_client
        try:
            while data := source.recv(65536):
                held += data
                if not has_begun:
                    # The first message has no letter.
                    if len(held) < 4 or len(held) < (length := struct.unpack_from(">I", held)[0]):
                        continue
                    target.sendall(held[:length])
                    held, has_begun = held[length:], True
                held, passed, is_over = self._sift(held, is_client)
                if passed:
                    target.sendall(passed)
                if is_over:
                    break
        except OSError:
            pass
        shut(source)
        shut(target)

    def _sift(self, held: bytes, is_client: bool) -> tuple[bytes, bytes, bool]:
        """What is incomplete, what goes on to the other side, and whether that is all."""
        passed: list[bytes] = []
        pos = 0
        while len(held) - pos >= 5:
            end = pos + 1 + struct.unpack_from(">I", held, pos + 1)[0]
            if end > len(held):
                break
            kind, message = held[pos : pos + 1], held[pos:end]
            some = self._asked(kind, message) if is_client else self._answered(kind, message)
            if some is None:
                return b"", b"".join(passed), True
            passed += some
            pos = end
        return held[pos:], b"".join(passed), False

    def _asked(self, kind: bytes, message: bytes) -> list[bytes] | None:
        """What goes on to the server; None: nothing ever again."""
        body = message[5:]
        if kind == PARSE:
            name, text, _ = body.split(b"\0", 2)
            self._texts[name] = text
        cut = self._proxy.take_cut(self._texts, kind, body)
        if cut is not None:
            if not cut.is_carried_out:
                self._proxy.cut_count += 1
                return None
            self._cut = cut
        return [message]

    def _answered(self, kind: bytes, message: bytes) -> list[bytes] | None:
        """What goes on to the client; None: nothing ever again."""
        if kind == NOTIFICATION and self._proxy.is_deaf:
            self._proxy.dropped_count += 1
            return []
        cut = self._cut
        if cut is None:
            return [message]
        self._held_back.append(message)
        if kind != READY:
            # The transaction is over when the server is ready for the next statement, not before.
            return []
        self._cut = None
        if not cut.needs_rows or ROW in [each[:1] for each in self._held_back]:
            self._proxy.cut_count += 1
            return None
        some, self._held_back = self._held_back, []
        self._proxy.cut_again(cut)
        return some


def shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
