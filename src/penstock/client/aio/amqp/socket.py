# unasync: written by hand in each face.
"""A socket to an AMQP broker, with deadlines. `client/sync/amqp/socket.py` is the other one.

Several tasks may wait for what arrives: one of them reads, and the others look again when it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from time import monotonic

from penstock.client.amqp.address import Address
from penstock.client.amqp.sockets import READ_BYTES, set_options, tls_context

# What the broker may take to say goodbye to TLS; then the socket is dropped.
GOODBYE_S = 1.0


class AsyncSocket:
    """Raises OSError for everything that goes wrong."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        # Done when the task that reads at present has read.
        self._reading: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, address: Address) -> AsyncSocket:
        async with asyncio.timeout(address.timeout_s):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=tls_context(address), limit=READ_BYTES
            )
        set_options(writer.get_extra_info("socket").setsockopt)
        return cls(reader, writer)

    async def send(self, data: bytes, timeout_s: float) -> None:
        """Send all of it. The broker may take any time, as long as it takes something within each timeout."""
        # Whole: a cancelled call has not sent half a frame.
        self._writer.write(data)
        unsent = math.inf
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._writer.drain()
            except TimeoutError:
                before, unsent = unsent, self._writer.transport.get_write_buffer_size()
                if unsent >= before or (before == math.inf and unsent >= len(data)):
                    raise

    async def receive(self, deadline_s: float, take: Callable[[bytes], None], done: Callable[[], bool]) -> bool:
        """Hand what arrives to `take`; False when nothing has until the deadline, or when another task has read."""
        limit = asyncio.timeout(None if deadline_s == math.inf else max(0.0, deadline_s - monotonic()))
        if self._reading is not None:
            with contextlib.suppress(TimeoutError):
                async with limit:
                    await asyncio.shield(self._reading)
            return False
        self._reading = asyncio.get_running_loop().create_future()
        try:
            async with limit:
                data = await self._reader.read(READ_BYTES)
            if not data:
                raise ConnectionResetError("the broker hung up")
            take(data)
        except TimeoutError:
            # The system's own, about a peer that does not answer, is an error like any other.
            if not limit.expired():
                raise
            return False
        finally:
            self._reading.set_result(None)
            self._reading = None
        return True

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._writer.wait_closed()
        except OSError:
            self._writer.transport.abort()
