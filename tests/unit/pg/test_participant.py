"""What a participant decides: by hand-made times, and against a model of what the database was told."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.pg.participant import LOOKS_S, MOMENT_S, SWEEP_S, Chore, Participant, moment_s, soon_s

# A session says that it waits at once, a broker after some looks in vain; a session stays with it for a while.
SESSION = {"says_after_s": 0.0, "stays_s": 1.0}
BROKER = {"grace_s": 5.0, "says_after_s": 0.02}
KINDS = pytest.mark.parametrize("manners", [SESSION, BROKER], ids=["session", "broker"])


# --- when to look again -----------------------------------------------------------------------------------


def test_looks_come_often_at_first_and_then_not_by_themselves() -> None:
    now_s = 100.0
    looks = []
    while (pause_s := soon_s(100.0, now_s)) < inf:
        now_s += pause_s
        looks.append(round(now_s - 100.0, 6))
    assert tuple(looks) == LOOKS_S


def test_what_takes_time_in_between_skips_looks() -> None:
    assert soon_s(0.0, 0.05) == pytest.approx(0.05)


def test_however_slow_the_looks_are_one_follows_after_the_database_was_told_to_notify() -> None:
    participant = Participant("q", "consumer", says_after_s=0.02)
    assert not participant.found_nothing(10.0)
    assert participant.next_look_s(10.0) == LOOKS_S[0]
    # The second one took very long: it is too late for all of the looks that were planned.
    assert participant.found_nothing(20.0)
    assert participant.next_look_s(20.0) < inf
    participant.told_waiting(True)
    assert not participant.found_nothing(20.1)
    assert participant.next_look_s(20.1) == inf


def test_a_hint_begins_the_looks_anew() -> None:
    participant = Participant("q", "consumer")
    participant.found_nothing(10.0)
    participant.told_waiting(True)
    assert participant.next_look_s(20.0) == inf
    participant.hinted()
    assert not participant.found_nothing(20.0)
    assert participant.next_look_s(20.0) == LOOKS_S[0]


@given(st.lists(st.tuples(st.sampled_from(["empty", "full", "hint", "lost"]), st.floats(0.0, 2.0)), max_size=60))
@KINDS
def test_who_finds_nothing_is_notified_or_looks_again(
    manners: dict[str, float], steps: list[tuple[str, float]]
) -> None:
    participant = Participant("q", "consumer", **manners)
    clock = ManualClock()
    # The model: what the database knows, and whether there was a look since it was told.
    notifies = has_looked_since = False
    participant.attached(1)
    for what, pause_s in steps:
        clock.advance(pause_s)
        now_s = clock.monotonic_s()
        if what == "hint":
            participant.hinted()
            continue
        if what == "lost":
            participant.lost()
            assert participant.attach_parameters()[-1] == 1
            assert participant.attached(1)
            notifies = False
            continue
        is_empty = what == "empty"
        has_looked_since = notifies and is_empty
        is_told = participant.found_nothing(now_s) if is_empty else participant.found(now_s)
        looks_again = not is_empty or participant.next_look_s(now_s) < inf
        if is_told:
            assert notifies != is_empty, "the database knows that already"
            notifies = is_empty
            has_looked_since = False
            participant.told_waiting(is_empty)
        assert participant.is_waiting == notifies
        assert looks_again or (notifies and has_looked_since)


def test_a_consumer_that_is_woken_by_every_message_stays_with_its_word_for_a_while() -> None:
    participant = Participant("q", "consumer", stays_s=1.0)
    assert participant.found_nothing(10.0)
    participant.told_waiting(True)
    participant.waited(10.2)
    assert not participant.found(10.9)
    assert not participant.found_nothing(11.0)
    assert participant.found(11.3)
    participant.told_waiting(False)
    assert participant.found_nothing(12.0)


# --- being there ------------------------------------------------------------------------------------------


def test_a_participant_takes_its_number_up_again_and_hears_when_it_has_another() -> None:
    participant = Participant("q", "consumer", grace_s=5.0)
    assert participant.attach_parameters() == ("q", "consumer", 5.0, None)
    assert participant.attached(7)
    participant.told_waiting(True)
    participant.lost()
    assert not participant.is_attached
    assert not participant.is_waiting
    assert participant.attach_parameters() == ("q", "consumer", 5.0, 7)
    assert participant.attached(7)
    participant.lost()
    assert not participant.attached(8)
    assert participant.number == 8
    assert participant.is_attached


# --- notifications and chores -----------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["", "7", "9"])
def test_a_notification_for_us_or_for_all_is_followed_at_once(named: str) -> None:
    assert moment_s(named, ["7", "9"]) == 0.0


def test_a_message_is_left_to_the_one_who_is_named_for_a_moment() -> None:
    for _ in range(100):
        assert MOMENT_S[0] <= moment_s("8", ["7"]) <= MOMENT_S[1]


def test_a_chore_is_due_at_once_or_when_it_was_said_and_then_every_so_often() -> None:
    assert Chore(SWEEP_S).is_due(0.0)
    later = Chore(SWEEP_S, 4.0)
    assert not later.is_due(3.9)
    for now_s in (4.0, 8.0, 12.0):
        assert later.is_due(now_s)
        assert not later.is_due(now_s + SWEEP_S[0] - 0.1)
