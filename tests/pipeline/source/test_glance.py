"""A question that is asked no more often than it makes sense."""

from __future__ import annotations

from itertools import count

import pytest

from penstock.pipeline.source import glance
from penstock.pipeline.source.glance import Glance


def test_an_answer_is_good_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(glance.time, "monotonic", lambda: clock)
    answers = count()
    question = Glance(lambda: next(answers), 2.0)
    assert [question.latest(), question.latest()] == [0, 0]
    clock = 101.9
    assert question.latest() == 0
    assert question.now() == 1
    clock = 103.8
    assert question.latest() == 1
    clock = 103.9
    assert question.latest() == 2


def test_without_a_pause_it_is_asked_each_time() -> None:
    answers = count()
    question = Glance(lambda: next(answers), 0.0)
    assert [question.latest(), question.latest(), question.now()] == [0, 1, 2]
