"""The tree of a selector: each node answers its value for a message.

Invariants
1. `evaluate` never raises, and gives no NaN.
2. Chains are flat: `a AND b AND c`, `a + b - c` are one node with many parts. So the height of a tree depends on how
   deep its selector is nested, not on how long it is.
3. A value that is not a truth is unknown where a condition is asked for.
4. Parts that cannot change the answer are not evaluated: AND stops at the first false, OR at the first true.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from penstock.selectors.like import Pattern
from penstock.selectors.values import (
    GREATER_OR_EQUAL,
    LESS_OR_EQUAL,
    MINUS,
    PLUS,
    Truth,
    Value,
    View,
    both,
    calculate,
    compare,
    known,
    opposite,
)

# What is known of a node before there is a message.
ANYTHING: Final = "a name"
A_CONDITION: Final = "a condition"
A_NUMBER: Final = "a number"
A_TEXT: Final = "a text"


class Node(ABC):
    """`kind` is one of the four above; a name may turn out to be anything."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @abstractmethod
    def evaluate(self, view: View) -> Value: ...


def truth_of(value: Value) -> Truth:
    return value if isinstance(value, bool) else None


@final
class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        super().__init__(kind_of(value))
        self.value = value

    def evaluate(self, view: View) -> Value:
        return self.value


def kind_of(value: Value) -> str:
    if isinstance(value, bool):
        return A_CONDITION
    return A_TEXT if isinstance(value, str) else A_NUMBER


@final
class Header(Node):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(ANYTHING)
        self.name = name

    def evaluate(self, view: View) -> Value:
        return known(view.header(self.name))


@final
class Property(Node):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(ANYTHING)
        self.name = name

    def evaluate(self, view: View) -> Value:
        return known(view.prop(self.name))


@final
class AllOf(Node):
    """AND."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Node]) -> None:
        super().__init__(A_CONDITION)
        self.parts = parts

    def evaluate(self, view: View) -> Value:
        answer: Truth = True
        for part in self.parts:
            truth = truth_of(part.evaluate(view))
            if truth is False:
                return False
            if truth is None:
                answer = None
        return answer


@final
class AnyOf(Node):
    """OR."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Node]) -> None:
        super().__init__(A_CONDITION)
        self.parts = parts

    def evaluate(self, view: View) -> Value:
        answer: Truth = False
        for part in self.parts:
            truth = truth_of(part.evaluate(view))
            if truth is True:
                return True
            if truth is None:
                answer = None
        return answer


@final
class Not(Node):
    __slots__ = ("part",)

    def __init__(self, part: Node) -> None:
        super().__init__(A_CONDITION)
        self.part = part

    def evaluate(self, view: View) -> Value:
        return opposite(truth_of(self.part.evaluate(view)))


@final
class Comparison(Node):
    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: int, left: Node, right: Node) -> None:
        super().__init__(A_CONDITION)
        self.operator = operator
        self.left = left
        self.right = right

    def evaluate(self, view: View) -> Value:
        return compare(self.operator, self.left.evaluate(view), self.right.evaluate(view))


@final
class Between(Node):
    __slots__ = ("high", "low", "operand")

    def __init__(self, operand: Node, low: Node, high: Node) -> None:
        super().__init__(A_CONDITION)
        self.operand = operand
        self.low = low
        self.high = high

    def evaluate(self, view: View) -> Value:
        value = self.operand.evaluate(view)
        at_least = compare(GREATER_OR_EQUAL, value, self.low.evaluate(view))
        at_most = compare(LESS_OR_EQUAL, value, self.high.evaluate(view))
        return both(at_least, at_most)


@final
class Membership(Node):
    """IN: equal to one of the literals. Those of another kind than the value are neither equal nor unequal to it."""

    __slots__ = ("numbers", "operand", "texts", "truths")

    def __init__(self, operand: Node, members: list[Value]) -> None:
        super().__init__(A_CONDITION)
        self.operand = operand
        self.truths = frozenset([member for member in members if isinstance(member, bool)])
        self.texts = frozenset([member for member in members if isinstance(member, str)])
        # Python hashes 1 and 1.0 alike, and finds one for the other: they are one kind here also.
        self.numbers = frozenset([member for member in members if kind_of(member) == A_NUMBER])

    def evaluate(self, view: View) -> Value:
        value = self.operand.evaluate(view)
        if value is None:
            return None
        if isinstance(value, bool):
            found = value in self.truths
            others = len(self.texts) + len(self.numbers)
        elif isinstance(value, str):
            found = value in self.texts
            others = len(self.truths) + len(self.numbers)
        else:
            found = value in self.numbers
            others = len(self.truths) + len(self.texts)
        if found:
            return True
        return None if others else False


@final
class Likeness(Node):
    """LIKE. Only a text is like a pattern or unlike it."""

    __slots__ = ("operand", "pattern")

    def __init__(self, operand: Node, pattern: Pattern) -> None:
        super().__init__(A_CONDITION)
        self.operand = operand
        self.pattern = pattern

    def evaluate(self, view: View) -> Value:
        value = self.operand.evaluate(view)
        return self.pattern.matches(value) if isinstance(value, str) else None


@final
class Absence(Node):
    """IS NULL: the one question that always has an answer."""

    __slots__ = ("operand",)

    def __init__(self, operand: Node) -> None:
        super().__init__(A_CONDITION)
        self.operand = operand

    def evaluate(self, view: View) -> Value:
        return self.operand.evaluate(view) is None


@final
class Calculation(Node):
    """Operators of one rank, from left to right: `first` and then each operator with its operand."""

    __slots__ = ("first", "operands", "operators")

    def __init__(self, first: Node, operators: list[int], operands: list[Node]) -> None:
        super().__init__(A_NUMBER)
        self.first = first
        self.operators = operators
        self.operands = operands

    def evaluate(self, view: View) -> Value:
        value = self.first.evaluate(view)
        for place in range(len(self.operators)):
            if value is None:
                return None
            value = calculate(self.operators[place], value, self.operands[place].evaluate(view))
        return value


@final
class Sign(Node):
    __slots__ = ("operand", "operator")

    def __init__(self, operator: int, operand: Node) -> None:
        """`operator`: PLUS or MINUS. A plus changes no number, but only a number has one."""
        assert operator in (PLUS, MINUS)
        super().__init__(A_NUMBER)
        self.operator = operator
        self.operand = operand

    def evaluate(self, view: View) -> Value:
        return calculate(self.operator, 0, self.operand.evaluate(view))
