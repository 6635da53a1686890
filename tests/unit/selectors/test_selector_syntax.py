"""What a selector may look like, what is said of one that is not one, and the limits."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selector_house import Message, matches
from tests.effort import examples

from penstock.limits import SHORT_STRING_BYTES_MAX
from penstock.selectors.bounds import INTEGER_MAX, INTEGER_MIN, NESTING_MAX, NODES_MAX, TEXT_CHARS_MAX
from penstock.selectors.expression import Selector, SelectorError, compile_selector
from penstock.selectors.lexer import KEYWORDS
from penstock.selectors.parser import PROPERTIES


def error_of(text: str) -> str:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    return str(caught.value)


def outcome(text: str) -> Selector | SelectorError:
    """What becomes of any text; another exception fails the test."""
    try:
        return compile_selector(text)
    except SelectorError as error:
        return error


# --- names, literals, keywords --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "x-match", "a.b.c", "_x", "$ref", "a1", "a$b", "trailing-", "\u00fcber", "nota"])
def test_a_name_of_letters_digits_and_four_signs_needs_no_quotes(name: str) -> None:
    selector = compile_selector(f"{name} = 1")
    assert selector.names == {name}
    assert selector.matches(Message({name: 1}))


@pytest.mark.parametrize("name", ["two words", "1st", "a/b", "a=b", "amqp.priority", "amqp.anything", "'", " ", "a,b"])
def test_any_other_name_stands_in_double_quotes_and_is_always_a_header(name: str) -> None:
    selector = compile_selector(f'"{name}" = 1')
    assert selector.names == {name}
    assert selector.matches(Message({name: 1}))


def test_a_double_quote_in_a_name_is_written_twice() -> None:
    assert matches('"say ""no""" = 1', {'say "no"': 1})


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_a_keyword_in_double_quotes_is_a_name(word: str) -> None:
    assert compile_selector(f'"{word}" = 1').names == {word}
    assert matches(f'"{word}" = 1', {word: 1})


def test_names_are_case_sensitive_and_keywords_are_not() -> None:
    assert matches("Color = 'red' aNd NOT color iS nOt nUlL", {"Color": "red"})
    assert matches("a between 1 and 2 or a in (5) or a like 'x' escape '!' or a is null", {"a": 5})
    assert matches("a = true AND b = False", {"a": True, "b": False})


def test_a_letter_whose_capital_is_ascii_makes_no_keyword() -> None:
    # The capital of a dotless i is I.
    assert compile_selector("\u0131n = 1").names == {"\u0131n"}


def test_a_minus_inside_a_name_belongs_to_it() -> None:
    assert compile_selector("a-b = 1").names == {"a-b"}
    assert compile_selector("a - b = 1").names == {"a", "b"}
    assert compile_selector("a -b = 1").names == {"a", "b"}
    assert compile_selector("2-b = 1").names == {"b"}


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_every_property_has_a_name_with_a_prefix_and_needs_no_headers(name: str) -> None:
    selector = compile_selector(f"amqp.{name} = 'x'")
    assert not selector.names
    assert not selector.needs_headers
    assert selector.matches(Message(props={name: "x"}))
    assert not selector.matches(Message(headers={f"amqp.{name}": "x", name: "x"}))


def test_a_selector_knows_its_text_and_the_headers_it_looks_at() -> None:
    text = "a = 1 AND (b LIKE 'x' OR NOT a IN (2)) AND amqp.priority > c"
    selector = compile_selector(text)
    assert selector.text == text
    assert selector.names == {"a", "b", "c"}
    assert selector.needs_headers


def test_texts_keep_their_quotes_spaces_and_lines() -> None:
    assert matches("a = 'it''s'", {"a": "it's"})
    assert matches("a = ''", {"a": ""})
    assert matches("a = ''''", {"a": "'"})
    assert matches("a = ' \n\t\"\\n'", {"a": ' \n\t"\\n'})


def test_spaces_are_needed_between_words_only() -> None:
    assert matches("(a=1)AND(b<>'x')OR\tc\n>=\r\n5", {"a": 1, "b": "y"})
    assert matches("a=-1", {"a": -1})
    assert matches("a<-1", {"a": -2})


@pytest.mark.parametrize("value", [INTEGER_MIN, INTEGER_MIN + 1, 0, 2**63 - 1, 2**63, INTEGER_MAX])
def test_every_integer_of_64_bits_can_be_written(value: int) -> None:
    assert matches(f"a = {value}", {"a": value})
    assert matches(f"a IN ({value})", {"a": value})
    assert not matches(f"a = {value}", {"a": value + 1})


def test_zeros_before_an_integer_do_not_count() -> None:
    assert matches(f"a = {'0' * 100}7", {"a": 7})


# --- errors ---------------------------------------------------------------------------------------------

VALUE = "expected a name, a number, a text in single quotes, TRUE, FALSE or '('"

ERRORS = [
    ("", f"column 1: the selector ends here; {VALUE}"),
    ("  ", f"column 3: the selector ends here; {VALUE}"),
    ("a =", f"column 4: the selector ends here; {VALUE}"),
    ("a = AND b", f"column 5: found 'AND'; {VALUE}"),
    ("a AND OR b", f"column 7: found 'OR'; {VALUE}"),
    ("a = NULL", "column 5: found 'NULL'; expected IS NULL behind a name"),
    ("5", "column 1: found a number; expected a condition"),
    ("'red'", "column 1: found a text; expected a condition"),
    ("a + 1", "column 1: found a number; expected a condition"),
    ("a AND 'red'", "column 7: found a text; expected a condition"),
    ("a OR (1)", "column 6: found a number; expected a condition"),
    ("NOT 5", "column 5: found a number; expected a condition"),
    ("'a' + 1 = b", "column 1: found a text; expected a number or a name"),
    ("b = 1 * TRUE", "column 9: found a condition; expected a number or a name"),
    ("b = -'x'", "column 6: found a text; expected a number or a name"),
    ("a = 1 b", "column 7: found 'b'; expected AND, OR or the end"),
    ("a b", "column 3: found 'b'; expected an operator, AND, OR or the end"),
    ("a = b = c", "column 7: found '='; expected AND, OR or the end"),
    ("a = 1)", "column 6: found ')'; expected AND, OR or the end"),
    ("(a = 1", "column 7: the selector ends here; expected AND, OR or ')'"),
    ("(a 5", "column 4: found 5; expected an operator, AND, OR or ')'"),
    ("a NOT = 1", "column 7: found '='; expected BETWEEN, IN or LIKE"),
    ("a IS 5", "column 6: found 5; expected NULL or NOT NULL"),
    ("a IS NOT 'x'", "column 10: found 'x'; expected NULL"),
    ("a BETWEEN 1 OR 2", "column 13: found 'OR'; expected AND and the upper bound of BETWEEN"),
    ("a IN 5", "column 6: found 5; expected '(' and the list of IN"),
    ("a IN ()", "column 7: found ')'; expected a number, a text in single quotes, TRUE or FALSE"),
    ("a IN (1,)", "column 9: found ')'; expected a number, a text in single quotes, TRUE or FALSE"),
    ("a IN (b)", "column 7: found 'b'; expected a number, a text in single quotes, TRUE or FALSE"),
    ("a IN (-b)", "column 8: found 'b'; expected a number, a text in single quotes, TRUE or FALSE"),
    ("a IN (-", "column 8: the selector ends here; expected a number, a text in single quotes, TRUE or FALSE"),
    ("a IN (-'x')", "column 8: found a text; expected a number or a name"),
    ("a IN (1 2)", "column 9: found 2; expected ',' or ')'"),
    ("a LIKE b", "column 8: found 'b'; expected a pattern in single quotes"),
    ("a LIKE 5", "column 8: found 5; expected a pattern in single quotes"),
    ("a LIKE 'x' ESCAPE", "column 18: the selector ends here; expected one character in single quotes"),
    ("a = 'x", "column 5: the text that begins here has no end; expected a closing '"),
    ('a = "x', 'column 5: the name that begins here has no end; expected a closing "'),
    ('"" = 1', "column 1: the name is empty; expected a name between double quotes"),
    ("a == 1", "column 3: found '=='; expected '='"),
    ("a != 1", "column 3: found '!='; expected '<>'"),
    ("a && b", "column 3: found '&&'; expected AND"),
    ("a || b", "column 3: found '||'; expected OR"),
    ("a = #", "column 5: found '#'; expected a name, a value or an operator"),
    ("a = \x00", "column 5: found '?'; expected a name, a value or an operator"),
    ("a = .", "column 5: found '.'; expected a name, a value or an operator"),
    ("1st = 2", "column 1: found '1s'; expected a number, or a name in double quotes if it is one"),
    ("a = 1.2.3", "column 5: found '1.2.'; expected a number, or a name in double quotes if it is one"),
    ("a = 1e", "column 5: found '1e'; expected digits after the E of the number"),
    ("a = 1e999", "column 5: the number 1e999 is too large; expected a double-precision float"),
    (
        f"a = {INTEGER_MAX + 1}",
        f"column 5: the number {INTEGER_MAX + 1} is too large; expected an integer of at most 64 bits",
    ),
    (f"a = {INTEGER_MIN - 1}", "column 6: the number is too small; expected an integer of at most 64 bits"),
    (
        "a = " + "9" * 100,
        f"column 5: the number {'9' * 24}... is too large; expected an integer of at most 64 bits",
    ),
    (
        "a = 1 AND amqp.colour = 1",
        "column 11: there is no property 'amqp.colour'; "
        "expected a property like amqp.type, or the name of a header in double quotes",
    ),
]


@pytest.mark.parametrize(("text", "words"), ERRORS)
def test_an_error_says_where_what_and_what_instead(text: str, words: str) -> None:
    assert error_of(text) == words


def test_an_error_carries_its_parts() -> None:
    with pytest.raises(ValueError, match="column 3") as caught:
        compile_selector("a ? 1")
    assert isinstance(caught.value, SelectorError)
    assert (caught.value.column, caught.value.problem) == (3, "found '?'")
    assert caught.value.expected == "a name, a value or an operator"


# --- limits and hostile input -----------------------------------------------------------------------------


def test_the_longest_selector_is_accepted_and_one_character_more_is_not() -> None:
    text = "a = 1".ljust(TEXT_CHARS_MAX)
    assert matches(text, {"a": 1})
    assert error_of(text + " ") == "column 4097: the selector has 4097 characters; expected at most 4096"


@pytest.mark.parametrize(
    ("opening", "closing", "column"),
    # What is opened once per level, what closes it again, and where the level that is too much begins.
    [("(", ")", 65), ("NOT ", "", 64 * 4 + 1), ("a = 1 AND (", ")", 65 * 11), ("NOT (", ")", 32 * 5 + 1)],
)
def test_the_deepest_condition_is_accepted_and_one_level_more_is_not(opening: str, closing: str, column: int) -> None:
    counted = opening.count("(") + opening.count("NOT")
    depth = NESTING_MAX // counted
    assert matches(opening * depth + "a = 1" + ")" * (depth * opening.count("(")), {"a": 1})
    words = error_of(opening * (depth + 1) + "a = 1" + closing * (depth + 1))
    assert words == f"column {column}: parentheses, NOT and signs are nested too deep; expected at most 64 levels"


@pytest.mark.parametrize("sign", ["- ", "-", "+ "])
def test_the_deepest_signs_are_accepted_and_one_more_is_not(sign: str) -> None:
    assert matches("1 = " + sign * NESTING_MAX + "a", {"a": 1})
    assert "nested too deep" in error_of("1 = " + sign * (NESTING_MAX + 1) + "a")


def test_the_deepest_tree_fits_the_stack_that_python_gives() -> None:
    text = "b OR a AND a = (" * NESTING_MAX + "a" + ")" * NESTING_MAX
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    try:
        assert matches(text, {"a": True, "b": False})
    finally:
        sys.setrecursionlimit(limit)


def test_levels_beside_each_other_do_not_add_up() -> None:
    text = " OR ".join(["(NOT (a = -b))"] * (NESTING_MAX + 6))
    assert matches(text, {"a": 1, "b": 1})


def test_the_largest_selector_is_accepted_and_one_node_more_is_not() -> None:
    members = ", ".join(["5"] * (NODES_MAX - 2))
    assert matches(f"a IN ({members})", {"a": 5})
    assert error_of(f"a IN ({members}, 5)").endswith(
        "there are too many names, literals and operators; expected at most 512"
    )


@pytest.mark.parametrize("operator", [" AND ", " OR ", " + ", " * "])
def test_a_long_chain_is_flat_until_it_has_too_many_nodes(operator: str) -> None:
    count = NODES_MAX // 2 - 1
    value, tail = (True, "") if operator in (" AND ", " OR ") else (1, " > 0")
    assert matches(operator.join(["a"] * count) + tail, {"a": value})
    assert "too many names" in error_of(operator.join(["a"] * (NODES_MAX // 2 + 1)) + tail)


HOSTILE = [
    "NOT ",
    "- ",
    "(",
    "a AND ",
    "a = ",
    "a + ",
    "a IN (",
    "1,",
    "'",
    '"',
    "'' ",
    ")",
    "a.",
    "9",
    "a LIKE '%",
    "--",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", ["", "a = ", "a IN (", "a LIKE "])
def test_repeating_one_piece_ends_in_an_error_or_a_selector(piece: str, head: str) -> None:
    text = (head + piece * TEXT_CHARS_MAX)[:TEXT_CHARS_MAX]
    found = outcome(text)
    if isinstance(found, SelectorError):
        assert 1 <= found.column <= len(text) + 1
    else:
        assert found.text == text


PIECES = st.sampled_from(
    [
        *sorted(KEYWORDS),
        *("(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "!", ".", "e", "'", '"'),
        *("a", "amqp.type", "amqp.x", "'x'", "'%_'", '"n"', "1", "2.5", "18446744073709551616", "\x00", "\ud800"),
    ]
)
# Some of them also for other values: what compiles is asked about messages that are not what it expects.
MESSAGES = [
    Message({"a": value, "n": value}, {"type": value})
    for value in (None, True, "x", "", 0, -1, 2**64, -(10**400), 0.0, float("nan"), float("inf"), float("-inf"))
]


@settings(max_examples=examples(500))
@given(st.lists(PIECES, max_size=25).map(" ".join) | st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=60))
@example("a IN (-(a))")
@example('a IN (-"TRUE")')
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    found = outcome(text)
    if isinstance(found, SelectorError):
        assert 1 <= found.column <= len(text) + 1
        assert str(found).isprintable()
        # It goes into a reply text, behind a name and the argument.
        assert len(str(found).encode()) < SHORT_STRING_BYTES_MAX - 64
    else:
        assert {found.matches(message) for message in MESSAGES} <= {True, False}
