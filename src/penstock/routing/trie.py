"""A trie of topic patterns: which patterns match a routing key, in one walk and without backtracking.

A pattern is split at dots. `*` stands for one word, `#` for any number of words, none included. An empty
string has no words; otherwise empty words are words, so that "a." has two.

Invariants
1. In a run of wildcards all `*` come first and then at most one `#` (`#.*.#` is `*.#`: one word or more). So
   nothing but words follows a `#`.
2. Every node but the root leads to at least one destination.
3. A walk visits a node at most once per word. A node is reached over one edge only, from its parent, and a
   `#` node, which stays active for the rest of the key once it was reached, is entered once: so a walk takes
   at most words times nodes steps, however the patterns are made.
4. A walk ends when it has taken more than ROUTING_STEPS_MAX steps, wherever it is then.
"""

from __future__ import annotations

from typing import Final, final

from penstock.limits import ROUTING_STEPS_MAX
from penstock.routing.bindings import Destination, Destinations, add_destination, drop_destination

ANY_WORD: Final = "*"
ANY_WORDS: Final = "#"
# What may follow a `#` is noted by word while it is so little; where it is more, each word is looked up there.
FOLLOWERS_MAX: Final = 8


def split_words(key: str) -> list[str]:
    return key.split(".") if key else []


def normal_words(pattern: str) -> list[str]:
    """Return the words of a pattern, with every run of wildcards in the order of invariant 1."""
    words: list[str] = []
    any_words = False
    for word in split_words(pattern):
        if word == ANY_WORDS:
            any_words = True
            continue
        if any_words and word != ANY_WORD:
            words.append(ANY_WORDS)
            any_words = False
        words.append(word)
    if any_words:
        words.append(ANY_WORDS)
    return words


@final
class TopicNode:
    """What may follow a beginning of patterns."""

    __slots__ = ("any_word", "any_words", "destinations", "words")

    def __init__(self) -> None:
        self.words: dict[str, TopicNode] = {}
        self.any_word: TopicNode | None = None
        self.any_words: TopicNode | None = None
        # Where the patterns lead that end here.
        self.destinations: Destinations = {}

    def child(self, word: str) -> TopicNode | None:
        if word == ANY_WORD:
            return self.any_word
        if word == ANY_WORDS:
            return self.any_words
        return self.words.get(word)

    def set_child(self, word: str, node: TopicNode | None) -> None:
        if word == ANY_WORD:
            self.any_word = node
        elif word == ANY_WORDS:
            self.any_words = node
        elif node is not None:
            self.words[word] = node
        else:
            del self.words[word]

    def is_empty(self) -> bool:
        return not (self.destinations or self.words or self.any_word or self.any_words)


@final
class TopicWalk:
    """The nodes that the words of one routing key have led to so far."""

    __slots__ = ("active", "floating", "followers", "found", "steps", "wide")

    def __init__(self, root: TopicNode) -> None:
        # Reached by the last word exactly.
        self.active: list[TopicNode] = [root]
        # `#` nodes that were reached and that more words may follow: active until the end. What follows them is noted
        # by word, but for those that very much may follow.
        self.floating: dict[TopicNode, None] = {}
        self.wide: list[TopicNode] = []
        self.followers: dict[str, list[TopicNode]] = {}
        self.steps = 0
        # Destinations of patterns that match whatever comes.
        self.found: Destinations = {}
        self._float(root)

    def step(self, word: str) -> None:
        """Go on by one word."""
        reached: list[TopicNode] = []
        for node in self.active:
            child = node.words.get(word)
            if child is not None:
                reached.append(child)
            if node.any_word is not None:
                reached.append(node.any_word)
        reached.extend(self.followers.get(word, ()))
        for node in self.wide:
            child = node.words.get(word)
            if child is not None:
                reached.append(child)
        for node in reached:
            if node.any_words is not None:
                self._float(node)
        self.steps += len(self.active) + len(self.wide) + len(reached) + 1
        self.active = reached

    def finish(self) -> list[Destination]:
        """There are no more words: the destinations of all patterns that match."""
        found = self.found
        for node in self.active:
            found.update(node.destinations)
        return list(found)

    def _float(self, node: TopicNode) -> None:
        # `#` also stands for no word at all, and then its node is reached together with its parent.
        floating = node.any_words
        if floating is None or floating in self.floating:
            return
        self.found.update(floating.destinations)
        if floating.words:
            self.floating[floating] = None
            if len(floating.words) > FOLLOWERS_MAX:
                self.wide.append(floating)
                return
            for word, child in floating.words.items():
                self.followers.setdefault(word, []).append(child)


@final
class TopicTrie:
    """Patterns with their destinations."""

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root = TopicNode()

    def insert(self, pattern: str, destination: Destination) -> None:
        node = self.root
        for word in normal_words(pattern):
            child = node.child(word)
            if child is None:
                child = TopicNode()
                node.set_child(word, child)
            node = child
        add_destination(node.destinations, destination)

    def remove(self, pattern: str, destination: Destination) -> None:
        """Take back one `insert`, and the nodes that are then of no use."""
        words = normal_words(pattern)
        path = [self.root]
        for word in words:
            child = path[-1].child(word)
            assert child is not None
            path.append(child)
        drop_destination(path[-1].destinations, destination)
        depth = len(words)
        while depth and path[depth].is_empty():
            depth -= 1
            path[depth].set_child(words[depth], None)

    def match(self, routing_key: str) -> list[Destination]:
        return self.walk(routing_key).finish()

    def walk(self, routing_key: str) -> TopicWalk:
        """Where the words of a routing key lead."""
        walk = TopicWalk(self.root)
        for word in split_words(routing_key):
            walk.step(word)
            if (not walk.active and not walk.floating) or walk.steps > ROUTING_STEPS_MAX:
                break
        return walk
