"""A door between a broker and its PostgreSQL that a test can shut: at once, or just before an answer."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit


class PgProxy:
    """Listens on a socket of its own in `folder` and hands octets on."""

    def __init__(self, url: str, folder: Path) -> None:
        self._target = f"{parse_qs(urlsplit(url).query)['host'][0]}/.s.PGSQL.5432"
        self.url = url.split("?")[0] + f"?host={quote(str(folder), safe='')}"
        self._path = str(folder / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        # Octets of a statement; the connection that sends it is cut when its answer comes.
        self._cut_after: bytes | None = None
        self.cut_count = 0
        self.is_shut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_answer_to(self, statement: bytes) -> None:
        """Of the next statement with these octets in it the server gets everything, and the client hears nothing."""
        self._cut_after = statement

    def shut(self) -> None:
        """Cut everybody off, and let nobody in."""
        self.is_shut = True
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _end(end)

    def open(self) -> None:
        self.is_shut = False

    def close(self) -> None:
        self.shut()
        _end(self._listener)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_shut:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                server.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            thread = threading.Thread(target=self._serve, args=(client, server), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            doomed = threading.Event()
            back = threading.Thread(target=self._forward, args=(server, client, doomed, False), daemon=True)
            back.start()
            self._forward(client, server, doomed, True)
            back.join()
            with self._lock:
                self._pairs = [pair for pair in self._pairs if pair[0] is not client]

    def _forward(self, source: socket.socket, target: socket.socket, doomed: threading.Event, is_client: bool) -> None:
        try:
            while data := source.recv(65536):
                wanted = self._cut_after
                if is_client and wanted is not None and wanted in data:
                    self._cut_after = None
                    doomed.set()
                elif not is_client and doomed.is_set():
                    self.cut_count += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        _end(source)
        _end(target)


def _end(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
