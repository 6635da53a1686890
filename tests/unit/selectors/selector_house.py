"""What the tests of selectors share: a message made of two dicts, and a second opinion on what an expression means.

The second opinion works on trees of tuples and knows nothing of the text. It is written as the rules are told in
docs/selectors.md, slowly: fractions for numbers, one comparison after the other, and `re` for patterns.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from penstock.selectors.bounds import INTEGER_MAX, INTEGER_MIN
from penstock.selectors.expression import Value, View, compile_selector

Tree = tuple[Any, ...]


class Message(View):
    def __init__(self, headers: dict[str, Value] | None = None, props: dict[str, Value] | None = None) -> None:
        self.headers = headers or {}
        self.props = props or {}

    def header(self, name: str) -> Value:
        return self.headers.get(name)

    def prop(self, name: str) -> Value:
        return self.props.get(name)


def matches(text: str, headers: dict[str, Value] | None = None, props: dict[str, Value] | None = None) -> bool:
    return compile_selector(text).matches(Message(headers, props))


def truth(text: str, headers: dict[str, Value] | None = None) -> bool | None:
    """True, False or None (unknown), found out with three selectors that match or do not."""
    answers = {
        True: matches(text, headers),
        False: matches(f"NOT ({text})", headers),
        None: matches(f"({text}) IS NULL", headers),
    }
    assert sum(answers.values()) == 1, f"{text} is not one of true, false and unknown: {answers}"
    return next(answer for answer, holds in answers.items() if holds)


# --- the second opinion ------------------------------------------------------------------------------

ORDERS = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def meaning(tree: Tree, message: Message) -> Any:
    """The value of a tree: None for unknown."""
    kind = tree[0]
    if kind == "literal":
        return tree[1]
    if kind in ("header", "prop"):
        value = (message.headers if kind == "header" else message.props).get(tree[1])
        return None if isinstance(value, float) and math.isnan(value) else value
    values = [meaning(part, message) for part in tree[2:] if isinstance(part, tuple)]
    if kind == "condition":
        return logic(tree[1], [value if isinstance(value, bool) else None for value in values])
    if kind == "compare":
        return comparison(tree[1], *values)
    if kind == "between":
        bounds = [comparison(">=", values[0], values[1]), comparison("<=", values[0], values[2])]
        return negated(tree[1], logic("AND", bounds))
    if kind == "in":
        return negated(tree[1], logic("OR", [comparison("=", values[0], member) for member in tree[3]]))
    if kind == "like":
        return negated(tree[1], like(values[0], tree[3]))
    if kind == "null":
        return negated(tree[1], values[0] is None)
    assert kind == "arithmetic"
    return arithmetic(tree[1], *values)


def negated(is_negated: bool, answer: bool | None) -> bool | None:
    return logic("NOT", [answer]) if is_negated else answer


def logic(operator: str, truths: list[bool | None]) -> bool | None:
    if operator == "NOT":
        return {True: False, False: True, None: None}[truths[0]]
    decisive = operator == "OR"
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def kind_of(value: Value) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def comparison(operator: str, left: Value, right: Value) -> bool | None:
    if kind_of(left) != kind_of(right) or left is None:
        return None
    if isinstance(left, bool) and operator not in ("=", "<>"):
        return None
    return ORDERS[operator](left, right)  # type: ignore[no-untyped-call]


def arithmetic(operator: str, left: Value, right: Value) -> Value:
    if kind_of(left) != "number" or kind_of(right) != "number":
        return None
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if any(isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX for value in (left, right)):
        return None
    if isinstance(left, int) and isinstance(right, int):
        whole = exact(operator, Fraction(left), Fraction(right))
        # int() cuts towards zero.
        return int(whole) if whole is not None and INTEGER_MIN <= int(whole) <= INTEGER_MAX else None
    left, right = float(left), float(right)
    if math.isinf(left) or math.isinf(right):
        # Something divided by what is infinitely large is the one finite result.
        return left / right if operator == "/" and not math.isinf(left) else None
    fraction = exact(operator, Fraction(left), Fraction(right))
    if fraction is None:
        return None
    try:
        return float(fraction)
    except OverflowError:
        return None


def exact(operator: str, left: Fraction, right: Fraction) -> Fraction | None:
    if operator == "/":
        return left / right if right else None
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def like(value: Value, parts: list[str | None]) -> bool | None:
    """`parts`: texts, and None for `%` and "" for `_`."""
    if not isinstance(value, str):
        return None
    pattern = "".join(".*" if part is None else "." if part == "" else re.escape(part) for part in parts)
    return re.fullmatch(pattern, value, re.DOTALL) is not None


# --- from a tree to a text -----------------------------------------------------------------------------


def written(tree: Tree) -> str:
    """The text of a tree, with parentheses around everything that has parts."""
    kind = tree[0]
    if kind == "literal":
        return literal(tree[1])
    if kind == "header":
        name = tree[1]
        is_plain = re.fullmatch(r"[a-z][a-z.-]*", name) and name != "and"
        return str(name) if is_plain else '"' + name.replace('"', '""') + '"'
    if kind == "prop":
        return f"amqp.{tree[1]}"
    parts = [written(part) for part in tree[2:] if isinstance(part, tuple)]
    if kind == "condition" and tree[1] == "NOT":
        return f"(not {parts[0]})"
    if kind in ("condition", "compare", "arithmetic"):
        return "(" + f" {tree[1]} ".join(parts) + ")"
    word = "not " if tree[1] else ""
    if kind == "between":
        return f"({parts[0]} {word}between {parts[1]} and {parts[2]})"
    if kind == "in":
        return f"({parts[0]} {word}in ({', '.join(literal(member) for member in tree[3])}))"
    if kind == "like":
        return f"({parts[0]} {word}like {pattern_text(tree[3])} escape '!')"
    assert kind == "null"
    return f"({parts[0]} is {word}null)"


def literal(value: Value) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def pattern_text(parts: list[str | None]) -> str:
    escaped = [re.sub("([!%_])", r"!\1", part) if part else "%" if part is None else "_" for part in parts]
    return literal("".join(escaped))
