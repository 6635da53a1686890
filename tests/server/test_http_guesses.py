"""Whoever guesses passwords over HTTP is slowed as over AMQP."""

from __future__ import annotations

import asyncio

from penstock.broker.broker import Broker
from penstock.clock import ManualClock
from penstock.config import Config
from penstock.history.endpoint import Access
from penstock.server.connection.login_guard import LoginGuard
from penstock.server.connection.password_checks import PasswordChecks
from penstock.server.http.http_answers import BrokerAnswers


def test_guesses_wait_behind_each_other_for_a_user_at_an_address() -> None:
    clock = ManualClock()
    guard = LoginGuard(clock, 1.0)

    async def guess() -> None:
        broker = Broker(Config())
        answers = BrokerAnswers(broker, guard, PasswordChecks(asyncio.get_running_loop(), broker.users, clock))
        assert await answers.access("guest", b"wrong", "127.0.0.1") is Access.UNKNOWN
        assert guard.wait_s("127.0.0.1", "guest") == 1.0
        assert guard.wait_s("127.0.0.2", "guest") == 0.0
        second = asyncio.create_task(answers.access("guest", b"guest", "::ffff:127.0.0.1"))
        await asyncio.sleep(0)
        assert not second.done()
        assert guard.wait_s("127.0.0.1", "guest") == 2.0
        clock.advance(3.0)
        assert await second is Access.GRANTED
        assert guard.wait_s("127.0.0.1", "guest") == 0.0

    asyncio.run(guess())
