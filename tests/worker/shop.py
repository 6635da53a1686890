"""The application that the tests of the worker run: each function shows one way in which a job can end.

Functions that tests have to wait for tell so through files, and wait themselves on a FIFO that the test opens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Sequence
from os import system  # noqa: F401  (imported, and so not allowed by "tests.worker.shop:*")
from pathlib import Path
from typing import Any

from penstock.worker import Backoff, job


@job(queue="sums")
def add(a: int, b: int = 0) -> int:
    return a + b


@job(queue="failing", max_attempts=3, backoff=Backoff(first_s=0.0))
def fail(path: str) -> None:
    write_line(path, "tried")
    raise ValueError("this never works")


@job(timeout=0.2, max_attempts=1)
def hang() -> None:
    while True:
        signal.pause()


@job(queue="ticks", cron="* * * * *")
def tick() -> str:
    return "tock"


def write_line(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def hold(path: str, gate: str) -> str:
    """Writes its process id to `path`, then waits until somebody opens the FIFO `gate` for writing."""
    write_line(path, str(os.getpid()))
    with Path(gate).open() as file:
        file.read()
    return "released"


def hold_once(path: str, gate: str) -> str:
    """Waits like `hold` the first time, and is done at once the second time."""
    if Path(path).exists():
        write_line(path, "again")
        return "second time"
    return hold(path, gate)


def die(path: str, number: int) -> str:
    """Kills its own process the first time."""
    if Path(path).exists():
        return "survived"
    write_line(path, str(os.getpid()))
    os.kill(os.getpid(), number)
    return "unreachable"


def exit_with(code: int) -> None:
    os._exit(code)


def leave(code: int) -> None:
    sys.exit(code)


def own_pid() -> int:
    return os.getpid()


def echo(value: Any) -> Any:
    return value


def threads() -> int:
    return threading.active_count()


def sockets() -> list[int]:
    """The sockets of this process."""
    return [number for number in range(3, 1024) if _is_socket(number)]


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def open_sockets(known: Sequence[int] = ()) -> int:
    """How many sockets the process of a job has, but for those: its own to the worker, if nothing was inherited."""
    return len([number for number in sockets() if number not in known])


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


async def later(value: str) -> str:
    return value


def spoil(text: str, spared: Sequence[int] = ()) -> None:
    """Writes to every socket it finds, as a careless job might, but for those."""
    for number in sockets():
        if number not in spared:
            with contextlib.suppress(OSError):
                os.write(number, text.encode())


def _private() -> None:
    raise AssertionError("a private function was run")


class Mailer:
    """A class as Resque has them."""

    @classmethod
    def perform(cls, to: str) -> str:
        return f"mailed {to}"


class Counter:
    """A class whose `perform` needs an instance."""

    def __init__(self) -> None:
        self.start = 10

    def perform(self, by: int) -> int:
        return self.start + by

    def reset(self) -> None:
        raise AssertionError("only perform is ever called")


NOT_CALLABLE = 5
