"""Topic patterns against a brute-force matcher, the shape of the trie, and the cost of a walk."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ChannelException
from penstock.limits import TOPIC_WORDS_MAX
from penstock.routing.bindings import QUEUE, Binding
from penstock.routing.topic import TopicExchange
from penstock.routing.trie import TopicNode, TopicTrie, TopicWalk, normal_words, split_words


def topic() -> TopicExchange:
    return TopicExchange("x", False, False, False, {})


def binding(pattern: str, queue: str) -> Binding:
    return Binding("x", (QUEUE, queue), pattern, {})


def brute_force(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(brute_force(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    if not words:
        return False
    return pattern[0] in ("*", words[0]) and brute_force(pattern[1:], words[1:])


def node_count(node: TopicNode) -> int:
    children = list(node.words.values())
    children += [child for child in (node.any_word, node.any_words) if child is not None]
    return 1 + sum(node_count(child) for child in children)


def visits(trie: TopicTrie, routing_key: str) -> int:
    """How many nodes a walk looks at, summed over the words; none of them twice for one word."""
    walk = TopicWalk(trie.root)
    count = 0
    for word in split_words(routing_key):
        visited = [*walk.active, *walk.floating]
        assert len(set(visited)) == len(visited)
        count += len(visited)
        walk.step(word)
    return count


patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#"]), max_size=6).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=7).map(".".join)


@pytest.mark.parametrize(
    ("pattern", "matching", "not_matching"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "b.a", ""]),
        ("*", ["a", "*", "#"], ["", "a.b"]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c"]),
        ("*.b.*", ["a.b.c", ".b."], ["a.b", "b.c"]),
        ("#", ["", "a", "a.b", ".", "..."], []),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b.a"]),
        ("#.a", ["a", "b.a", "b.c.a"], ["", "a.b"]),
        ("a.#.b", ["a.b", "a.c.b", "a.c.d.b", "a.b.b"], ["a", "b", "a.b.c"]),
        ("#.a.#", ["a", "b.a", "a.b", "c.a.b"], ["", "b.c"]),
        ("#.a.#.b.#", ["a.b", "x.a.y.b.z", "a.a.b.b"], ["b.a", "a", "b"]),
        ("#.*", ["a", "a.b"], [""]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.*.#.*", ["a.b", "a.b.c"], ["", "a"]),
        ("#.#", ["", "a", "a.b"], []),
        ("", [""], ["a", "."]),
        (".", ["."], ["", "..", "a"]),
        ("a..b", ["a..b"], ["a.b", "a.c.b"]),
        ("a.*.b", ["a..b", "a.c.b"], ["a.b"]),
        ("a*.b#", ["a*.b#"], ["ab.b", "a.b"]),
    ],
)
def test_a_pattern_matches_these_keys_and_not_those(pattern: str, matching: list[str], not_matching: list[str]) -> None:
    exchange = topic()
    exchange.bind(binding(pattern, "q"))
    for key in matching:
        assert exchange.matches(key, None) == [(QUEUE, "q")], key
    for key in not_matching:
        assert exchange.matches(key, None) == [], key


@given(st.lists(patterns, max_size=8), st.lists(keys, min_size=1, max_size=4), st.data())
def test_the_trie_agrees_with_brute_force_while_bindings_come_and_go(
    bound: list[str], routing_keys: list[str], data: st.DataObject
) -> None:
    exchange = topic()
    bindings = [binding(pattern, f"q{number % 4}") for number, pattern in enumerate(bound)]
    for one in bindings:
        exchange.bind(one)
    removed = data.draw(st.sets(st.sampled_from(bindings))) if bindings else set()
    for one in removed:
        exchange.unbind(one)
    left = exchange.bindings()
    for key in routing_keys:
        expected = {b.destination for b in left if brute_force(split_words(b.routing_key), split_words(key))}
        found = exchange.matches(key, None)
        assert set(found) == expected
        assert len(found) == len(expected)
    for one in bindings:
        exchange.unbind(one)
    assert not exchange.has_bindings
    assert exchange.trie.root.is_empty()


def test_all_short_patterns_agree_with_brute_force_on_all_short_keys() -> None:
    all_keys = [".".join(words) for size in range(6) for words in itertools.product(["a", "b"], repeat=size)]
    for size in range(5):
        for words in itertools.product(["a", "*", "#"], repeat=size):
            trie = TopicTrie()
            trie.insert(".".join(words), (QUEUE, "q"))
            for key in all_keys:
                assert bool(trie.match(key)) == brute_force(list(words), split_words(key)), (words, key)


@given(patterns)
def test_a_normal_pattern_has_nothing_but_words_behind_its_hashes(pattern: str) -> None:
    words = normal_words(pattern)
    for word, following in itertools.pairwise(words):
        assert not (word == "#" and following in ("*", "#"))
    assert words.count("*") == split_words(pattern).count("*")


def test_unbinding_leaves_the_nodes_that_others_need() -> None:
    trie = TopicTrie()
    trie.insert("a.b", (QUEUE, "short"))
    trie.insert("a.b.c.#.d", (QUEUE, "long"))
    assert node_count(trie.root) == 6
    trie.remove("a.b.c.#.d", (QUEUE, "long"))
    assert node_count(trie.root) == 3
    assert trie.match("a.b") == [(QUEUE, "short")]
    trie.insert("a.b.c", (QUEUE, "long"))
    trie.remove("a.b", (QUEUE, "short"))
    assert trie.match("a.b") == []
    assert trie.match("a.b.c") == [(QUEUE, "long")]
    trie.remove("a.b.c", (QUEUE, "long"))
    assert trie.root.is_empty()


def test_patterns_of_equal_meaning_share_nodes_and_are_unbound_one_by_one() -> None:
    exchange = topic()
    exchange.bind(binding("#.*", "q"))
    exchange.bind(binding("*.#.#", "q"))
    assert node_count(exchange.trie.root) == 3
    assert exchange.matches("a", None) == [(QUEUE, "q")]
    exchange.unbind(binding("#.*", "q"))
    assert exchange.matches("a", None) == [(QUEUE, "q")]
    exchange.unbind(binding("*.#.#", "q"))
    assert exchange.matches("a", None) == []


@pytest.mark.parametrize(
    "pattern",
    [
        ".".join(["#"] * TOPIC_WORDS_MAX),
        ".".join(["#", "*"] * (TOPIC_WORDS_MAX // 2)),
        ".".join(["#", "a"] * (TOPIC_WORDS_MAX // 2)),
        ".".join(["#", "a"] * (TOPIC_WORDS_MAX // 2 - 1) + ["#", "b"]),
        ".".join(["*"] * 60 + ["#", "a"] * 30),
    ],
)
def test_a_hostile_pattern_costs_no_more_than_words_times_nodes(pattern: str) -> None:
    exchange = topic()
    exchange.bind(binding(pattern, "q"))
    words = 120
    assert visits(exchange.trie, ".".join(["a"] * words)) <= words * node_count(exchange.trie.root)
    # Finishes at all: backtracking would try more than 2 ** 60 ways.
    exchange.matches(".".join(["a"] * words), None)


def test_many_overlapping_patterns_visit_a_node_once_per_word() -> None:
    trie = TopicTrie()
    for words in itertools.product(["a", "*", "#"], repeat=6):
        trie.insert(".".join(words), (QUEUE, "q"))
    assert visits(trie, ".".join(["a"] * 50)) <= 50 * node_count(trie.root)


def test_a_walk_among_100_000_bindings_visits_a_few_nodes_per_word() -> None:
    trie = TopicTrie()
    for number in range(25_000):
        trie.insert(f"site.{number}.*.temperature", (QUEUE, f"a{number}"))
        trie.insert(f"site.{number}.#", (QUEUE, f"b{number}"))
        trie.insert(f"*.{number}.room.#.alarm", (QUEUE, f"c{number}"))
        trie.insert(f"#.device.{number}", (QUEUE, f"d{number}"))
    assert visits(trie, "site.77.room.temperature") <= 4 * 6
    assert visits(trie, "site.77.room.device.88") <= 5 * 6
    assert set(trie.match("site.77.room.temperature")) == {(QUEUE, "a77"), (QUEUE, "b77")}
    assert set(trie.match("site.77.room.device.88")) == {(QUEUE, "b77"), (QUEUE, "d88")}
    assert set(trie.match("x.5.room.alarm")) == {(QUEUE, "c5")}


def test_a_pattern_with_too_many_words_is_refused() -> None:
    exchange = topic()
    exchange.bind(binding(".".join(["a"] * TOPIC_WORDS_MAX), "q"))
    with pytest.raises(ChannelException) as refused:
        exchange.bind(binding(".".join(["a"] * (TOPIC_WORDS_MAX + 1)), "q"))
    assert refused.value.reply_code == 406
    assert len(exchange.bindings()) == 1


def test_a_longer_routing_key_is_matched_all_the_same() -> None:
    exchange = topic()
    exchange.bind(binding("#.b", "q"))
    exchange.bind(binding("a.#", "r"))
    key = ".".join(["a"] * 255 + ["b"])
    assert set(exchange.matches(key, None)) == {(QUEUE, "q"), (QUEUE, "r")}
