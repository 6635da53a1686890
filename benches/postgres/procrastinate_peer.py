"""procrastinate through its Python API: `defer`, `batch_defer`, its worker, and what its worker calls.

It has no call that reserves or finalizes several jobs: its batches of these are calls one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import procrastinate
import psycopg
from procrastinate.jobs import Status

from benches.postgres.systems import FILL_ROWS, PAYLOAD, PROCRASTINATE, QUEUE, Client, System, Taken

TASK: Final = "bench.task"
# More jobs at once in a worker do not raise its rate further.
CONCURRENCY: Final = 4
# Its worker's look at the table where no notification has come.
POLL_S: Final = 5.0
SECONDS_TO_LISTEN: Final = 0.3
# Rows that are there beforehand; its own insert trigger makes of each what a defer makes of it.
FILL: Final = """
INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args, status)
SELECT %s, %s, 0, jsonb_build_object('payload', %s::text), 'todo' FROM generate_series(1, %s)
"""


class Producer(Client):
    def __init__(self, url: str) -> None:
        self._app = procrastinate.App(
            connector=procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1, max_size=1)
        )
        self._app.open()
        self._deferrer = self._app.configure_task(TASK, queue=QUEUE, allow_unknown=True)

    def put(self, payloads: Sequence[bytes]) -> None:
        if len(payloads) == 1:
            self._deferrer.defer(payload=payloads[0].decode())
        else:
            kwargs: list[dict[str, Any]] = [{"payload": payload.decode()} for payload in payloads]
            self._deferrer.batch_defer(*kwargs)

    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        raise NotImplementedError("a producer does not reserve")

    def finalize(self, taken: Sequence[Taken]) -> None:
        raise NotImplementedError("a producer does not finalize")

    def close(self) -> None:
        self._app.close()


class Consumer(Client):
    """The two calls of its worker's job manager, without the worker around them."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=1))
        self._run(self._app.open_async())
        self._manager = self._app.job_manager
        self._number: int = self._run(self._manager.register_worker())

    def _run(self, call: Any) -> Any:
        return self._loop.run_until_complete(call)

    def put(self, payloads: Sequence[bytes]) -> None:
        raise NotImplementedError("a consumer does not put")

    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        return list(self._run(self._reserve(count)))

    async def _reserve(self, count: int) -> list[Taken]:
        taken: list[Taken] = []
        while len(taken) < count:
            job = await self._manager.fetch_job([QUEUE], self._number)
            if job is None:
                break
            taken.append(Taken(job, str(job.task_kwargs["payload"]).encode()))
        return taken

    def finalize(self, taken: Sequence[Taken]) -> None:
        self._run(self._finalize(taken))

    async def _finalize(self, taken: Sequence[Taken]) -> None:
        for one in taken:
            await self._manager.finish_job(one.key, Status.SUCCEEDED, delete_job=False)

    def close(self) -> None:
        self._run(self._app.close_async())
        self._loop.close()


class Procrastinate(System):
    name = PROCRASTINATE

    def version(self) -> str:
        return importlib.metadata.version("procrastinate")

    def install(self, url: str) -> None:
        app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
        with app.open():
            app.schema_manager.apply_schema()

    def producer(self, url: str) -> Client:
        return Producer(url)

    def consumer(self, url: str) -> Client:
        return Consumer(url)

    def fill(self, url: str, rows: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for first in range(0, rows, FILL_ROWS):
                connection.execute(FILL, (QUEUE, TASK, PAYLOAD.decode(), min(FILL_ROWS, rows - first)))

    def consume(
        self, url: str, batch: int, until: float, ready: Callable[[], float], got: Callable[[int], None]
    ) -> int:
        return asyncio.run(work(url, until, ready, got))


async def work(url: str, until: float, ready: Callable[[], float], got: Callable[[int], None]) -> int:
    """Its own worker; how many tasks it has run."""
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=CONCURRENCY + 1)
    )
    done = 0

    @app.task(name=TASK, queue=QUEUE)
    async def task(payload: str) -> None:
        nonlocal done
        done += 1
        got(1)

    async with app.open_async():
        worker = asyncio.create_task(
            app.run_worker_async(
                queues=[QUEUE],
                concurrency=CONCURRENCY,
                fetch_job_polling_interval=POLL_S,
                install_signal_handlers=False,
            )
        )
        # It tells nobody when it listens.
        await asyncio.sleep(SECONDS_TO_LISTEN)
        start = await asyncio.to_thread(ready)
        await asyncio.wait([worker], timeout=start + until - time.monotonic())
        counted = done
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker
    return counted
