"""The topic exchange: bindings are patterns over the dot-separated words of the routing key.

No pattern has more than TOPIC_WORDS_MAX words: a longer one is refused when it is bound. Routing keys may have as many
words as a short string has room for.
"""

from __future__ import annotations

from typing import ClassVar, final

from penstock import errors
from penstock.fields import Table
from penstock.limits import TOPIC_WORDS_MAX
from penstock.routing.bindings import Binding, Destination
from penstock.routing.exchange import Exchange
from penstock.routing.trie import TopicTrie


@final
class TopicExchange(Exchange):
    """Patterns with `*` for one word and `#` for any number of words."""

    __slots__ = ("trie",)

    type_name: ClassVar[str] = "topic"

    def __init__(self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> None:
        super().__init__(name, durable, auto_delete, internal, arguments)
        self.trie = TopicTrie()

    def validate_binding(self, binding: Binding) -> None:
        super().validate_binding(binding)
        words = binding.routing_key.count(".") + 1
        if words > TOPIC_WORDS_MAX:
            raise errors.precondition_failed(f"topic pattern with {words} words; at most {TOPIC_WORDS_MAX} are allowed")

    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        walk = self.trie.walk(routing_key)
        self.cost = walk.steps
        return walk.finish()

    def _add(self, binding: Binding) -> None:
        self.trie.insert(binding.routing_key, binding.destination)

    def _remove(self, binding: Binding) -> None:
        self.trie.remove(binding.routing_key, binding.destination)
