"""Who has to wait before a password is looked at, and who has not."""

from __future__ import annotations

from penstock import limits
from penstock.clock import ManualClock
from penstock.server.connection.login_guard import LoginGuard

HERE = "10.0.0.7"
THERE = "10.0.0.8"


def guard(delay_s: float = 1.0) -> tuple[LoginGuard, ManualClock]:
    clock = ManualClock()
    clock.advance(1000)
    return LoginGuard(clock, delay_s), clock


def test_after_a_refusal_the_same_user_from_there_waits_and_nobody_else() -> None:
    made, clock = guard()
    assert made.wait_s(HERE, "u") == 0
    made.refused(HERE, "u")
    assert made.wait_s(HERE, "u") == 1
    assert made.wait_s(HERE, "other") == made.wait_s(THERE, "u") == 0
    clock.advance(1)
    assert made.wait_s(HERE, "u") == 0


def test_guesses_that_come_together_wait_behind_each_other() -> None:
    made, _ = guard()
    made.refused(HERE, "u")
    waits = []
    for _ in range(5):
        waits.append(made.wait_s(HERE, "u"))
        made.take_turn(HERE, "u")
    assert waits == [1, 2, 3, 4, 5]


def test_a_login_that_succeeds_ends_the_waiting() -> None:
    made, _ = guard()
    made.refused(HERE, "u")
    made.take_turn(HERE, "u")
    made.succeeded(HERE, "u")
    assert made.wait_s(HERE, "u") == 0


def test_a_flood_of_guesses_is_over_when_a_handshake_would_be() -> None:
    made, clock = guard()
    for _ in range(10_000):
        made.refused(HERE, "u")
        made.take_turn(HERE, "u")
    assert made.wait_s(HERE, "u") <= limits.LOGIN_WAIT_S_MAX
    clock.advance(limits.LOGIN_WAIT_S_MAX)
    assert made.wait_s(HERE, "u") == 0


def test_an_address_that_guesses_over_many_users_is_slowed_as_a_whole() -> None:
    made, clock = guard()
    for number in range(limits.LOGIN_GUESSES_FREE):
        assert made.wait_s(HERE, f"u{number}") == 0
        made.refused(HERE, f"u{number}")
    for number in range(20):
        made.refused(HERE, f"v{number}")
    assert made.wait_s(HERE, "another") > 0
    assert made.wait_s(THERE, "another") == 0
    clock.advance(limits.LOGIN_WAIT_S_MAX)
    assert made.wait_s(HERE, "another") == 0


def test_the_table_is_bounded() -> None:
    made, _ = guard()
    for number in range(limits.LOGIN_GUARD_ENTRIES_MAX + 100):
        made.refused(f"address {number}", "u")
    assert len(made) <= limits.LOGIN_GUARD_ENTRIES_MAX
    last = limits.LOGIN_GUARD_ENTRIES_MAX + 99
    assert made.wait_s(f"address {last}", "u") == 1


def test_without_a_delay_nobody_waits() -> None:
    made, _ = guard(0.0)
    for _ in range(1000):
        made.refused(HERE, "u")
    assert made.wait_s(HERE, "u") == 0
    assert len(made) == 0
