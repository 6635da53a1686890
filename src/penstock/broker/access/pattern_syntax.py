"""The syntax of permission and policy patterns: the part of Perl's regular expressions that has no back references.

The parser makes a tree of nodes; `pattern_machine` makes a machine of it. Groups capture nothing, so lazy quantifiers
mean the same as greedy ones: a pattern either matches or does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Groups within groups: the parser recurses.
DEPTH_MAX: Final = 40
# A quantifier is written out: {1000} are a thousand states.
REPEATS_MAX: Final = 255
WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
CLASSES: Final[dict[str, frozenset[str]]] = {
    "d": frozenset("0123456789"),
    "w": WORD,
    "s": frozenset(" \t\n\r\f\v"),
    "h": frozenset(" \t"),
}
POSIX: Final[dict[str, frozenset[str]]] = {
    "alnum": WORD - {"_"},
    "alpha": WORD - {"_"} - CLASSES["d"],
    "digit": CLASSES["d"],
    "lower": frozenset("abcdefghijklmnopqrstuvwxyz"),
    "upper": frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "space": CLASSES["s"],
    "word": WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "e": "\x1b", "a": "\a"}
ANCHORS: Final = {"A": "A", "z": "z", "Z": "$", "b": "b", "B": "B"}


class BadPattern(ValueError):
    """The pattern cannot be used; the text says why."""


@dataclass(frozen=True)
class Chars:
    """One character out of a set, or one that is not in it."""

    members: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    # Characters that are none of these are members, too: \D or \W within brackets.
    others: tuple[frozenset[str], ...] = ()
    is_negated: bool = False
    ignores_case: bool = False

    def has(self, char: str) -> bool:
        found = self._lists(char)
        if not found and self.ignores_case:
            found = self._lists(char.lower()) or self._lists(char.upper())
        return found is not self.is_negated

    def _lists(self, char: str) -> bool:
        if char in self.members:
            return True
        for low, high in self.ranges:
            if low <= char <= high:
                return True
        return any(char not in each for each in self.others)


@dataclass(frozen=True)
class Anchor:
    """A place without a character: ^ $ \\A \\z \\b \\B, by its letter."""

    letter: str


@dataclass(frozen=True)
class Look:
    """A place where the inner pattern follows, or came before; or where it does not."""

    inner: Node
    is_ahead: bool
    is_negated: bool


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    item: Node
    least: int
    # -1: without end.
    most: int


Node = Chars | Anchor | Look | Sequence | Choice | Repeat

ANY: Final = Chars(frozenset("\n"), is_negated=True)


def parse(text: str) -> Node:
    """Return the tree of a pattern; raises BadPattern."""
    parser = Parser(text)
    node = parser.choice(0)
    if parser.pos < len(text):
        raise BadPattern(f"there is a ')' without a '(' at character {parser.pos + 1}")
    return node


class Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self.pos = 0
        self._ignores_case = False

    def _next(self) -> str:
        return self._text[self.pos] if self.pos < len(self._text) else ""

    def _take(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self.pos):
            self.pos += len(prefix)
            return True
        return False

    def choice(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise BadPattern(f"groups are nested deeper than {DEPTH_MAX}")
        ignores_case = self._ignores_case
        items = [self._sequence(depth)]
        while self._take("|"):
            items.append(self._sequence(depth))
        # A flag holds until the end of its group.
        self._ignores_case = ignores_case
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self._next() not in ("", "|", ")"):
            item = self._atom(depth)
            if item is not None:
                items.append(self._repeated(item))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _repeated(self, item: Node) -> Node:
        while True:
            bounds = self._quantifier()
            if bounds is None:
                return item
            if isinstance(item, Anchor | Look):
                raise BadPattern("a place, such as '^', cannot be repeated")
            if self._take("+"):
                raise BadPattern("possessive quantifiers ('*+') are not supported")
            self._take("?")
            item = Repeat(item, *bounds)

    def _quantifier(self) -> tuple[int, int] | None:
        for sign, least, most in (("*", 0, -1), ("+", 1, -1), ("?", 0, 1)):
            if self._take(sign):
                return least, most
        if self._next() != "{":
            return None
        end = self._text.find("}", self.pos)
        first, comma, last = self._text[self.pos + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(first) or not (last == "" or _is_number(last)):
            # As in Perl, a brace that begins no quantifier stands for itself.
            return None
        self.pos = end + 1
        least = int(first)
        most = -1 if comma and not last else int(last or first)
        if max(least, most) > REPEATS_MAX or (most >= 0 and most < least):
            raise BadPattern(f"a quantifier repeats up to {REPEATS_MAX} times, and its second number is the larger one")
        return least, most

    def _atom(self, depth: int) -> Node | None:
        """None: a flag, which is no part of the pattern."""
        char = self._next()
        self.pos += 1
        if char == "(":
            return self._group(depth)
        if char == "[":
            return self._brackets()
        if char == ".":
            return ANY
        if char in "^$":
            return Anchor(char)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise BadPattern(f"there is nothing to repeat before '{char}' at character {self.pos}")
        return self._chars(frozenset(char))

    def _chars(self, members: frozenset[str], is_negated: bool = False) -> Chars:
        return Chars(members, is_negated=is_negated, ignores_case=self._ignores_case)

    def _group(self, depth: int) -> Node | None:
        look: tuple[bool, bool] | None = None
        if self._take("?"):
            if self._take("i)"):
                self._ignores_case = True
                return None
            for sign, is_ahead, is_negated in (
                *(("=", True, False), ("!", True, True)),
                *(("<=", False, False), ("<!", False, True)),
            ):
                if self._take(sign):
                    look = (is_ahead, is_negated)
                    break
            else:
                if not self._take(":"):
                    raise BadPattern(f"a group of this kind is not supported, at character {self.pos}")
        inner = self.choice(depth + 1)
        if not self._take(")"):
            raise BadPattern("a '(' is not closed")
        return inner if look is None else Look(inner, *look)

    def _escape(self) -> Node:
        char = self._next()
        self.pos += 1
        if char in ANCHORS and char:
            return Anchor(ANCHORS[char])
        if char.lower() in CLASSES and char:
            return self._chars(CLASSES[char.lower()], is_negated=char.isupper())
        return self._chars(frozenset(self._escaped(char)))

    def _escaped(self, char: str) -> str:
        """Return the character that a backslash and `char` stand for."""
        if char == "":
            raise BadPattern("a '\\' is the last character")
        if char in CONTROLS:
            return CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char.isascii() and char.isalnum():
            raise BadPattern(f"'\\{char}' is not supported")
        return char

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._text.find("}", self.pos)
            digits = self._text[self.pos : max(end, 0)]
            self.pos = end + 1
        else:
            digits = self._text[self.pos : self.pos + 2]
            self.pos += 2
        if not 1 <= len(digits) <= 6 or not all(digit in POSIX["xdigit"] for digit in digits):
            raise BadPattern("'\\x' is followed by two hexadecimal digits, or by some in braces")
        number = int(digits, 16)
        if number > 0x10FFFF:
            raise BadPattern("'\\x' names a character that does not exist")
        return chr(number)

    def _brackets(self) -> Node:
        is_negated = self._take("^")
        members: set[str] = set()
        ranges: list[tuple[str, str]] = []
        others: list[frozenset[str]] = []
        is_first = True
        while is_first or self._next() != "]":
            is_first = False
            low = self._bracket_item(members, others)
            if low is None:
                continue
            if self._next() == "-" and self._text[self.pos + 1 : self.pos + 2] not in ("", "]"):
                self.pos += 1
                high = self._bracket_item(members, others)
                if high is None or high < low:
                    raise BadPattern("a range in brackets goes from a lower character to a higher one")
                ranges.append((low, high))
            else:
                members.add(low)
        self.pos += 1
        return Chars(frozenset(members), tuple(ranges), tuple(others), is_negated, self._ignores_case)

    def _bracket_item(self, members: set[str], others: list[frozenset[str]]) -> str | None:
        """Return one character; None when a class was added instead."""
        char = self._next()
        if char == "":
            raise BadPattern("a '[' is not closed")
        if self._take("[:"):
            end = self._text.find(":]", self.pos)
            name = self._text[self.pos : max(end, 0)]
            if name not in POSIX:
                raise BadPattern("a class such as [:alpha:] is not known")
            members.update(POSIX[name])
            self.pos = end + 2
            return None
        self.pos += 1
        if char != "\\":
            return char
        char = self._next()
        self.pos += 1
        if char == "b":
            return "\b"
        if char and char in CLASSES:
            members.update(CLASSES[char])
            return None
        if char and char.lower() in CLASSES:
            others.append(CLASSES[char.lower()])
            return None
        return self._escaped(char)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
