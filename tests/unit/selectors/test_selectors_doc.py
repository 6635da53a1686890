"""docs/selectors.md says what is so: its examples, its message, its tables and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from selector_house import Message, truth

from penstock.selectors import bounds
from penstock.selectors.expression import SelectorError, compile_selector
from penstock.selectors.lexer import KEYWORDS
from penstock.selectors.parser import PROPERTIES

DOC = (Path(__file__).parents[3] / "docs" / "selectors.md").read_text()


def fenced(kind: str) -> list[str]:
    """The lines of all blocks of a kind."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL)
    assert blocks, f"docs/selectors.md has no block of {kind}"
    return [line for block in blocks for line in block.splitlines()]


def message_of_the_doc() -> Message:
    parts = json.loads("\n".join(fenced("json")))
    return Message(parts["headers"], parts["properties"])


def table(first_column: str) -> list[list[str]]:
    """The rows of the table whose first column has this title."""
    start = DOC.index(f"| {first_column} |")
    rows = DOC[start:].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("text", fenced("selector"))
def test_an_example_of_the_doc_compiles(text: str) -> None:
    assert compile_selector(text).text == text


@pytest.mark.parametrize("text", fenced("matches"))
def test_the_message_of_the_doc_matches(text: str) -> None:
    assert compile_selector(text).matches(message_of_the_doc())


@pytest.mark.parametrize("text", fenced("does-not-match"))
def test_the_message_of_the_doc_does_not_match(text: str) -> None:
    assert not compile_selector(text).matches(message_of_the_doc())


@pytest.mark.parametrize("line", fenced("errors"))
def test_an_error_of_the_doc_is_worded_as_it_says(line: str) -> None:
    text, words = re.split(r" {2,}", line, maxsplit=1)
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert str(caught.value) == words


def test_the_doc_lists_every_property_and_no_other() -> None:
    rows = table("what is written")
    assert sorted(re.findall(r"^`amqp\.(\w+)`", "\n".join(row[0] for row in rows), re.MULTILINE)) == sorted(PROPERTIES)


@pytest.mark.parametrize("row", table("a"))
def test_the_truth_table_of_the_doc_is_so(row: list[str]) -> None:
    truths = {"true": True, "false": False, "unknown": None}
    a, b, conjunction, disjunction, negation = [truths[cell] for cell in row]
    headers: dict[str, bool | int | float | str | None] = {"a": a, "b": b}
    assert truth("a AND b", headers) is conjunction
    assert truth("a OR b", headers) is disjunction
    assert truth("NOT a", headers) is negation


def test_the_truth_table_of_the_doc_is_whole() -> None:
    assert len({(row[0], row[1]) for row in table("a")}) == 9


def test_the_limits_of_the_doc_are_those_of_the_code() -> None:
    stated = [row[1] for row in table("what")]
    sizes = [bounds.TEXT_CHARS_MAX, bounds.NESTING_MAX, bounds.NODES_MAX, bounds.PATTERN_CHARS_MAX]
    assert stated[:5] == [str(limit) for limit in (*sizes, bounds.SEARCHES_MAX)]
    assert stated[5] == f"64 bits: {bounds.INTEGER_MIN} to {bounds.INTEGER_MAX}"


def test_the_grammar_of_the_doc_has_every_keyword() -> None:
    grammar = "\n".join(fenced("text"))
    assert set(re.findall(r"\b[A-Z]{2,}\b", grammar)) >= KEYWORDS
