"""Values in selectors: what a message answers, and how two values are compared and calculated with.

None is "unknown": a header that is missing, and every result that has no meaning, like a text that is less than a
number. Unknown is not an error. A message for which a selector is unknown does not match.

Invariants
1. No function raises, whatever the values are.
2. A result is None, a truth, an integer of 64 bits, or a finite float.
3. Truths, numbers and texts are three kinds. Values of different kinds are neither equal nor unequal: unknown.
   An integer and a float are one kind, and are compared by value, without rounding.
4. A NaN never enters: `known` turns it into None where a message is asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from penstock.selectors.bounds import INTEGER_MAX, INTEGER_MIN

Value = bool | int | float | str | None
Truth = bool | None

EQUAL: Final = 0
UNEQUAL: Final = 1
LESS: Final = 2
LESS_OR_EQUAL: Final = 3
GREATER: Final = 4
GREATER_OR_EQUAL: Final = 5

PLUS: Final = 0
MINUS: Final = 1
TIMES: Final = 2
DIVIDED_BY: Final = 3

INFINITY: Final = float("inf")


class View(ABC):
    """One message as a selector sees it."""

    @abstractmethod
    def header(self, name: str) -> Value:
        """Return the header of this name; None where there is none, or where it has no plain value."""

    @abstractmethod
    def prop(self, name: str) -> Value:
        """Return the property `amqp.<name>`; None where the message has none."""


def known(value: Value) -> Value:
    """Return the value, or None for a NaN, which is equal to nothing and would make NOT lie."""
    if isinstance(value, float) and value != value:
        return None
    return value


def compare(operator: int, left: Value, right: Value) -> Truth:
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, bool):
            return _compare_truths(operator, left, right)
        return None
    if isinstance(left, str) or isinstance(right, str):
        if isinstance(left, str) and isinstance(right, str):
            return _compare_texts(operator, left, right)
        return None
    return _compare_numbers(operator, left, right)


def _compare_truths(operator: int, left: bool, right: bool) -> Truth:
    if operator == EQUAL:
        return left == right
    if operator == UNEQUAL:
        return left != right
    return None


def _compare_texts(operator: int, left: str, right: str) -> bool:
    if operator == EQUAL:
        return left == right
    if operator == UNEQUAL:
        return left != right
    if operator == LESS:
        return left < right
    if operator == LESS_OR_EQUAL:
        return left <= right
    if operator == GREATER:
        return left > right
    return left >= right


def _compare_numbers(operator: int, left: int | float, right: int | float) -> bool:
    if operator == EQUAL:
        return left == right
    if operator == UNEQUAL:
        return left != right
    if operator == LESS:
        return left < right
    if operator == LESS_OR_EQUAL:
        return left <= right
    if operator == GREATER:
        return left > right
    return left >= right


def both(left: Truth, right: Truth) -> Truth:
    """AND of two truths: one that is false decides, then one that is unknown."""
    if left is False or right is False:
        return False
    if left is None or right is None:
        return None
    return True


def opposite(truth: Truth) -> Truth:
    return None if truth is None else not truth


def calculate(operator: int, left: Value, right: Value) -> Value:
    """Return the result of an arithmetic operator; None if there is none, or if it is out of bounds."""
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int):
        if left < INTEGER_MIN or left > INTEGER_MAX:
            return None
        if isinstance(right, int):
            return _calculate_integers(operator, left, right)
        if isinstance(right, float):
            return _calculate_floats(operator, float(left), right)
        return None
    if isinstance(left, float):
        if isinstance(right, int):
            if right < INTEGER_MIN or right > INTEGER_MAX:
                return None
            return _calculate_floats(operator, left, float(right))
        if isinstance(right, float):
            return _calculate_floats(operator, left, right)
    return None


def _calculate_integers(operator: int, left: int, right: int) -> Value:
    if right < INTEGER_MIN or right > INTEGER_MAX:
        return None
    if operator == PLUS:
        result = left + right
    elif operator == MINUS:
        result = left - right
    elif operator == TIMES:
        result = left * right
    else:
        if right == 0:
            return None
        # Towards zero, as in SQL and Java; Python's own division rounds down.
        result = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            result = -result
    if result < INTEGER_MIN or result > INTEGER_MAX:
        return None
    return result


def _calculate_floats(operator: int, left: float, right: float) -> Value:
    if operator == PLUS:
        result = left + right
    elif operator == MINUS:
        result = left - right
    elif operator == TIMES:
        result = left * right
    else:
        if right == 0.0:
            return None
        result = left / right
    # False for a NaN also.
    if -INFINITY < result < INFINITY:
        return result
    return None
