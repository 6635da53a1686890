"""The limits of the selector language, each with its reason.

They are here and not in `penstock.limits` because they are part of the language: docs/selectors.md lists them, and a
selector that is accepted today must be accepted tomorrow. Raising one is harmless to users, lowering one is not.

Invariants
1. Whatever a peer sends as a selector, compiling it costs time and memory that these numbers bound.
2. Matching one message costs at most `NODES_MAX` steps, each bounded by the size of the message's own values.
3. The stack never grows with the length of a selector, only with `NESTING_MAX`: eight calls per level at most.
"""

from __future__ import annotations

from typing import Final

# A selector that a person can still read is much shorter; a generated one with a long IN list may come near.
TEXT_CHARS_MAX: Final = 4_096
# Open parentheses, NOT and signs at one place. Parsing and matching recurse by these levels only.
NESTING_MAX: Final = 64
# Names, literals and operators, members of IN lists included.
NODES_MAX: Final = 512
# A pattern of LIKE. Searching with `_` keeps a mask of this many bits for each of its characters.
PATTERN_CHARS_MAX: Final = 256
# Patterns that search for a segment with `_`, the one step that takes longer with the length of a text: about 25 ms for
# a header of 100,000 characters. All others run at the speed of `str.find`.
SEARCHES_MAX: Final = 8
# Whatever AMQP has as an integer, signed or unsigned, has at most 64 bits. Results outside are unknown.
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1
# The digits of the largest integer.
INTEGER_DIGITS_MAX: Final = 20
# What an error says of the text it is about: the whole error fits a reply text of 255 octets.
SHOWN_CHARS_MAX: Final = 24
