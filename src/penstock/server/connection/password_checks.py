"""Checks passwords off the event loop, a few at a time.

A check of an argon2id hash takes some 20 ms and 19 MiB. So it runs on one of a few threads, and a flood of logins waits
there and not on the loop; the connections that wait are bounded as all that have not logged in are. A password that was
right is remembered for some minutes, as a digest under a key of this process: thousands of connections of one
application cost one check. A refusal takes as long for a wrong password as for a user who does not exist.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from penstock import limits
from penstock.broker.access.password import process_digest
from penstock.broker.access.user import User
from penstock.broker.access.users import Users, is_right
from penstock.clock import Clock

Done = Callable[[User | None], None]
Result = TypeVar("Result")


class PasswordChecks:
    def __init__(self, loop: asyncio.AbstractEventLoop, users: Users, clock: Clock) -> None:
        self._loop = loop
        self._users = users
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        # By name: the user as it was when its password was right, the digest, and until when it holds.
        self._remembered: dict[str, tuple[User, bytes, float]] = {}

    def is_known(self, name: str, password: bytes) -> bool:
        """Return whether the password is right, as far as that is known without a check."""
        user = self._users.get(name)
        return user is not None and bool(password) and self._is_known(user, password)

    def check(self, name: str, password: bytes, done: Done) -> None:
        """Call `done` with the user, or with None when name or password are wrong; at once if that is known."""
        user = self._users.get(name)
        if user is not None and password and self._is_known(user, password):
            done(user)
            return
        self.run(partial(is_right, user, password), partial(self._checked, user, password, done))

    def run(self, work: Callable[[], Result], done: Callable[[Result], None]) -> None:
        """Run on one of the threads, and call `done` with the result, on the loop."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(limits.PASSWORD_CHECKS_MAX, "penstock-passwords")
        future = self._loop.run_in_executor(self._threads, work)

        def over(each: asyncio.Future[Result]) -> None:
            if not each.cancelled():
                done(each.result())

        future.add_done_callback(over)

    async def check_soon(self, name: str, password: bytes) -> User | None:
        """Return the user, or None when name or password are wrong."""
        answer: asyncio.Future[User | None] = self._loop.create_future()

        def done(user: User | None) -> None:
            if not answer.done():
                answer.set_result(user)

        self.check(name, password, done)
        return await answer

    def _is_known(self, user: User, password: bytes) -> bool:
        """Whether it is the configuration's password, or one that was right a short time ago."""
        if user.is_configured and user.password is not None:
            return user.password.matches(password)
        known, digest, until_s = self._remembered.get(user.name, (None, b"", 0.0))
        # Another record: its password may be another one, too.
        if known is not user or self._clock.monotonic_s() > until_s:
            return False
        return hmac.compare_digest(digest, process_digest(password))

    def _checked(self, user: User | None, password: bytes, done: Done, is_right: bool) -> None:
        is_still_there = user is not None and self._users.get(user.name) is user
        if is_right and user is not None and is_still_there:
            self._remember(user, password)
            done(user)
        else:
            done(None)

    def _remember(self, user: User, password: bytes) -> None:
        if len(self._remembered) >= limits.PASSWORDS_REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        until_s = self._clock.monotonic_s() + limits.PASSWORD_REMEMBERED_S
        self._remembered[user.name] = (user, process_digest(password), until_s)

    def close(self) -> None:
        """Start no other check; those under way end by themselves."""
        self._remembered.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
