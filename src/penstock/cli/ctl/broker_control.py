"""The command's end of the control socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from penstock.server.control.socket_path import socket_path

READ_BYTES: Final = 1024 * 1024


class NoBroker(Exception):
    """No broker answers; the text says what to do."""


class Refused(Exception):
    """The broker did not do it. `kind` is for programs: not_found, exists, bad_request, not_allowed, failed."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class BrokerControl:
    def __init__(self, data_dir: str) -> None:
        """Connect to the broker that uses the data folder; raises NoBroker."""
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_path(data_dir) as path:
                self._socket.connect(path)
        except PermissionError as error:
            self._socket.close()
            raise NoBroker(
                f"the broker in {data_dir} belongs to another user: run this command as that user"
            ) from error
        except OSError as error:
            self._socket.close()
            raise NoBroker(
                f"no broker runs with the data folder {data_dir}: start one with `penstock serve`, or name its folder"
                " with --data-dir (or PENSTOCK_DATA_DIR)"
            ) from error

    def __enter__(self) -> BrokerControl:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(
        self, operation: str, arguments: dict[str, Any], on_progress: Callable[[dict[str, Any]], None] | None = None
    ) -> Any:
        """Return what the operation returns; raises Refused, or NoBroker when the broker ends meanwhile."""
        self._socket.sendall(json.dumps({"operation": operation, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(self._line())
            if "progress" in answer:
                if on_progress is not None:
                    on_progress(answer["progress"])
            elif answer["ok"]:
                return answer["result"]
            else:
                raise Refused(answer["error"]["kind"], answer["error"]["text"])

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(READ_BYTES)
            except OSError as error:
                raise NoBroker(f"the broker has gone: {error}") from error
            if not data:
                raise NoBroker("the broker has stopped before it answered; its log says why")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
