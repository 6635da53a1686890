"""Searching a queue: by header, selector, routing key, body and age.

A search looks at a bounded number of messages and says where to go on, so that it never holds up the broker, however
long the queue is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.broker.features.envelope_view import EnvelopeView
from penstock.broker.operations.call_errors import BadQuery, BadRequest, find_queue
from penstock.broker.operations.messages.message_view import BODY_BYTES_SHOWN, MessageView, arrived_ms, view
from penstock.broker.operations.messages.message_walk import LOOKS_MAX, Seen, Walk
from penstock.errors import AmqpError
from penstock.fields import Field
from penstock.limits import TOPIC_WORDS_MAX
from penstock.message import Envelope
from penstock.queues.queue import Queue
from penstock.routing.bindings import QUEUE
from penstock.routing.trie import TopicTrie
from penstock.selectors.expression import Selector, SelectorError, compile_selector
from penstock.selectors.field_values import plain_value
from penstock.wire.property_edits import header_of

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost

FOUND_MAX: Final = 1_000


@dataclass(slots=True)
class Query:
    """What is looked for. Whatever is given must be true of a message; nothing given: every message."""

    # A header of this name, with this value if one is given. A text also finds a number or a truth that reads so.
    header: str | None = None
    header_value: str | int | float | bool | None = None
    # See docs/selectors.md.
    selector: str | None = None
    # With * for one word and # for any number of words, as a topic binding.
    routing_key: str | None = None
    # Octets that the body contains.
    body: bytes | None = None
    # Milliseconds. Messages of unknown age are neither.
    older_than_ms: int | None = None
    younger_than_ms: int | None = None


@dataclass(slots=True)
class Found:
    """What one call of a search has found."""

    messages: list[MessageView] = field(default_factory=list)
    looked_at: int = 0
    # Where the search goes on; None: the queue was searched to its end.
    next_seq_id: int | None = None


def search(
    vhost: VHost,
    queue_name: str,
    query: Query,
    from_seq_id: int = 0,
    found_max: int = 100,
    looks_max: int = LOOKS_MAX,
    body_bytes_max: int = BODY_BYTES_SHOWN,
    with_unacked: bool = False,
) -> Found:
    """Search from a number on, until enough was found or looked at."""
    queue = find_queue(vhost, queue_name)
    matcher = Matcher(query)
    if not (1 <= found_max <= FOUND_MAX and 1 <= looks_max <= LOOKS_MAX):
        raise BadRequest(f"one call finds 1 to {FOUND_MAX} messages and looks at 1 to {LOOKS_MAX}; go on with another")
    walk = Walk(queue, from_seq_id, looks_max, with_unacked)
    found = Found()
    for seen in walk.messages():
        if matcher.matches(queue, seen):
            found.messages.append(view(queue, seen, body_bytes_max))
            if len(found.messages) >= found_max:
                break
    found.looked_at = walk.looked_at
    found.next_seq_id = walk.next_seq_id
    return found


class Matcher:
    """A query that was checked and made ready. Raises BadQuery."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._selector = None if query.selector is None else _compiled(query.selector)
        self._keys = None if query.routing_key is None else _key_pattern(query.routing_key)
        if query.header_value is not None and query.header is None:
            raise BadQuery("a header value without the name of the header: give both")
        for age_ms in (query.older_than_ms, query.younger_than_ms):
            if age_ms is not None and age_ms < 0:
                raise BadQuery(f"an age of {age_ms} ms; ages are 0 or more")
        self._needs_age = query.older_than_ms is not None or query.younger_than_ms is not None
        self._last: Envelope | None = None
        self._answer = False

    def matches(self, queue: Queue, seen: Seen) -> bool:
        envelope, body, _ = seen.entry
        if envelope is not self._last:
            self._answer = self._envelope_matches(envelope)
            self._last = envelope
        if not self._answer:
            return False
        wanted = self._query.body
        # The last octet of a stored body is not the publisher's.
        if wanted is not None and body.find(wanted, 0, len(body) - 1) < 0:
            return False
        return not self._needs_age or self._age_matches(queue, seen)

    def _envelope_matches(self, envelope: Envelope) -> bool:
        query = self._query
        if self._keys is not None and not self._keys.match(envelope.routing_key):
            return False
        if query.header is not None:
            try:
                header = header_of(envelope, query.header)
            except AmqpError:
                return False
            if header is None or not _has_value(header, query.header_value):
                return False
        return self._selector is None or self._selector.matches(EnvelopeView(envelope))

    def _age_matches(self, queue: Queue, seen: Seen) -> bool:
        came_ms = arrived_ms(queue, seen.seq_id, seen.entry)
        if came_ms is None:
            return False
        age_ms = queue.wall_ms() - came_ms
        older, younger = self._query.older_than_ms, self._query.younger_than_ms
        return (older is None or age_ms >= older) and (younger is None or age_ms < younger)


def _has_value(header: Field, wanted: str | int | float | bool | None) -> bool:
    if wanted is None:
        return True
    value = plain_value(header)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted or (isinstance(wanted, str) and str(value).lower() == wanted.lower())
    if isinstance(wanted, str) and isinstance(value, int | float):
        return str(value) == wanted
    return value == wanted


def _compiled(text: str) -> Selector:
    try:
        return compile_selector(text)
    except SelectorError as error:
        raise BadQuery(f"the selector is not understood: {error}", error.column) from None


def _key_pattern(pattern: str) -> TopicTrie:
    words = pattern.count(".") + 1
    if words > TOPIC_WORDS_MAX:
        raise BadQuery(f"a routing key pattern of {words} words; at most {TOPIC_WORDS_MAX} are allowed")
    trie = TopicTrie()
    trie.insert(pattern, (QUEUE, ""))
    return trie
