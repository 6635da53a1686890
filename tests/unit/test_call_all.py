"""Calling several functions of which some fail."""

from __future__ import annotations

import pytest

from penstock.call_all import call_all


def test_each_is_called_and_the_first_error_comes_out_behind_the_last() -> None:
    called: list[int] = []

    def fail(number: int) -> None:
        called.append(number)
        raise ValueError(f"error {number}")

    with pytest.raises(ValueError, match="error 1"):
        call_all([lambda: called.append(0), lambda: fail(1), lambda: fail(2), lambda: called.append(3)])
    assert called == [0, 1, 2, 3]


def test_without_an_error_nothing_comes_out() -> None:
    called: list[int] = []
    call_all([lambda: called.append(0)])
    call_all([])
    assert called == [0]
