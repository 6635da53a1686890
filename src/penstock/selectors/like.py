"""The patterns of LIKE: `%` stands for any text, `_` for one character, everything else for itself.

A pattern is cut at its `%` into segments. A segment has a fixed length, so the leftmost place where it fits is always a
good one, and the search never goes back.

Invariants
1. A text of n characters is passed over once, whatever the pattern: `%` never goes back.
2. A segment without `_` is searched with `str.find`. One with `_` is searched with a mask that has a bit for each of
   its characters: bit i is set when the characters just read fit the segment's first i + 1. One step per character.
3. A segment is never empty; a run of `%` is one `%`.
4. An escape character is followed by `%`, `_` or itself; anything else is an error, since it has no meaning.
"""

from __future__ import annotations

from typing import Final, final

from penstock.selectors.bounds import PATTERN_CHARS_MAX
from penstock.selectors.selector_error import SelectorError, shown

ANY_TEXT: Final = "%"
ANY_CHAR: Final = "_"


@final
class Segment:
    """What stands between two `%`: characters, some of which may be any."""

    __slots__ = ("any_mask", "found_mask", "length", "masks", "text", "wild")

    def __init__(self, text: str, wild: list[int]) -> None:
        """`wild`: the places in `text` where any character fits."""
        assert text, "a segment is never empty"
        self.text = text
        self.wild = wild
        self.length = len(text)
        self.any_mask = 0
        self.masks: dict[str, int] = {}
        self.found_mask = 1 << (len(text) - 1)
        if not wild:
            return
        for place in wild:
            self.any_mask |= 1 << place
        for place in range(len(text)):
            char = text[place]
            bit = 1 << place
            if not self.any_mask & bit:
                self.masks[char] = self.masks.get(char, self.any_mask) | bit

    def fits_at(self, text: str, start: int) -> bool:
        """The caller knows that the text is long enough."""
        if not self.wild:
            return text.startswith(self.text, start)
        place = start
        before = 0
        for wild in self.wild:
            if text[place : start + wild] != self.text[before:wild]:
                return False
            before = wild + 1
            place = start + before
        return text[place : start + self.length] == self.text[before:]

    def end_of_first(self, text: str, start: int, end: int) -> int:
        """Where the leftmost fit between `start` and `end` ends; -1 if there is none."""
        if not self.wild:
            found = text.find(self.text, start, end)
            return found if found < 0 else found + self.length
        state = 0
        for place in range(start, end):
            state = (state << 1 | 1) & self.masks.get(text[place], self.any_mask)
            if state & self.found_mask:
                return place + 1
        return -1


@final
class Pattern:
    __slots__ = ("first", "last", "length_min", "middle", "searches", "whole")

    def __init__(self, whole: bool, first: Segment | None, middle: list[Segment], last: Segment | None) -> None:
        """`whole`: there is no `%`, and `first` is the whole pattern (None if it is empty)."""
        self.whole = whole
        self.first = first
        self.middle = middle
        self.last = last
        self.length_min = 0
        # Is a segment with `_` searched? `bounds` has the reason to ask.
        self.searches = False
        for segment in middle:
            self.length_min += segment.length
            if segment.wild:
                self.searches = True
        if first is not None:
            self.length_min += first.length
        if last is not None:
            self.length_min += last.length

    def matches(self, text: str) -> bool:
        if len(text) < self.length_min or (self.whole and len(text) != self.length_min):
            return False
        start = 0
        end = len(text)
        if self.first is not None:
            if not self.first.fits_at(text, 0):
                return False
            start = self.first.length
        if self.last is not None:
            end -= self.last.length
            if not self.last.fits_at(text, end):
                return False
        for segment in self.middle:
            start = segment.end_of_first(text, start, end)
            if start < 0:
                return False
        return True


def compile_pattern(pattern: str, escape: str, column: int) -> Pattern:
    """`escape` is one character, or empty; `column` is where the pattern stands in the selector."""
    if len(pattern) > PATTERN_CHARS_MAX:
        problem = f"the pattern has {len(pattern)} characters"
        raise SelectorError(column, problem, f"at most {PATTERN_CHARS_MAX}")
    # None is a `%`: what is between two of them is a segment.
    segments: list[Segment | None] = []
    text = ""
    wild: list[int] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == ANY_TEXT and char != escape:
            if text:
                segments.append(Segment(text, wild))
            segments.append(None)
            text = ""
            wild = []
        elif char == ANY_CHAR and char != escape:
            wild.append(len(text))
            text += char
        else:
            if char == escape:
                place += 1
                char = _escaped(pattern, place, escape, column)
            text += char
        place += 1
    if text:
        segments.append(Segment(text, wild))
    return _assembled(segments)


def _escaped(pattern: str, place: int, escape: str, column: int) -> str:
    char = pattern[place] if place < len(pattern) else ""
    if char not in (ANY_TEXT, ANY_CHAR, escape):
        found = f"'{shown(char)}'" if char else "the end of the pattern"
        raise SelectorError(column, f"the escape character is followed by {found}", f"'%', '_' or '{shown(escape)}'")
    return char


def _assembled(segments: list[Segment | None]) -> Pattern:
    first = segments[0] if segments else None
    if None not in segments:
        return Pattern(True, first, [], None)
    middle = [segment for segment in segments[1:-1] if segment is not None]
    return Pattern(False, first, middle, segments[-1])
