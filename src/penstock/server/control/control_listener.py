"""Listens on the control socket. A request is one line of JSON, and so is each answer.

    {"operation": "add_vhost", "arguments": {"name": "shop"}}
    {"ok": true, "result": null}
    {"ok": false, "error": {"kind": "exists", "text": "vhost 'shop' exists already"}}

While an operation takes long there may be lines `{"progress": {…}}` before its answer. Whoever may open the socket is
the owner of the data folder: its mode is 0600, in a folder of mode 0700. A request that is not understood is answered,
and its connection closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from typing import Any, Final

from penstock import limits
from penstock.broker.operations.actor import owner
from penstock.broker.operations.perform import Answer, Performer
from penstock.errors import StartupError
from penstock.server.control.socket_path import SOCKET_NAME, socket_path

log: Final = logging.getLogger("penstock.control")

CONTROL: Final = "control"


class ControlListener:
    def __init__(self, performer: Performer, folder: str) -> None:
        self._performer = performer
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.internal_errors = 0

    async def start(self) -> None:
        """Listen. Raises StartupError."""
        if not hasattr(socket, "AF_UNIX"):
            return
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_path(self._folder) as path:
                # The broker has the lock of the folder, so whatever is there was left by one that is gone.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                before = os.umask(0o177)
                try:
                    listening.bind(path)
                finally:
                    os.umask(before)
            self._server = await asyncio.start_unix_server(
                self._accepted, sock=listening, limit=limits.CONTROL_REQUEST_BYTES_MAX
            )
        except NotImplementedError:
            # A loop without such sockets, as on Windows.
            listening.close()
        except OSError as error:
            listening.close()
            raise StartupError(f"cannot listen on {SOCKET_NAME} in {self._folder}: {error}") from error

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, SOCKET_NAME))

    def abandon(self) -> None:
        """Let go of the socket as a crash would: its name stays in the folder."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > limits.CONTROL_CONNECTIONS_MAX:
                await _write(writer, _error("busy", f"{limits.CONTROL_CONNECTIONS_MAX} commands are connected already"))
            else:
                await self._serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            # The command has gone, or the broker stops.
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                most = limits.CONTROL_REQUEST_BYTES_MAX
                await _write(writer, _error("bad_request", f"a request has at most {most} bytes"))
                return
            if not line:
                return
            request = _parse(line)
            if request is None:
                await _write(writer, _error("bad_request", "a request is one line of JSON: see docs/control.md"))
                return
            await _write(writer, await self._perform(writer, *request))

    async def _perform(self, writer: asyncio.StreamWriter, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def give(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        def progress(how_far: dict[str, Any]) -> None:
            if not writer.is_closing():
                writer.write(_line({"progress": how_far}))

        try:
            self._performer.perform(owner(CONTROL), name, arguments, give, progress)
        except Exception:
            self.internal_errors += 1
            log.exception("internal error in operation %s", ascii(name[:100]))
            return _error("internal", "internal error; the broker's log says more")
        answer = await answered
        if answer.error is not None:
            return _error(answer.error.kind, str(answer.error))
        return {"ok": True, "result": answer.result}


def _parse(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    name, arguments = request.get("operation"), request.get("arguments", {})
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"ok": False, "error": {"kind": kind, "text": text}}


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


async def _write(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(_line(answer))
    await writer.drain()
