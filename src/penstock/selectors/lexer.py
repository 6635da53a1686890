"""A selector's text as a list of tokens: names, literals, keywords and symbols, each with its column.

A name begins with a letter, `_` or `$` and goes on with letters, digits, `_`, `$`, `-` and `.`; so `x-match` is a name,
and a subtraction needs a space before its minus. Between double quotes any characters make a name. Keywords are
words in any case; a word between double quotes is never one.

Invariants
1. The last token is END, and there is exactly one.
2. A number is finite, and an integer has at most 64 bits.
3. Every character is looked at a fixed number of times.
"""

from __future__ import annotations

from typing import Final, final

from penstock.selectors.bounds import INTEGER_DIGITS_MAX, INTEGER_MAX, TEXT_CHARS_MAX
from penstock.selectors.selector_error import SelectorError, shown
from penstock.selectors.values import INFINITY, Value

END: Final = 0
NAME: Final = 1
QUOTED_NAME: Final = 2
LITERAL: Final = 3
KEYWORD: Final = 4
SYMBOL: Final = 5

KEYWORDS: Final = frozenset(
    {"AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"},
)
SYMBOLS_OF_TWO: Final = frozenset({"<>", "<=", ">="})
SYMBOLS_OF_ONE: Final = frozenset({"(", ")", ",", "=", "<", ">", "+", "-", "*", "/"})
# How other languages write it, and what it is here.
SYMBOLS_ELSEWHERE: Final[dict[str, str]] = {"!=": "'<>'", "==": "'='", "&&": "AND", "||": "OR"}
SPACES: Final = frozenset({" ", "\t", "\n", "\r", "\f"})
DIGITS: Final = frozenset({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"})


@final
class Token:
    __slots__ = ("column", "kind", "value", "word")

    def __init__(self, kind: int, word: str, value: Value, column: int) -> None:
        """`word`: the name, the keyword in capitals, the symbol, or a literal as it is written."""
        self.kind = kind
        self.word = word
        self.value = value
        self.column = column

    def shown(self) -> str:
        if self.kind == END:
            return "the selector ends here"
        return f"found {shown(self.word)}" if self.kind == LITERAL else f"found '{shown(self.word)}'"


def tokens_of(text: str) -> list[Token]:
    if len(text) > TEXT_CHARS_MAX:
        problem = f"the selector has {len(text)} characters"
        raise SelectorError(TEXT_CHARS_MAX + 1, problem, f"at most {TEXT_CHARS_MAX}")
    return Lexer(text).tokens()


@final
class Lexer:
    __slots__ = ("_place", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        while True:
            token = self._next()
            found.append(token)
            if token.kind == END:
                return found

    def _at(self, place: int) -> str:
        """Return the character at a place; "" behind the end."""
        return self._text[place] if place < len(self._text) else ""

    def _next(self) -> Token:
        while self._at(self._place) in SPACES:
            self._place += 1
        start = self._place
        char = self._at(start)
        if not char:
            return Token(END, "", None, start + 1)
        if begins_name(char):
            return self._name(start)
        if char in DIGITS or (char == "." and self._at(start + 1) in DIGITS):
            return self._number(start)
        if char == "'":
            value = self._quoted(start, "'", "text")
            return Token(LITERAL, self._text[start : self._place], value, start + 1)
        if char == '"':
            name = self._quoted(start, '"', "name")
            if not name:
                raise SelectorError(start + 1, "the name is empty", "a name between double quotes")
            return Token(QUOTED_NAME, name, None, start + 1)
        return self._symbol(start)

    def _name(self, start: int) -> Token:
        while continues_name(self._at(self._place)):
            self._place += 1
        word = self._text[start : self._place]
        # Some letters of other scripts have ASCII capitals; a keyword is ASCII already.
        keyword = word.upper() if word.isascii() else word
        if keyword in KEYWORDS:
            value: Value = None if keyword not in ("TRUE", "FALSE") else keyword == "TRUE"
            return Token(KEYWORD, keyword, value, start + 1)
        return Token(NAME, word, None, start + 1)

    def _symbol(self, start: int) -> Token:
        two = self._text[start : start + 2]
        if two in SYMBOLS_ELSEWHERE:
            raise SelectorError(start + 1, f"found '{two}'", SYMBOLS_ELSEWHERE[two])
        one = two[:1]
        if two not in SYMBOLS_OF_TWO and one not in SYMBOLS_OF_ONE:
            raise SelectorError(start + 1, f"found '{shown(one)}'", "a name, a value or an operator")
        symbol = two if two in SYMBOLS_OF_TWO else one
        self._place += len(symbol)
        return Token(SYMBOL, symbol, None, start + 1)

    def _quoted(self, start: int, quote: str, what: str) -> str:
        """What stands between the quotes; two of them are one of its characters."""
        parts: list[str] = []
        self._place = start + 1
        while True:
            end = self._text.find(quote, self._place)
            if end < 0:
                problem = f"the {what} that begins here has no end"
                raise SelectorError(start + 1, problem, f"a closing {quote}")
            parts.append(self._text[self._place : end])
            self._place = end + 1
            if self._at(self._place) != quote:
                return "".join(parts)
            parts.append(quote)
            self._place += 1

    def _number(self, start: int) -> Token:
        whole = self._digits()
        is_float = False
        if self._at(self._place) == ".":
            is_float = True
            self._place += 1
            self._digits()
        if self._at(self._place) in ("e", "E"):
            is_float = True
            self._place += 1
            if self._at(self._place) in ("+", "-"):
                self._place += 1
            if not self._digits():
                word = self._text[start : self._place]
                raise SelectorError(start + 1, f"found '{shown(word)}'", "digits after the E of the number")
        behind = self._at(self._place)
        if behind == "." or begins_name(behind):
            word = self._text[start : self._place + 1]
            expected = "a number, or a name in double quotes if it is one"
            raise SelectorError(start + 1, f"found '{shown(word)}'", expected)
        word = self._text[start : self._place]
        value = _float_value(word, start) if is_float else _integer_value(whole, start)
        return Token(LITERAL, word, value, start + 1)

    def _digits(self) -> str:
        start = self._place
        while self._at(self._place) in DIGITS:
            self._place += 1
        return self._text[start : self._place]


def begins_name(char: str) -> bool:
    return char.isalpha() or char == "_" or char == "$"


def continues_name(char: str) -> bool:
    return begins_name(char) or char in DIGITS or char == "-" or char == "."


def _integer_value(digits: str, start: int) -> Value:
    significant = digits.lstrip("0")
    # Counted first: reading thousands of digits takes its time.
    value = int(significant or "0") if len(significant) <= INTEGER_DIGITS_MAX else INTEGER_MAX + 1
    if value > INTEGER_MAX:
        raise SelectorError(start + 1, f"the number {shown(digits)} is too large", "an integer of at most 64 bits")
    return value


def _float_value(word: str, start: int) -> Value:
    value = float(word)
    if value == INFINITY:
        raise SelectorError(start + 1, f"the number {shown(word)} is too large", "a double-precision float")
    return value
