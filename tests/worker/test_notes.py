"""What is written beside a message."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.jobs.backoff import Backoff
from penstock.worker.runners.notes import NOTE_CHARS_MAX, exception_note, first_line, result_note, shortened


class Sulky(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_result_is_noted_as_json() -> None:
    assert result_note({"sent": [1, "ü", None]}) == '{"sent": [1, "ü", null]}'


def test_a_result_that_is_no_json_is_shown_as_a_string() -> None:
    assert json.loads(result_note({1, 2})) == "{1, 2}"
    assert json.loads(result_note(float("nan"))) == "nan"


def test_a_result_that_cannot_be_shown_is_named() -> None:
    assert json.loads(result_note(Sulky())) == "<Sulky>"


def test_a_result_that_contains_itself_is_shown() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert json.loads(result_note(loop)) == "[[...]]"


def test_an_exception_comes_with_its_own_line_first_and_its_traceback() -> None:
    def inner() -> None:
        raise ValueError("out of paper\nand ink")

    try:
        inner()
    except ValueError as error:
        note = exception_note(error, 0)
        without_own = exception_note(error, 1)
    assert note.startswith("ValueError: out of paper")
    assert "in inner" in note
    assert "in test_an_exception" in note
    assert "in inner" in without_own
    assert "in test_an_exception" not in without_own


def test_an_exception_that_cannot_be_shown_is_named() -> None:
    assert "Sulky" in exception_note(Sulky(), 0)


def test_a_long_note_keeps_its_ends() -> None:
    note = shortened("a" + "x" * NOTE_CHARS_MAX + "z")
    assert len(note) == NOTE_CHARS_MAX
    assert note.startswith("a")
    assert note.endswith("z")
    assert "[...]" in note
    assert shortened("x" * NOTE_CHARS_MAX) == "x" * NOTE_CHARS_MAX


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=60), limit=st.integers(20, 40))
def test_a_note_can_always_be_stored(text: str, limit: int) -> None:
    note = shortened(text, limit)
    assert len(note) <= limit
    assert "\0" not in note
    assert note.encode("utf-8").decode("utf-8") == note


def test_a_log_shows_the_first_line_only() -> None:
    assert first_line("a\nb") == "a"
    assert len(first_line("x" * 5000)) == 200


def test_waits_grow_up_to_the_longest() -> None:
    backoff = Backoff(first_s=2.0, factor=3.0, max_s=20.0, jitter=0.0)
    assert [backoff.delay_s(attempt, 0.9) for attempt in (1, 2, 3, 4, 10_000)] == [2.0, 6.0, 18.0, 20.0, 20.0]


@given(attempt=st.integers(1, 2000), chance=st.floats(0, 1, exclude_max=True), jitter=st.floats(0, 1))
def test_chance_only_shortens_a_wait_and_only_by_the_jitter(attempt: int, chance: float, jitter: float) -> None:
    longest = Backoff(jitter=0.0).delay_s(attempt, 0.0)
    delay = Backoff(jitter=jitter).delay_s(attempt, chance)
    assert longest * (1 - jitter) <= delay <= longest
