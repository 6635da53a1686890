"""A broker's HTTP endpoint with something wrong: its counters pass through a function before they are answered."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Change = Callable[[dict[str, Any]], None]
# Of a connection, not of what it carries.
HOP_BY_HOP = ("transfer-encoding", "content-length", "connection", "date", "server")


@contextmanager
def altered_counters(port: int, change: Change) -> Iterator[str]:
    """The URL of an endpoint that is that of the broker on `port`, but for its counters."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            try:
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                connection.request("GET", self.path, headers=headers)
                answer = connection.getresponse()
                body = answer.read()
            finally:
                connection.close()
            if self.path.endswith("/counters"):
                counters = json.loads(body)
                change(counters)
                body = json.dumps(counters).encode()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
