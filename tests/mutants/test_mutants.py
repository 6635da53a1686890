"""The list of mutants fits the source: each bug can be put in, and the tests that must notice it are there.

`make mutants` puts them in and runs these tests.
"""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.mutants.mutant import CannotApply, Mutant, load
from tests.tidy_rules import ROOT

MUTANTS = load()


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_still_fits_the_source_and_has_killers(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    with_bug = mutant.applied_to(text)
    assert with_bug != text
    if mutant.file.endswith(".py"):
        ast.parse(with_bug)
    assert mutant.promise
    assert mutant.killers
    for killer in mutant.killers:
        path, _, name = killer.partition("::")
        assert name.partition("[")[0] in functions_of(path), f"{killer} is not there"


def test_no_two_mutants_are_the_same() -> None:
    bugs = [(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(bugs) == len(set(bugs))


@pytest.mark.parametrize("text", ["", "a a"])
def test_a_text_that_is_not_there_once_cannot_be_replaced(text: str) -> None:
    with pytest.raises(CannotApply, match="not once"):
        Mutant("m", "p", "f", "a", "b", ("t",)).applied_to(text)
