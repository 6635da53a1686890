"""Generated expressions, as text through the compiler and as trees through the second opinion: the same answers."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selector_house import Message, Tree, matches, meaning, truth, written
from tests.effort import examples

from penstock.selectors.bounds import INTEGER_MAX, INTEGER_MIN
from penstock.selectors.expression import Value, compile_selector

NAMES = ("a", "b", "x-c.d", "two words", 'say "no"', "and", "missing")
PROPERTIES = ("priority", "type", "user_id")
# Few and close together, so that values meet each other; and the ends of what there is.
TEXTS = st.sampled_from(["", "a", "b", "ab", "aab", "a%b", "_", "!", "it's", "A", "\n", "\N{GREEK SMALL LETTER PI}"])
INTEGERS = st.integers(-3, 3) | st.sampled_from([INTEGER_MIN, INTEGER_MIN + 1, 2**53 + 1, INTEGER_MAX, INTEGER_MAX - 1])
FLOATS = st.sampled_from([0.0, 0.5, -0.5, 1.0, 2.0, -3.0, 1e308, -1e308, 5e-324, 9007199254740992.0])
LITERALS = st.booleans() | INTEGERS | FLOATS | TEXTS
ODD_VALUES = st.sampled_from([float("nan"), float("inf"), float("-inf"), 2**64, -(2**70), 10**400, None])
VALUES = LITERALS | ODD_VALUES

names = st.sampled_from(NAMES).map(lambda name: ("header", name)) | st.sampled_from(PROPERTIES).map(
    lambda name: ("prop", name)
)


def literals(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Tree]:
    return values.map(lambda value: ("literal", value))


def numbers(depth: int) -> st.SearchStrategy[Tree]:
    """Trees that may stand where a number is expected."""
    leaf = names | literals(INTEGERS | FLOATS)
    if depth == 0:
        return leaf
    below = st.deferred(lambda: numbers(depth - 1))
    return leaf | st.tuples(st.just("arithmetic"), st.sampled_from("+-*/"), below, below)


def conditions(depth: int) -> st.SearchStrategy[Tree]:
    value = numbers(2) | literals(TEXTS) | literals(st.booleans())
    negated = st.booleans()
    compared = st.tuples(st.just("compare"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), value, value)
    parts = st.lists(st.none() | st.just("") | TEXTS.filter(bool), max_size=6)
    leaf = st.one_of(
        names,
        literals(st.booleans()),
        compared,
        compared,
        st.tuples(st.just("between"), negated, value, value, value),
        st.tuples(st.just("in"), negated, value, st.lists(LITERALS, min_size=1, max_size=4)),
        st.tuples(st.just("like"), negated, value, parts),
        st.tuples(st.just("null"), negated, value),
    )
    if depth == 0:
        return leaf
    below = st.deferred(lambda: conditions(depth - 1))
    return st.one_of(
        leaf,
        st.tuples(st.just("condition"), st.just("NOT"), below),
        st.tuples(st.just("condition"), st.sampled_from(["AND", "OR"]), below, below, below),
        st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), below, below),
        st.tuples(st.just("null"), negated, below),
    )


headers = st.dictionaries(st.sampled_from(NAMES[:-1]), VALUES)
props = st.dictionaries(st.sampled_from(PROPERTIES), VALUES)
Values = dict[str, Value]


@settings(max_examples=examples(500))
@given(conditions(2), headers, props)
@example(("compare", "=", ("literal", 2**53 + 1), ("literal", float(2**53))), {}, {})
def test_a_generated_selector_means_what_its_tree_means(tree: Tree, headers: Values, props: Values) -> None:
    text = written(tree)
    message = Message(headers, props)
    expected = meaning(tree, message)
    assert compile_selector(text).matches(message) is (expected is True), text
    assert compile_selector(f"({text}) IS NULL").matches(message) is (expected is None), text


@settings(max_examples=examples(200))
@given(numbers(3), headers, props)
def test_a_generated_calculation_has_the_result_that_fractions_have(tree: Tree, headers: Values, props: Values) -> None:
    text = written(tree)
    result = meaning(tree, Message(headers, props))
    if result is None:
        assert matches(f"{text} IS NULL", headers, props)
    else:
        assert matches(f'{text} = "the result"', {**headers, "the result": result}, props), (text, result)


# --- precedence: what the parentheses of generated texts hide -------------------------------------------

PRECEDENCE = [
    ("a OR b AND c", "a OR (b AND c)", "(a OR b) AND c"),
    ("a AND b OR c", "(a AND b) OR c", "a AND (b OR c)"),
    ("NOT a AND b", "(NOT a) AND b", "NOT (a AND b)"),
    ("NOT a OR b", "(NOT a) OR b", "NOT (a OR b)"),
    ("NOT a IS NULL", "NOT (a IS NULL)", "(NOT a) IS NULL"),
    ("NOT NOT a", "NOT (NOT a)", "NOT a"),
]


@pytest.mark.parametrize(("text", "same", "different"), PRECEDENCE)
def test_conditions_bind_as_in_sql(text: str, same: str, different: str) -> None:
    rows = [{"a": a, "b": b, "c": c} for a in (True, False, None) for b in (True, False, None) for c in (True, False)]
    answers = [truth(text, row) for row in rows]
    assert answers == [truth(same, row) for row in rows]
    assert answers != [truth(different, row) for row in rows]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("10 - (3 - 2)", 9),
        ("100 / 5 / 2", 10),
        ("100 / 5 * 2", 40),
        ("2 * -3", -6),
        ("- 2 - - 3", 1),
        ("-(1 + 2)", -3),
        ("+-+5", -5),
        ("1-2", -1),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("7 / 2.0", 3.5),
        ("1e2 + .5 + 2.", 102.5),
    ],
)
def test_calculations_bind_as_in_school_and_integers_are_cut_towards_zero(expression: str, result: float) -> None:
    assert matches(f"{expression} = r", {"r": result})
    assert matches(f"r = {expression}", {"r": result})
    assert not matches(f"{expression} = r", {"r": result + 1})


def test_the_and_of_between_is_not_an_and_of_conditions() -> None:
    text = "a BETWEEN 1 AND 3 AND b BETWEEN 2 + 2 AND 2 * 3"
    assert matches(text, {"a": 3, "b": 4})
    assert not matches(text, {"a": 4, "b": 4})
    assert not matches(text, {"a": 3, "b": 7})


def test_comparisons_of_conditions_need_parentheses_and_then_work() -> None:
    assert matches("(a = 1) = (b = 1)", {"a": 5, "b": 5})
    assert not matches("(a = 1) = (b = 1)", {"a": 1, "b": 5})
    assert truth("(a = 1) = (b = 1)", {"a": 1}) is None


# --- the truth tables ------------------------------------------------------------------------------------

TRUTHS = (True, False, None)


@pytest.mark.parametrize("a", TRUTHS)
@pytest.mark.parametrize("b", TRUTHS)
def test_and_is_the_least_and_or_the_greatest_of_two_truths(a: bool | None, b: bool | None) -> None:
    rank = {False: 0, None: 1, True: 2}
    assert truth("a AND b", {"a": a, "b": b}) is min(a, b, key=rank.__getitem__)
    assert truth("a OR b", {"a": a, "b": b}) is max(a, b, key=rank.__getitem__)


def test_not_turns_truths_round_and_leaves_the_unknown_unknown() -> None:
    assert truth("NOT a", {"a": True}) is False
    assert truth("NOT a", {"a": False}) is True
    assert truth("NOT a", {}) is None


@pytest.mark.parametrize("value", ["red", 1, 0, 0.0, ""])
def test_a_value_that_is_no_truth_is_unknown_as_a_condition(value: Value) -> None:
    for text in ("a", "NOT a", "a AND TRUE", "a OR FALSE"):
        assert truth(text if text != "a" else "a AND a", {"a": value}) is None
        assert not matches(text, {"a": value})


UNKNOWN = [
    "a = 1",
    "a <> 1",
    "a < 1",
    "a BETWEEN 0 AND 1",
    "1 BETWEEN a AND 2",
    "a IN (1, 2)",
    "a NOT IN (1, 2)",
    "a LIKE '%'",
    "a NOT LIKE '%'",
    "a = a",
    "a <> a",
    "a + 1 = 1",
    "-a = 1",
    "+a = 1",
]


@pytest.mark.parametrize("text", UNKNOWN)
@pytest.mark.parametrize("value", [None, float("nan")])
def test_what_is_asked_of_a_missing_header_or_a_nan_is_unknown(text: str, value: Value) -> None:
    assert truth(text, {"a": value}) is None
    assert truth(text, {}) is None


def test_between_is_false_as_soon_as_one_bound_says_so() -> None:
    assert truth("a BETWEEN b AND 5", {"a": 6}) is False
    assert truth("a BETWEEN b AND 5", {"a": 4}) is None
    assert truth("a NOT BETWEEN 1 AND 5", {"a": 6}) is True


@pytest.mark.parametrize(
    ("left", "right"),
    [("red", 1), ("1", 1), ("red", True), (1, True), (0.0, False), ("true", True)],
)
def test_values_of_different_kinds_are_neither_equal_nor_unequal(left: Value, right: Value) -> None:
    for operator in ("=", "<>", "<", "<=", ">", ">="):
        assert truth(f"a {operator} b", {"a": left, "b": right}) is None
        assert truth(f"a {operator} b", {"a": right, "b": left}) is None


def test_numbers_are_compared_by_value_without_rounding() -> None:
    assert matches("a = 5", {"a": 5.0})
    assert matches("a IN (5)", {"a": 5.0})
    assert matches("a IN (5.0)", {"a": 5})
    assert matches("a > 9007199254740992.0", {"a": 2**53 + 1})
    assert not matches("a = 9007199254740992.0", {"a": 2**53 + 1})
    assert matches("a > 1e308", {"a": 10**400})
    assert matches("a > b", {"a": float("inf"), "b": 10**400})


def test_texts_are_ordered_by_code_points_and_truths_have_no_order() -> None:
    assert matches("a < 'b'", {"a": "a"})
    assert matches("a < 'a'", {"a": "Z"})
    assert matches("a BETWEEN 'b' AND 'd'", {"a": "c"})
    assert truth("a < b", {"a": False, "b": True}) is None
    assert truth("a <> b", {"a": False, "b": True}) is True


def test_a_list_with_members_of_another_kind_never_says_no() -> None:
    assert truth("a IN (1, 'x', TRUE)", {"a": 1}) is True
    assert truth("a IN (1, 'x', TRUE)", {"a": "x"}) is True
    assert truth("a IN (1, 'x', TRUE)", {"a": True}) is True
    assert truth("a IN (1, 'x', TRUE)", {"a": 2}) is None
    assert truth("a IN (1, 2)", {"a": 3}) is False
    assert truth("a IN (TRUE)", {"a": 1}) is None
    assert truth("a IN (1)", {"a": True}) is None
    assert truth("a IN ('x')", {"a": "y"}) is False
    assert truth("a IN (-1, +2)", {"a": -1}) is True


@pytest.mark.parametrize(
    "text",
    [
        "1 / a = 1",
        "1.0 / a = 1",
        "1 / (a - a) = 1",
        f"{INTEGER_MAX} + 1 = b",
        f"{INTEGER_MIN} - 1 = b",
        f"{INTEGER_MAX} * {INTEGER_MAX} > 0",
        "1e308 * 10 > 0",
        "b + 1 > 0",
        "b * 0.5 > 0",
        "0.5 * b > 0",
        "-b < 0",
    ],
)
def test_a_result_that_does_not_exist_or_is_out_of_bounds_is_unknown(text: str) -> None:
    assert truth(text, {"a": 0, "b": 2**64}) is None


@pytest.mark.parametrize(
    "text", ["b + 1 = c", "1 + b = c", "b * 0.5 = c", "0.5 * b = c", "1 / b = c", "-b = c", "+b = c"]
)
@pytest.mark.parametrize("value", [10**400, -(10**400), INTEGER_MAX + 1, INTEGER_MIN - 1])
def test_nothing_is_calculated_with_an_integer_that_no_field_holds(text: str, value: int) -> None:
    assert truth(text, {"b": value, "c": 1}) is None
    assert matches("b = b", {"b": value})
