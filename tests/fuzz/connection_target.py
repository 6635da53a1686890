"""A whole connection as a target for `with_atheris`: the bytes are what a client sends once it has logged in."""

from __future__ import annotations

from random import Random

from .census import Census, clean_up
from .client_frames import encode_all
from .sessions import SessionWriter
from .socketless import SocketlessServer


class ConnectionTarget:
    """One server for all inputs; after each of them it must be as it was."""

    def __init__(self) -> None:
        self._bench = SocketlessServer()
        self._before = Census.of(self._bench.server)

    @staticmethod
    def samples() -> list[bytes]:
        return [encode_all(SessionWriter(Random(seed)).write(10)) for seed in range(20)]

    def __call__(self, data: bytes) -> None:
        bench = self._bench
        client = bench.login()
        client.send(data)
        bench.settle()
        client.said().check()
        client.hang_up()
        bench.check_clean()
        clean_up(bench)
        assert Census.of(bench.server) == self._before
