"""penstock as an application uses it from Python: `penstock.Session`."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

import penstock
from benches.postgres.systems import QUEUE, SESSION, Client, System, Taken
from penstock.client.sync.session import Session
from penstock.pg.install import install


class SessionProducer(Client):
    def __init__(self, url: str) -> None:
        self._session = Session(url)
        self._producer = self._session.producer_for(QUEUE)

    def put(self, payloads: Sequence[bytes]) -> None:
        if len(payloads) == 1:
            self._producer.put(payloads[0])
        else:
            self._producer.put_many(payloads)

    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        raise NotImplementedError("a producer does not reserve")

    def finalize(self, taken: Sequence[Taken]) -> None:
        raise NotImplementedError("a producer does not finalize")

    def close(self) -> None:
        self._session.close()


class SessionConsumer(Client):
    def __init__(self, url: str) -> None:
        self._session = Session(url)
        self._consumer = self._session.consumer_for(QUEUE)

    def put(self, payloads: Sequence[bytes]) -> None:
        raise NotImplementedError("a consumer does not put")

    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        return [Taken(message, message.payload) for message in self._consumer.reserve_many(count, wait_s)]

    def finalize(self, taken: Sequence[Taken]) -> None:
        if len(taken) == 1:
            self._consumer.finalize(taken[0].key)
        else:
            self._consumer.finalize_many([one.key for one in taken])

    def turn(self, taken: Sequence[Taken], count: int) -> list[Taken]:
        if len(taken) != 1 or count != 1:
            messages = self._consumer.finalize_many_and_reserve([one.key for one in taken], count)
            return [Taken(message, message.payload) for message in messages]
        message = self._consumer.finalize_and_reserve(taken[0].key)
        return [] if message is None else [Taken(message, message.payload)]

    def close(self) -> None:
        self._session.close()


class PenstockSession(System):
    name = SESSION

    def version(self) -> str:
        return str(penstock.__version__)

    def install(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            install(connection)

    def producer(self, url: str) -> Client:
        return SessionProducer(url)

    def consumer(self, url: str) -> Client:
        return SessionConsumer(url)
