"""LIKE: its characters, its escapes, and that no pattern makes it slow."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selector_house import like, matches, truth
from tests.effort import examples

from penstock.selectors.bounds import PATTERN_CHARS_MAX, SEARCHES_MAX
from penstock.selectors.expression import SelectorError, compile_selector
from penstock.selectors.like import compile_pattern

MATCHING = [
    ("red", "red"),
    ("", ""),
    ("%", ""),
    ("%", "anything\nat all"),
    ("%%", ""),
    ("order.%", "order.created"),
    ("order.%", "order."),
    ("%.created", "order.created"),
    ("%der%", "order"),
    ("o%r", "or"),
    ("a%a", "aa"),
    ("_", "\n"),
    ("_", "\N{PILE OF POO}"),
    ("%_", "x"),
    ("_%_", "xy"),
    ("%a_c%", "xxabcxx"),
    ("%ab_%ab_", "abxabx"),
    ("a_c", "abc"),
    ("%a%b%c%", "1a2b3c4"),
]
NOT_MATCHING = [
    ("red", "Red"),
    ("red", "red "),
    ("red", ""),
    ("", "x"),
    ("order.%", "order"),
    ("%.created", "order.created.twice"),
    ("a%a", "a"),
    ("_", ""),
    ("_", "xy"),
    ("_%_", "x"),
    ("a_c", "ac"),
    ("%ab_%ab_", "abxab"),
    ("%a%b%c%", "cba"),
    # The same characters may not serve twice.
    ("%aba%aba%", "ababa"),
    ("ab%ba", "aba"),
    ("%ab%b", "xab"),
    ("%a_%b", "xab"),
    ("ab%b%", "ab"),
]


@pytest.mark.parametrize(("pattern", "text"), MATCHING)
def test_a_text_is_like_a_pattern(pattern: str, text: str) -> None:
    assert truth(f"a LIKE '{pattern}'", {"a": text}) is True
    assert truth(f"a NOT LIKE '{pattern}'", {"a": text}) is False


@pytest.mark.parametrize(("pattern", "text"), NOT_MATCHING)
def test_a_text_is_not_like_a_pattern(pattern: str, text: str) -> None:
    assert truth(f"a LIKE '{pattern}'", {"a": text}) is False
    assert truth(f"a NOT LIKE '{pattern}'", {"a": text}) is True


def test_an_escaped_wildcard_stands_for_itself() -> None:
    assert matches(r"a LIKE '100!%' ESCAPE '!'", {"a": "100%"})
    assert not matches(r"a LIKE '100!%' ESCAPE '!'", {"a": "1000"})
    assert matches(r"a LIKE '\__' ESCAPE '\'", {"a": "_x"})
    assert not matches(r"a LIKE '\__' ESCAPE '\'", {"a": "xx"})
    assert matches(r"a LIKE '!!%' ESCAPE '!'", {"a": "!x"})
    assert matches("a LIKE 'it''''s' ESCAPE ''''", {"a": "it's"})


def test_without_an_escape_a_backslash_is_a_backslash() -> None:
    assert matches(r"a LIKE '\%'", {"a": "\\anything"})
    assert not matches(r"a LIKE '\%'", {"a": "%"})


@pytest.mark.parametrize("value", [5, 5.0, True])
def test_only_a_text_is_like_or_unlike(value: bool | int | float) -> None:
    assert truth("a LIKE '%'", {"a": value}) is None


PARTS = st.lists(st.none() | st.sampled_from(["", "a", "b", "ab", "aab", "."]), max_size=8)


@settings(max_examples=examples(500))
@given(PARTS, st.text("ab.", max_size=14))
@example([None, "a", "", "a", None, "a", ""], "aaaaaaa")
def test_a_pattern_agrees_with_a_regular_expression(parts: list[str | None], text: str) -> None:
    pattern = "".join("%" if part is None else part or "_" for part in parts)
    assert compile_pattern(pattern, "", 1).matches(text) is like(text, parts)


class CountedText(str):
    """A text that counts how often one of its characters is looked at."""

    __slots__ = ("looks",)
    looks: int

    def __getitem__(self, key: object) -> str:
        self.looks += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
        return super().__getitem__(key)  # type: ignore[index]


@pytest.mark.parametrize(
    "pattern", ["%a_" * 40 + "b", "%" + "a_" * 100 + "b%", "_a" * 50 + "%b", "%_b" * 60, "%_" * 128]
)
def test_a_hostile_pattern_looks_at_each_character_a_few_times(pattern: str) -> None:
    text = CountedText("a" * 5_000)
    text.looks = 0
    compiled = compile_pattern(pattern, "", 1)
    compiled.matches(text)
    assert text.looks <= 2 * len(text)


def test_a_long_text_is_searched_with_a_hostile_pattern() -> None:
    pattern = "%" + "a_" * 100 + "b%"
    assert not matches(f"a LIKE '{pattern}'", {"a": "a" * 100_000})
    assert matches(f"a LIKE '{pattern}'", {"a": "a" * 100_000 + "b"})


@pytest.mark.parametrize(
    ("pattern", "escape", "words"),
    [
        ("x!y", "!", "the escape character is followed by 'y'; expected '%', '_' or '!'"),
        ("x!", "!", "the escape character is followed by the end of the pattern; expected '%', '_' or '!'"),
        ("x", "", "found ''; expected one character that is neither '%' nor '_'"),
        ("x", "!!", "found '!!'; expected one character that is neither '%' nor '_'"),
        ("x", "%", "found '%'; expected one character that is neither '%' nor '_'"),
        ("x", "_", "found '_'; expected one character that is neither '%' nor '_'"),
    ],
)
def test_an_escape_without_a_meaning_is_refused(pattern: str, escape: str, words: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(f"a LIKE '{pattern}' ESCAPE '{escape}'")
    assert words in str(caught.value)


def test_a_pattern_has_a_longest_length() -> None:
    assert matches(f"a LIKE '{'x' * PATTERN_CHARS_MAX}'", {"a": "x" * PATTERN_CHARS_MAX})
    with pytest.raises(SelectorError, match=f"column 8: the pattern has 257 characters; expected at most {256}"):
        compile_selector(f"a LIKE '{'x' * (PATTERN_CHARS_MAX + 1)}'")


def test_only_so_many_patterns_may_search_for_any_character() -> None:
    searching = ["a LIKE '%x_y%'"] * SEARCHES_MAX
    others = ["a LIKE '%x%_'", "a LIKE '_x%'", "a LIKE 'x!_%' ESCAPE '!'", "a LIKE '%xy%'"] * SEARCHES_MAX
    assert matches(" AND ".join(searching), {"a": "ax_y"})
    assert not matches(" OR ".join(searching + others), {"a": "y"})
    with pytest.raises(SelectorError, match="column 152: there are too many patterns with a '_' between two '%'; "):
        compile_selector(" OR ".join([*searching, "a LIKE '%_%'"]))
