"""From tokens to the tree of a selector. One method for each rank of operators, the weakest first:

    OR   AND   NOT   comparisons, BETWEEN, IN, LIKE, IS   + -   * /   signs   names, literals, parentheses

Invariants
1. Every level of recursion is counted before it is entered: at most `NESTING_MAX` open parentheses, NOTs and signs.
   Chains of operators are loops.
2. Every name, literal and operator is counted before its node is made: at most `NODES_MAX`.
3. Where a condition must stand, a number or a text is refused; so are calculations with texts and conditions. Names
   may stand anywhere: what they are is known when there is a message.
"""

from __future__ import annotations

from typing import Final, final

from penstock.selectors.bounds import NESTING_MAX, NODES_MAX, SEARCHES_MAX
from penstock.selectors.lexer import END, KEYWORD, LITERAL, NAME, QUOTED_NAME, Token
from penstock.selectors.like import ANY_CHAR, ANY_TEXT, compile_pattern
from penstock.selectors.nodes import (
    A_CONDITION,
    A_NUMBER,
    ANYTHING,
    Absence,
    AllOf,
    AnyOf,
    Between,
    Calculation,
    Comparison,
    Header,
    Likeness,
    Literal,
    Membership,
    Node,
    Not,
    Property,
    Sign,
)
from penstock.selectors.selector_error import SelectorError, shown
from penstock.selectors.values import (
    DIVIDED_BY,
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MINUS,
    PLUS,
    TIMES,
    UNEQUAL,
    Value,
    calculate,
)

PROPERTY_PREFIX: Final = "amqp."
PROPERTIES: Final = frozenset(
    {
        *("app_id", "content_encoding", "content_type", "correlation_id", "delivery_mode", "exchange", "expiration"),
        *("message_id", "priority", "reply_to", "routing_key", "timestamp", "type", "user_id"),
    }
)

COMPARISONS: Final[dict[str, int]] = {
    "=": EQUAL,
    "<>": UNEQUAL,
    "<": LESS,
    "<=": LESS_OR_EQUAL,
    ">": GREATER,
    ">=": GREATER_OR_EQUAL,
}
SUMS: Final[dict[str, int]] = {"+": PLUS, "-": MINUS}
PRODUCTS: Final[dict[str, int]] = {"*": TIMES, "/": DIVIDED_BY}

A_VALUE: Final = "a name, a number, a text in single quotes, TRUE, FALSE or '('"
A_PATTERN: Final = "a pattern in single quotes"


@final
class Parser:
    __slots__ = ("_levels", "_nodes", "_place", "_searches", "_token", "_tokens", "names")

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._token = tokens[0]
        self._levels = 0
        self._nodes = 0
        self._searches = 0
        # The headers that the selector looks at.
        self.names: set[str] = set()

    def parse(self) -> Node:
        column = self._token.column
        node = self._any_of()
        if self._token.kind != END:
            raise self._unexpected(_behind(node) + "the end")
        return _as_condition(node, column)

    # --- tokens ---------------------------------------------------------------------------------------

    def _advance(self) -> Token:
        """Return the token, and go on to the next. END is never left behind."""
        token = self._token
        if token.kind != END:
            self._place += 1
            self._token = self._tokens[self._place]
        return token

    def _is(self, word: str) -> bool:
        """Is this keyword or symbol next?"""
        return self._token.kind >= KEYWORD and self._token.word == word

    def _takes(self, word: str) -> bool:
        if not self._is(word):
            return False
        self._advance()
        return True

    def _expect(self, word: str, expected: str) -> None:
        if not self._takes(word):
            raise self._unexpected(expected)

    def _takes_one_of(self, operators: dict[str, int]) -> int:
        """Return the operator that is next, counted and taken; -1 if it is none of these."""
        if self._token.kind < KEYWORD or self._token.word not in operators:
            return -1
        self._count_node()
        return operators[self._advance().word]

    def _unexpected(self, expected: str) -> SelectorError:
        return SelectorError(self._token.column, self._token.shown(), expected)

    # --- limits ---------------------------------------------------------------------------------------

    def _count_node(self) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            problem = "there are too many names, literals and operators"
            raise SelectorError(self._token.column, problem, f"at most {NODES_MAX}")

    def _count_level(self) -> None:
        self._levels += 1
        if self._levels > NESTING_MAX:
            problem = "parentheses, NOT and signs are nested too deep"
            raise SelectorError(self._token.column, problem, f"at most {NESTING_MAX} levels")

    def _count_search(self, column: int) -> None:
        self._searches += 1
        if self._searches > SEARCHES_MAX:
            problem = "there are too many patterns with a '_' between two '%'"
            raise SelectorError(column, problem, f"at most {SEARCHES_MAX}")

    # --- conditions -----------------------------------------------------------------------------------

    def _any_of(self) -> Node:
        column = self._token.column
        node = self._all_of()
        if not self._is("OR"):
            return node
        parts = [_as_condition(node, column)]
        while self._is("OR"):
            self._count_node()
            self._advance()
            column = self._token.column
            parts.append(_as_condition(self._all_of(), column))
        return AnyOf(parts)

    def _all_of(self) -> Node:
        column = self._token.column
        node = self._negated()
        if not self._is("AND"):
            return node
        parts = [_as_condition(node, column)]
        while self._is("AND"):
            self._count_node()
            self._advance()
            column = self._token.column
            parts.append(_as_condition(self._negated(), column))
        return AllOf(parts)

    def _negated(self) -> Node:
        negations = 0
        while self._is("NOT"):
            self._count_node()
            self._count_level()
            self._advance()
            negations += 1
        column = self._token.column
        node = self._compared()
        for _ in range(negations):
            node = Not(_as_condition(node, column))
        self._levels -= negations
        return node

    def _compared(self) -> Node:
        left = self._chain(SUMS)
        operator = self._takes_one_of(COMPARISONS)
        if operator >= 0:
            return Comparison(operator, left, self._chain(SUMS))
        if self._is("IS"):
            return self._absence(left)
        negated = self._is("NOT")
        if negated:
            self._count_node()
            self._advance()
        if self._is("BETWEEN"):
            node = self._between(left)
        elif self._is("IN"):
            node = self._membership(left)
        elif self._is("LIKE"):
            node = self._likeness(left)
        elif negated:
            raise self._unexpected("BETWEEN, IN or LIKE")
        else:
            return left
        return Not(node) if negated else node

    def _absence(self, operand: Node) -> Node:
        self._count_node()
        self._advance()
        negated = self._takes("NOT")
        self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        return Not(Absence(operand)) if negated else Absence(operand)

    def _between(self, operand: Node) -> Node:
        self._count_node()
        self._advance()
        low = self._chain(SUMS)
        self._expect("AND", "AND and the upper bound of BETWEEN")
        return Between(operand, low, self._chain(SUMS))

    def _membership(self, operand: Node) -> Node:
        self._count_node()
        self._advance()
        self._expect("(", "'(' and the list of IN")
        members = [self._member()]
        while self._takes(","):
            members.append(self._member())
        self._expect(")", "',' or ')'")
        return Membership(operand, members)

    def _member(self) -> Value:
        """A literal, perhaps with a sign. Names would be comparisons in disguise; literals make the list a set."""
        has_sign = self._is("+") or self._is("-")
        token = self._tokens[self._place + 1] if has_sign else self._token
        if not _is_literal(token):
            raise SelectorError(token.column, token.shown(), "a number, a text in single quotes, TRUE or FALSE")
        node = self._signed()
        assert isinstance(node, Literal)
        return node.value

    def _likeness(self, operand: Node) -> Node:
        self._count_node()
        self._advance()
        column = self._token.column
        pattern = self._text(A_PATTERN)
        escape = ""
        if self._takes("ESCAPE"):
            escape_column = self._token.column
            escape = self._text("one character in single quotes")
            if len(escape) != 1 or escape in (ANY_TEXT, ANY_CHAR):
                problem = f"found '{shown(escape)}'"
                raise SelectorError(escape_column, problem, "one character that is neither '%' nor '_'")
        compiled = compile_pattern(pattern, escape, column)
        if compiled.searches:
            self._count_search(column)
        return Likeness(operand, compiled)

    def _text(self, expected: str) -> str:
        value = self._token.value
        if self._token.kind != LITERAL or not isinstance(value, str):
            raise self._unexpected(expected)
        self._count_node()
        self._advance()
        return value

    # --- values ---------------------------------------------------------------------------------------

    def _chain(self, rank: dict[str, int]) -> Node:
        """Operands with operators of one rank between them. Products are the operands of sums."""
        column = self._token.column
        first = self._chain(PRODUCTS) if rank is SUMS else self._signed()
        operators: list[int] = []
        operands: list[Node] = []
        while True:
            operator = self._takes_one_of(rank)
            if operator < 0:
                return Calculation(_as_number(first, column), operators, operands) if operators else first
            operators.append(operator)
            operand_column = self._token.column
            operand = self._chain(PRODUCTS) if rank is SUMS else self._signed()
            operands.append(_as_number(operand, operand_column))

    def _signed(self) -> Node:
        signs: list[int] = []
        while self._token.kind >= KEYWORD and self._token.word in SUMS:
            self._count_level()
            signs.append(SUMS[self._advance().word])
        column = self._token.column
        node = self._operand()
        for sign in reversed(signs):
            node = self._with_sign(sign, _as_number(node, column), column)
        self._levels -= len(signs)
        return node

    def _with_sign(self, sign: int, node: Node, column: int) -> Node:
        if not isinstance(node, Literal):
            self._count_node()
            return Sign(sign, node)
        value = calculate(sign, 0, node.value)
        if value is None:
            raise SelectorError(column, "the number is too small", "an integer of at most 64 bits")
        return Literal(value)

    def _operand(self) -> Node:
        token = self._token
        if self._is("("):
            self._count_level()
            self._advance()
            node = self._any_of()
            self._expect(")", _behind(node) + "')'")
            self._levels -= 1
            return node
        if _is_literal(token):
            self._count_node()
            self._advance()
            return Literal(token.value)
        if token.kind in (NAME, QUOTED_NAME):
            self._count_node()
            self._advance()
            return self._named(token)
        raise self._unexpected("IS NULL behind a name" if self._is("NULL") else A_VALUE)

    def _named(self, token: Token) -> Node:
        if token.kind == NAME and token.word.startswith(PROPERTY_PREFIX):
            name = token.word[len(PROPERTY_PREFIX) :]
            if name not in PROPERTIES:
                problem = f"there is no property '{shown(token.word)}'"
                expected = "a property like amqp.type, or the name of a header in double quotes"
                raise SelectorError(token.column, problem, expected)
            return Property(name)
        self.names.add(token.word)
        return Header(token.word)


def _behind(node: Node) -> str:
    """What may follow besides an end. Comparisons are not compared without parentheses."""
    return "AND, OR or " if node.kind == A_CONDITION else "an operator, AND, OR or "


def _is_literal(token: Token) -> bool:
    return token.kind == LITERAL or (token.kind == KEYWORD and token.word in ("TRUE", "FALSE"))


def _as_condition(node: Node, column: int) -> Node:
    if node.kind not in (ANYTHING, A_CONDITION):
        raise SelectorError(column, f"found {node.kind}", "a condition")
    return node


def _as_number(node: Node, column: int) -> Node:
    if node.kind not in (ANYTHING, A_NUMBER):
        raise SelectorError(column, f"found {node.kind}", "a number or a name")
    return node
