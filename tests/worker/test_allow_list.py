"""Only what the operator named is ever run."""

from __future__ import annotations

import sys

import pytest

from penstock.worker.jobs.allow_list import AllowList, NotRunnable, Refused, check_arguments
from penstock.worker.jobs.formats import Call
from penstock.worker.jobs.operator_code import load_allow_list
from tests.worker import shop

SHOP = "tests.worker.shop"


def names(table: AllowList) -> set[str]:
    return {entry.name.removeprefix(f"{SHOP}:") for entry in table.runnables()}


def test_an_app_allows_its_jobs_and_nothing_else() -> None:
    table = load_allow_list(apps=[SHOP])
    assert names(table) == {"add", "fail", "hang", "tick"}
    with pytest.raises(Refused, match="not allowed here"):
        table.find(Call(f"{SHOP}:echo"))


def test_a_star_allows_what_the_module_defines_and_is_public() -> None:
    table = load_allow_list(allowed=[f"{SHOP}:*"])
    assert {"echo", "add", "Mailer", "Counter", "write_line"} <= names(table)
    for name in ("system", "_private", "Path", "Backoff", "NOT_CALLABLE"):
        with pytest.raises(Refused):
            table.find(Call(f"{SHOP}:{name}"))
        with pytest.raises(Refused):
            table.find(Call(name, is_class=True))


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "os.system",
        "builtins:eval",
        "subprocess:run",
        f"{SHOP}:system",
        f"{SHOP}:add.function",
        f"{SHOP}:add.__globals__",
        f"{SHOP}:Counter.reset",
        f"{SHOP}:*",
        "add",
        "__import__",
        "",
    ],
)
def test_a_name_from_a_message_is_only_looked_up(name: str) -> None:
    table = load_allow_list(apps=[SHOP], allowed=[f"{SHOP}:Counter"])
    for is_class in (False, True):
        with pytest.raises(Refused):
            table.find(Call(name, is_class=is_class))


def test_looking_up_a_name_imports_nothing() -> None:
    table = load_allow_list(apps=[SHOP])
    before = set(sys.modules)
    with pytest.raises(Refused):
        table.find(Call("this.is.not.imported:f"))
    with pytest.raises(Refused):
        table.find(Call("antigravity:geohash"))
    assert set(sys.modules) == before


def test_a_job_is_also_found_with_a_dot() -> None:
    table = load_allow_list(apps=[SHOP])
    assert table.find(Call(f"{SHOP}.add")).function is shop.add.function


def test_a_class_is_found_by_its_name_and_its_perform_is_run() -> None:
    table = load_allow_list(allowed=[f"{SHOP}:Mailer", f"{SHOP}:Counter"])
    assert table.find(Call("Mailer", is_class=True)).function("you") == "mailed you"
    assert table.find(Call("Counter", is_class=True)).function(5) == 15
    assert table.find(Call(f"{SHOP}:Counter", is_class=True)).function(5) == 15


def test_an_alias_is_one_more_name() -> None:
    table = load_allow_list(allowed=[f"Shop::Adder={SHOP}:add", f"Send={SHOP}:Mailer"])
    assert table.find(Call("Shop::Adder", is_class=True)).function(1, 2) == 3
    assert table.find(Call("Shop::Adder")).function(1, 2) == 3
    assert table.find(Call("Send", is_class=True)).function("you") == "mailed you"
    # It was given a name of its own, so the short one is free for another class.
    with pytest.raises(Refused):
        table.find(Call("Mailer", is_class=True))


def test_two_things_of_one_name_are_refused_at_the_start() -> None:
    with pytest.raises(NotRunnable, match="would both be called 'x'"):
        load_allow_list(allowed=[f"x={SHOP}:add", f"x={SHOP}:echo"])


def test_naming_the_same_thing_twice_is_fine() -> None:
    table = load_allow_list(apps=[SHOP], allowed=[f"{SHOP}:*", f"{SHOP}:Counter", f"{SHOP}:add"])
    assert table.find(Call(f"{SHOP}:add")).options.queue == "sums"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("add", "write MODULE:NAME"),
        (f"={SHOP}:add", "write MODULE:NAME"),
        (":add", "write MODULE:NAME"),
        (f"{SHOP}:", "write MODULE:NAME"),
        (f"x={SHOP}:*", "an alias is for one name"),
        ("no.such.module:f", "there is no module 'no.such.module'"),
        (f"{SHOP}.no:f", "there is no module"),
        (f"{SHOP}:missing", "there is no"),
        (f"{SHOP}:NOT_CALLABLE", "neither a function nor a class"),
        (f"{SHOP}:Path", "no method perform"),
        ("tests.worker:*", "defines no public function"),
    ],
)
def test_what_cannot_be_allowed_is_said(spec: str, why: str) -> None:
    with pytest.raises(NotRunnable, match=why):
        load_allow_list(allowed=[spec])


def test_an_app_without_jobs_is_refused() -> None:
    with pytest.raises(NotRunnable, match="has no @job functions"):
        load_allow_list(apps=["tests.worker"])


@pytest.mark.parametrize(
    "call", [Call("add", []), Call("add", [1, 2, 3]), Call("add", [1], {"c": 1}), Call("add", [1], {"a": 1})]
)
def test_arguments_that_the_function_does_not_take_are_refused(call: Call) -> None:
    runnable = load_allow_list(apps=[SHOP]).find(Call(f"{SHOP}:add"))
    with pytest.raises(Refused, match="cannot be called so"):
        check_arguments(runnable, call)


def test_arguments_that_fit_are_not() -> None:
    runnable = load_allow_list(apps=[SHOP]).find(Call(f"{SHOP}:add"))
    assert check_arguments(runnable, Call("add", [1], {"b": 2})) is None
