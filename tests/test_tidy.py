"""The habits of the house that a program can check. Each rule is a test; its message says what to do.

The rules themselves are in `tidy_rules`; the second half of this file shows each of them what it must not miss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.tidy_rules import (
    ROOT,
    Finding,
    SourceFile,
    assertion_free_tests,
    attributes_by_name,
    coroutines,
    generator_expressions,
    leftovers,
    lonely_bases,
    long_functions,
    loose_globals,
    machine_paths,
    memoryviews,
    outside_codes,
    prints,
    skips_without_reason,
    sleeps,
    source_files,
    weak_references,
)

FILE_LINES_MAX = 750
FUNCTION_LINES_MAX = 60

# Every message passes through these.
HOT_ROOMS = ("wire", "routing", "selectors", "journal", "store", "backing", "queues")
HOT_LEAVES = ("message", "limits", "clock", "errors", "reply_codes", "fields", "call_all")

# Hot files that may use memoryviews, and why.
MEMORYVIEWS = {"src/penstock/wire/frames.py": "a body of many frames is sent without being copied"}

NAMES_THAT_SAY_NOTHING = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}
PYTHON_FOLDERS = ("src", "tests", "tools", "benches")
TEXT_FOLDERS = (*PYTHON_FOLDERS, "docs", "spec", ".ci", ".github")
TEXT_ENDINGS = (".py", ".md", ".toml", ".json", ".xml", ".yml", ".yaml", ".sql", ".sh", ".c", ".h", ".txt")
# Programs and rules without an ending.
TEXT_NAMES = ("Makefile", "run")

Rule = Callable[[SourceFile], list[Finding]]


def python_files() -> Sequence[SourceFile]:
    return source_files(*PYTHON_FOLDERS)


def files_of_tests() -> Sequence[SourceFile]:
    return source_files("tests")


def text_files() -> Sequence[SourceFile]:
    at_the_root = [
        SourceFile(path.name, path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.iterdir())
        if path.is_file() and (path.suffix in (".md", ".toml") or path.name in ("Makefile", ".gitignore"))
    ]
    return [*at_the_root, *source_files(*TEXT_FOLDERS, endings=(*TEXT_ENDINGS, *TEXT_NAMES))]


def hot_files() -> Sequence[SourceFile]:
    rooms = source_files(*(f"src/penstock/{room}" for room in HOT_ROOMS))
    leaves = [file for file in source_files("src/penstock") if file.path.count("/") == 2]
    files = [file for file in source_files("src/penstock/disk") if file.name == "files.py"]
    return [*rooms, *files, *(file for file in leaves if file.name.removesuffix(".py") in HOT_LEAVES)]


def assert_nothing_found(rule: Rule, files: Sequence[SourceFile], what_to_do: str) -> None:
    assert files, "there is nothing to check: the rule looks in the wrong place"
    found = [f"{file.path}:{line}: {what}" for file in files for line, what in rule(file)]
    assert not found, "\n".join([what_to_do, *found])


# --- size and shape -------------------------------------------------------------------------------


def test_no_file_is_longer_than_a_noun_needs() -> None:
    lines = {file.path: len(file.text.splitlines()) for file in python_files() if not file.is_generated}
    too_long = {path: count for path, count in lines.items() if count > FILE_LINES_MAX}
    assert not too_long, f"split these by noun, at most {FILE_LINES_MAX} lines: {too_long}"


def test_no_class_is_only_a_floor_below_another_one() -> None:
    """A base with one child in its own package that nobody makes: fold it, or make it an object of its own.

    The simulated disk is the other child of the classes in `disk`.
    """
    files = [file for file in source_files("src", "tests/disk") if not file.is_generated]
    assert files, "there is nothing to check: the rule looks in the wrong place"
    assert lonely_bases(files) == []


def test_functions_fit_on_a_page() -> None:
    assert_nothing_found(
        lambda file: [] if file.is_generated else long_functions(file, FUNCTION_LINES_MAX),
        python_files(),
        f"A function has at most {FUNCTION_LINES_MAX} lines besides its docstring. Name a part of it and move it out.",
    )


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = [file.path for file in python_files() if file.name in NAMES_THAT_SAY_NOTHING]
    assert not vague, f"name the file after the noun it is about: {vague}"


def test_the_architecture_page_names_every_room() -> None:
    page = ROOT / "ARCHITECTURE.md"
    assert page.exists(), "ARCHITECTURE.md is missing"
    text = page.read_text(encoding="utf-8")
    rooms = sorted(path.parent.name for path in (ROOT / "src/penstock").glob("*/__init__.py"))
    unnamed = [room for room in rooms if f"{room}/" not in text]
    assert rooms, "there is nothing to check: the rule looks in the wrong place"
    assert not unnamed, f"say in ARCHITECTURE.md what these rooms are for: {unnamed}"


# --- the hot path; what mypyc takes of it, `make test-compiled` finds out -------------------------------


def test_hot_rooms_have_no_generator_expressions() -> None:
    assert_nothing_found(generator_expressions, hot_files(), "They are slower than a loop or a list, in both builds.")


def test_hot_rooms_do_not_reach_for_attributes_by_name() -> None:
    assert_nothing_found(attributes_by_name, hot_files(), "mypy cannot check it: write the attribute, or a method.")


def test_module_globals_of_hot_rooms_are_final() -> None:
    assert_nothing_found(
        loose_globals, hot_files(), "Annotate constants `NAME: Final`; state belongs to an object, not to a module."
    )


def test_hot_rooms_have_no_memoryviews() -> None:
    assert_nothing_found(
        memoryviews,
        [file for file in hot_files() if file.path not in MEMORYVIEWS],
        "Pass (bytes, offset): indexing a view is slow in both modes.",
    )


def test_nothing_refers_weakly_to_what_may_be_compiled() -> None:
    rooms = (*HOT_ROOMS, "broker", "server")
    assert_nothing_found(
        weak_references,
        source_files(*(f"src/penstock/{room}" for room in rooms)),
        "Compiled objects do not clear weak references when they go (docs/decisions/0018): let the owner cut the way.",
    )


def test_hot_rooms_are_synchronous() -> None:
    assert_nothing_found(
        coroutines, hot_files(), "The core decides and returns what is to be done; waiting is outside."
    )


# --- words and calls --------------------------------------------------------------------------------


def test_nothing_is_left_for_later_in_the_code() -> None:
    assert_nothing_found(leftovers, text_files(), "Do it, or open an issue and take the remark out.")


def test_rules_are_said_in_words() -> None:
    assert_nothing_found(
        outside_codes, text_files(), "Say the rule in words; docs/lineage.md says where ideas come from."
    )


def test_nothing_names_a_path_of_one_machine() -> None:
    assert_nothing_found(machine_paths, text_files(), "Use a path inside the repo, a temporary folder or a variable.")


def test_only_the_command_prints() -> None:
    files = [file for file in source_files("src") if not file.path.startswith("src/penstock/cli/")]
    assert_nothing_found(prints, files, "Use logging, or return the text to the command.")


# --- tests ------------------------------------------------------------------------------------------


def test_every_test_asserts_something() -> None:
    assert_nothing_found(
        assertion_free_tests,
        [file for file in files_of_tests() if file.name.startswith("test_")],
        "A test without an assert cannot fail as it should: state what must be true, or call a helper whose name"
        " starts with assert_, check_, expect_, wait_until or wait_for_.",
    )


def test_tests_do_not_sleep() -> None:
    assert_nothing_found(sleeps, files_of_tests(), "Wait for a condition with a deadline, in a helper that polls.")


def test_every_skip_gives_a_reason() -> None:
    assert_nothing_found(
        skips_without_reason, files_of_tests(), "Say in a few words what is missing and how to get it."
    )


# --- the rules see what they forbid, and nothing else -------------------------------------------------


def long_functions_over_three(file: SourceFile) -> list[Finding]:
    return long_functions(file, 3)


FORBIDDEN: list[tuple[Rule, str]] = [
    (long_functions_over_three, "def f():\n    a()\n    b()\n    c()\n"),
    (generator_expressions, "x = any(a for a in b)\n"),
    (attributes_by_name, "getattr(a, 'b')\n"),
    (attributes_by_name, "setattr(a, 'b', 1)\n"),
    (loose_globals, "count = 0\n"),
    (loose_globals, "TABLE = {}\n"),
    (loose_globals, "TABLE: dict[int, str] = {}\n"),
    (loose_globals, "try:\n    import a\nexcept ImportError:\n    a = None\n"),
    (loose_globals, "if x:\n    y = 1\n"),
    (loose_globals, "for x in y:\n    pass\n"),
    (memoryviews, "def f(a: memoryview) -> int:\n    return a[0]\n"),
    (weak_references, "import weakref\n"),
    (weak_references, "from weakref import ref\n"),
    (coroutines, "async def f():\n    pass\n"),
    (leftovers, "# TO" + "DO: later\n"),
    (machine_paths, "path = '/ro" + "ot/x'\n"),
    (machine_paths, "see /ho" + "me/someone/x\n"),
    (outside_codes, "requeue (V" + "Q-9)"),
    (prints, "def f():\n    print('x')\n"),
    (assertion_free_tests, "def test_a():\n    f()\n"),
    (assertion_free_tests, "class TestA:\n    async def test_a(self):\n        await f()\n"),
    (sleeps, "import time\ntime.sleep(1)\n"),
    (sleeps, "from time import sleep as nap\nnap(1)\n"),
    (sleeps, "async def f():\n    await asyncio.sleep(1)\n"),
    (sleeps, "while not ready():\n    time.sleep(0.01)\n"),
    (skips_without_reason, "@pytest.mark.skip\ndef test_a():\n    pass\n"),
    (skips_without_reason, "@pytest.mark.skipif(True)\ndef test_a():\n    pass\n"),
    (skips_without_reason, "@pytest.mark.xfail\ndef test_a():\n    pass\n"),
    (skips_without_reason, "pytest.skip()\n"),
    (skips_without_reason, "pytest.skip('')\n"),
]

ALLOWED: list[tuple[Rule, str]] = [
    (long_functions_over_three, 'def f():\n    """One.\n\n    Two.\n    """\n    a()\n    b()\n'),
    (generator_expressions, "x = any([a for a in b])\ny = {a for a in b}\n"),
    (loose_globals, "A: Final = 1\nB: Final[dict[int, str]] = {}\n__all__ = ['A']\n"),
    (loose_globals, "Entry = tuple[int, str]\nMaybe = Entry | None\nField: TypeAlias = 'int | Field'\n"),
    (loose_globals, "class A:\n    x = 1\n\ndef f():\n    y = 1\n"),
    (leftovers, "mkstemp XX" + "XXXX, a hacksaw, todos\n"),
    (machine_paths, "https://example.org/wo" + "rk/x, src/ro" + "ot/x, /etc/hosts\n"),
    (prints, "def f():\n    pprint('x')\n    'print(x)'\n"),
    (assertion_free_tests, "def test_a():\n    assert f()\n"),
    (assertion_free_tests, "def test_a():\n    with pytest.raises(ValueError):\n        f()\n"),
    (assertion_free_tests, "def test_a():\n    check_order(f())\n"),
    (assertion_free_tests, "def test_a():\n    f().expect_close(404)\n"),
    (assertion_free_tests, "def test_a():\n    wait_until(f, 'it is there')\n"),
    (assertion_free_tests, "def helper():\n    f()\n"),
    (sleeps, "async def f():\n    await asyncio.sleep(0)\n    while x:\n        await asyncio.sleep(0.01)\n"),
    (skips_without_reason, "pytest.skip('no rabbitmq-server here')\npytest.skip(why)\n"),
    (skips_without_reason, "@pytest.mark.skipif(x, reason='needs a rabbitmq-server')\ndef test_a():\n    pass\n"),
]


def name_of(value: object) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("rule", "text"), FORBIDDEN, ids=name_of)
def test_a_rule_sees_what_it_forbids(rule: Rule, text: str) -> None:
    assert rule(SourceFile("tests/test_x.py", text)), f"{rule.__name__} says nothing about:\n{text}"


@pytest.mark.parametrize(("rule", "text"), ALLOWED, ids=name_of)
def test_a_rule_is_silent_about_what_it_allows(rule: Rule, text: str) -> None:
    found = rule(SourceFile("tests/test_x.py", text))
    assert not found, f"{rule.__name__} should accept this, but says {found}:\n{text}"


def test_a_helper_may_pause_in_the_loop_that_waits() -> None:
    text = "while not ready():\n    time.sleep(0.01)\n"
    assert not sleeps(SourceFile("tests/waiting.py", text))
    assert sleeps(SourceFile("tests/waiting.py", "time.sleep(0.01)\n"))
