"""Patterns of permissions: they mean what they mean in Perl and Python, and none takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from penstock.broker.access.pattern import PATTERN_CHARS_MAX, Pattern, pattern
from penstock.broker.access.pattern_syntax import BadPattern

ATOMS = (
    *("a", "b", "c", ".", "[ab]", "[^a]", "[a-c.]", r"[\d.]", r"[^\w]", r"[\D]", r"\d", r"\w", r"\W", r"\s", r"\."),
    *("^", "$", r"\b", r"\B", "(?!a)", "(?=b)", "(?<=a)", "(?<!b)", "(a|b)", "(?:ab)", "(a*)", "(|b)", "(?!a.*b)"),
    *(r"\x61", "{", "é", "|", "(a|(?=c)b)"),
)
QUANTIFIERS = ("", "", "", "*", "+", "?", "*?", "{2}", "{1,3}", "{2,}", "{0}")
PATTERNS = st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS)), min_size=1, max_size=7).map(
    lambda parts: "".join(atom + quantifier for atom, quantifier in parts)
)


@settings(deadline=None, max_examples=examples(1000))
@given(PATTERNS, st.lists(st.text("abc.1 é", max_size=8), min_size=4, max_size=4))
def test_a_pattern_means_what_it_means_in_python(text: str, names: list[str]) -> None:
    try:
        known = re.compile(text, re.ASCII)
        ours = Pattern(text)
    except (re.error, BadPattern):
        return
    if r"\B" in text:
        # Before 3.14, Python finds no \B in an empty text; Perl does.
        names = [name or "a" for name in names]
    assert [ours.matches(name) for name in names] == [known.search(name) is not None for name in names]


@settings(deadline=None, max_examples=examples(1000))
@given(st.text(r"ab()[]{}|*+?^$\.,:!<=-0129dwsbxi", max_size=30), st.text("ab01.", max_size=10))
def test_any_text_is_a_pattern_or_is_refused(text: str, name: str) -> None:
    try:
        made = Pattern(text)
    except BadPattern:
        return
    assert made.matches(name) in (True, False)


# Each of these takes exponential or high polynomial time where an engine goes back and tries again.
HOSTILE = [
    "(a+)+$",
    "(a|a)*$",
    "(a|aa)+$",
    "(a*)*b",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    ".*a.*a.*a.*a.*a.*a.*a.*a.*a.*b",
    "(.*)*(.*)*(.*)*x",
    "(a?){100}a{100}",
    "^(?!(a+)+b)(a+)+c$",
    "(?=(a*)*$)(a|a)*b",
    "((a{5}){5}){5}b",
    "(((((){255}){255}){255}){255}){255}",
    "((((a{9}){9}){9}){9}){9}",
    "(" * 500 + ")" * 500,
    "[" * 1000,
    "(?=" * 200 + ")" * 200,
    "a{255}" * 100,
    "|" * 1000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:30])
def test_no_pattern_takes_long_whatever_the_name(text: str) -> None:
    began = time.process_time()
    try:
        made = Pattern(text)
    except BadPattern:
        pass
    else:
        for name in ("a" * 255, "a" * 254 + "!", "ab" * 127):
            made.matches(name)
    # Python's own engine would not be done with most of these in a lifetime.
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "not closed"),
        (")", "without a"),
        ("[a", "not closed"),
        ("*a", "nothing to repeat"),
        (r"(a)\1", "not supported"),
        ("(?P<name>a)", "not supported"),
        ("(?(1)a|b)", "not supported"),
        ("a++", "possessive"),
        ("[z-a]", "range"),
        ("a{2,1}", "quantifier"),
        ("a\\", "last character"),
        (r"\x{zz}", "hexadecimal"),
        ("[[:nope:]]", "not known"),
        ("a" * (PATTERN_CHARS_MAX + 1), "at most"),
        ("a{255}{255}", "too large"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason):
        Pattern(text)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("", [""], ["a", "amq.default"]),
        (".*", ["", "a", "amq.gen-x", "ü"], []),
        (r"^amq\.", ["amq.topic"], ["my.amq.x", "amqp"]),
        (r"^(?!amq\.).*", ["orders", ""], ["amq.topic", "amq.gen-1"]),
        (r"^(orders|mail)-\d{1,3}$", ["orders-1", "mail-999"], ["orders-", "mail-1000", "x-1"]),
        ("(?i)^Sales", ["sales.eu", "SALES"], ["presales"]),
        (r"^[[:alpha:]_]+$", ["a_B"], ["a1", ""]),
        (r"x\z", ["ax"], ["x\n"]),
        (r"x$", ["ax", "x\n"], ["xa"]),
        ("mid", ["amidst"], ["md"]),
    ],
)
def test_what_people_write_matches_what_they_mean(text: str, matching: list[str], others: list[str]) -> None:
    made = pattern(text)
    assert [name for name in (*matching, *others) if made.matches(name)] == matching
