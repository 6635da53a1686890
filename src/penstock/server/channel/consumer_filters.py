"""What a consumer asks for besides a queue: more queues, a selector, no-local, where a browser begins.

The arguments of basic.consume are read here and become a `ConsumerFilter` and a start position. A selector is compiled
once; what it means for a message is remembered for the last envelope, because the messages of a run share theirs.
"""

from __future__ import annotations

from typing import Final

from penstock import limits
from penstock.broker.definitions.arguments import INTEGER_TYPES
from penstock.broker.features.envelope_view import EnvelopeView
from penstock.errors import ChannelException, precondition_failed
from penstock.fields import TYPE_NAMES, Field, Table
from penstock.message import Envelope
from penstock.queues.consumers.consumer import ConsumerFilter
from penstock.queues.consumers.publisher_marks import NoLocal
from penstock.queues.queue import Queue
from penstock.selectors.expression import Selector, SelectorError, compile_selector

# The second is the name that AMQP 1.0 clients know.
SELECTOR_ARGUMENTS: Final = ("x-selector", "x-filter-jms-selector")
# Consume argument: true makes the consumer a browser, which reads messages without taking them.
BROWSE_ARGUMENT: Final = "x-browse"
BROWSE_FROM_ARGUMENT: Final = "x-browse-from"
# Consume argument, as in Qpid: a list of the queues to consume from.
MULTIQUEUE_ARGUMENT: Final = "x-multiqueue"
FROM_FIRST: Final[Field] = ("S", b"first")
FROM_NEXT: Final[Field] = ("S", b"next")


class SelectorFilter(ConsumerFilter):
    """Messages that a selector matches."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self._last: Envelope | None = None
        self._answer = False

    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        if envelope is not self._last:
            self._answer = self.selector.matches(EnvelopeView(envelope))
            self._last = envelope
        return self._answer


class NoLocalFilter(ConsumerFilter):
    """Messages that others published."""

    def __init__(self, no_local: NoLocal) -> None:
        self._no_local = no_local

    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        return not self._no_local.refuses(seq_id)


class BothFilters(ConsumerFilter):
    """Messages that two filters accept; the cheaper one is asked first."""

    def __init__(self, first: ConsumerFilter, second: ConsumerFilter) -> None:
        self._first = first
        self._second = second

    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        return self._first.accepts(seq_id, envelope) and self._second.accepts(seq_id, envelope)


def consumer_filter(arguments: Table, no_local: NoLocal | None, described: str) -> ConsumerFilter | None:
    """What the consumer does not want; None: it takes everything. 406 for a selector that is none."""
    selector = _selector(arguments, described)
    if no_local is None:
        return None if selector is None else SelectorFilter(selector)
    if selector is None:
        return NoLocalFilter(no_local)
    return BothFilters(NoLocalFilter(no_local), SelectorFilter(selector))


def _selector(arguments: Table, described: str) -> Selector | None:
    given = [name for name in SELECTOR_ARGUMENTS if name in arguments]
    if not given:
        return None
    name = given[0]
    if len(given) > 1 and arguments[name] != arguments[given[1]]:
        raise _invalid(name, described, f"{given[1]} says something else")
    kind, value = arguments[name]
    if kind != "S" or not isinstance(value, bytes):
        raise _invalid(name, described, f"expected a text, got {TYPE_NAMES[kind]}")
    try:
        return compile_selector(value.decode("utf-8"))
    except UnicodeDecodeError:
        raise _invalid(name, described, "it is not UTF-8") from None
    except SelectorError as error:
        raise _invalid(name, described, str(error)) from None


def multiqueue_names(arguments: Table) -> list[str] | None:
    """The queues of a consumer of several, each once; None for a consumer of one. 406 for what is no list of names."""
    field = arguments.get(MULTIQUEUE_ARGUMENT)
    if field is None:
        return None
    kind, value = field
    if kind != "A" or not isinstance(value, list):
        raise _bad_list(f"expected a list of queues, got {TYPE_NAMES[kind]}")
    if not 0 < len(value) <= limits.QUEUES_PER_CONSUMER_MAX:
        raise _bad_list(f"expected 1 to {limits.QUEUES_PER_CONSUMER_MAX} queues, got {len(value)}")
    names: dict[str, None] = {}
    for kind, name in value:
        if kind != "S" or not isinstance(name, bytes):
            raise _bad_list(f"expected names of queues, got {TYPE_NAMES[kind]}")
        if not 0 < len(name) <= limits.SHORT_STRING_BYTES_MAX:
            raise _bad_list(f"a queue's name has 1 to {limits.SHORT_STRING_BYTES_MAX} octets")
        try:
            names[name.decode("utf-8")] = None
        except UnicodeDecodeError:
            raise _bad_list("a name is not UTF-8") from None
    return list(names)


def _bad_list(reason: str) -> ChannelException:
    return precondition_failed(f"invalid arg '{MULTIQUEUE_ARGUMENT}': {reason}")


def browse_start(arguments: Table, queue: Queue) -> int:
    """Return the seq_id at which a browser begins. 406 for a place that it cannot begin at."""
    field = arguments.get(BROWSE_FROM_ARGUMENT, FROM_FIRST)
    if field == FROM_FIRST:
        return 0
    kind, value = field
    if kind in INTEGER_TYPES and isinstance(value, int) and value >= 0:
        return value
    if field != FROM_NEXT:
        raise _invalid(BROWSE_FROM_ARGUMENT, queue.describe(), "expected first, next or the number of a message")
    if queue.has_priorities:
        # Whatever comes next stands in front of what has a lower priority, also of what the browser has passed.
        raise _invalid(BROWSE_FROM_ARGUMENT, queue.describe(), "a queue with priorities is not browsed from next on")
    return int(queue.backing.status()["next_seq_id"])


def check_not_browsing(arguments: Table, described: str) -> None:
    """A consumer that takes messages has no place to begin at: most likely x-browse was forgotten."""
    if BROWSE_FROM_ARGUMENT in arguments:
        raise _invalid(BROWSE_FROM_ARGUMENT, described, f"it is for consumers with {BROWSE_ARGUMENT}=true")


def _invalid(name: str, described: str, reason: str) -> ChannelException:
    return precondition_failed(f"invalid arg '{name}' for {described}: {reason}")
