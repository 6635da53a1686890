"""Runs a pattern over a text in time proportional to the text's length times the pattern's.

A pattern becomes a machine whose states are all followed at once, so no pattern can make it go back and try again.
What a look-around asks is answered first, for all places of the text, by one more run over it: forwards for
what came before, backwards, with a machine that reads backwards, for what follows.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.access.pattern_syntax import (
    WORD,
    Anchor,
    BadPattern,
    Chars,
    Choice,
    Look,
    Node,
    Repeat,
    Sequence,
)

# States of one pattern with its look-arounds: with a name of 255 characters, some ten milliseconds at the worst.
STATES_MAX: Final = 500
# Nodes that are built, those without a state of their own included: ((){255}){255} has none, and is built often.
BUILDS_MAX: Final = 4 * STATES_MAX
# The state after the last one.
MATCH: Final = -1


class Machine:
    def __init__(self, node: Node, is_backward: bool = False, room: int = STATES_MAX) -> None:
        """Raises BadPattern when it would have too many states."""
        self._is_backward = is_backward
        self._room = room
        self._builds = 0
        # What a state wants: a character, a place, or nothing; and the states behind it.
        self._wants: list[Chars | Anchor | int | None] = []
        self._next: list[tuple[int, ...]] = []
        # Machines of look-arounds, and whether they must not match.
        self._looks: list[tuple[Machine, bool]] = []
        self._start = self._build(node, MATCH)

    def _size(self) -> int:
        size = len(self._wants)
        for machine, _ in self._looks:
            size += machine._size()
        return size

    def _add(self, wants: Chars | Anchor | int | None, following: tuple[int, ...]) -> int:
        if self._size() >= self._room:
            raise BadPattern(f"the pattern is too large: it has more than {STATES_MAX} steps")
        self._wants.append(wants)
        self._next.append(following)
        return len(self._wants) - 1

    def _build(self, node: Node, then: int) -> int:
        """Add the states of a node that lead to `then`; return the first of them."""
        self._builds += 1
        if self._builds > BUILDS_MAX:
            raise BadPattern("the pattern is too large: it repeats too often")
        if isinstance(node, Chars | Anchor):
            return self._add(node, (then,))
        if isinstance(node, Look):
            machine = Machine(node.inner, node.is_ahead, self._room - self._size())
            self._looks.append((machine, node.is_negated))
            return self._add(len(self._looks) - 1, (then,))
        if isinstance(node, Sequence):
            for item in node.items if self._is_backward else reversed(node.items):
                then = self._build(item, then)
            return then
        if isinstance(node, Choice):
            return self._add(None, tuple([self._build(item, then) for item in node.items]))
        return self._build_repeat(node, then)

    def _build_repeat(self, node: Repeat, then: int) -> int:
        if node.most < 0:
            loop = self._add(None, ())
            self._next[loop] = (self._build(node.item, loop), then)
            then = loop
        else:
            end = then
            for _ in range(node.most - node.least):
                then = self._add(None, (self._build(node.item, then), end))
        for _ in range(node.least):
            then = self._build(node.item, then)
        return then

    def is_found(self, text: str) -> bool:
        """Return whether the pattern matches somewhere in the text."""
        return bool(self._ends(text, only_first=True))

    def _ends(self, text: str, only_first: bool = False) -> set[int]:
        """Return the places at which a match ends; for a machine that reads backwards, those at which it begins."""
        looks = [machine._ends(text) for machine, _ in self._looks]
        ends: set[int] = set()
        places = range(len(text), -1, -1) if self._is_backward else range(len(text) + 1)
        states: set[int] = set()
        for place in places:
            # A match may begin at every place.
            pending = [*states, self._start]
            reached: set[int] = set()
            states = set()
            at = place - 1 if self._is_backward else place
            char = text[at] if 0 <= at < len(text) else ""
            while pending:
                state = pending.pop()
                if state in reached:
                    continue
                reached.add(state)
                if state == MATCH:
                    ends.add(place)
                    if only_first:
                        return ends
                    continue
                wants = self._wants[state]
                if isinstance(wants, Chars):
                    if char and wants.has(char):
                        states.update(self._next[state])
                elif self._is_at(wants, place, text, looks):
                    pending.extend(self._next[state])
        return ends

    def _is_at(self, wants: Anchor | int | None, place: int, text: str, looks: list[set[int]]) -> bool:
        if wants is None:
            return True
        if isinstance(wants, int):
            return (place in looks[wants]) is not self._looks[wants][1]
        letter = wants.letter
        if letter in "^A":
            return place == 0
        if letter == "z":
            return place == len(text)
        if letter == "$":
            # As in Perl, a line break may be behind it.
            return place == len(text) or (place == len(text) - 1 and text[place] == "\n")
        before = place > 0 and text[place - 1] in WORD
        behind = place < len(text) and text[place] in WORD
        return (before is not behind) is (letter == "b")
