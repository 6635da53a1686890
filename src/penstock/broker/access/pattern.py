"""A pattern over names, as RabbitMQ's permissions and policies have them.

RabbitMQ uses PCRE, in which a pattern can take exponential time. This one is matched in linear time whatever it is
(see `pattern_machine`). Back references and a few rarely used forms are refused when the pattern is set. See
docs/decisions/0019-patterns-are-matched-by-a-machine-of-our-own.md.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.access.pattern_machine import Machine
from penstock.broker.access.pattern_syntax import BadPattern, parse

# Longer ones are refused when they are set. RabbitMQ has no limit; what people write has a tenth of this.
PATTERN_CHARS_MAX: Final = 1024
EVERYTHING: Final = (".*", "^.*$", "^.*", ".*$")


class Pattern:
    def __init__(self, text: str) -> None:
        """Raises BadPattern, whose text says what is wrong."""
        if len(text) > PATTERN_CHARS_MAX:
            raise BadPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
        self.text = text
        self._machine = Machine(parse(text))
        self.matches_everything = text in EVERYTHING

    def matches(self, name: str) -> bool:
        """Return whether the pattern is found in the name; it may be anywhere unless it is anchored."""
        return self.matches_everything or self._machine.is_found(name)


def pattern(text: str) -> Pattern:
    """Return the pattern; an empty one is `^$`, as in RabbitMQ."""
    return Pattern(text or "^$")
