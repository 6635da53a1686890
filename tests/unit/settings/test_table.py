"""The table of settings itself: every field is a row, every row is complete, and the page in docs is made of it."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock import limits
from penstock.config import SETTINGS, Config
from penstock.errors import StartupError
from penstock.setting import INTEGER, NUMBER, Setting
from penstock.settings.values import UNITS

ROOT = Path(__file__).parents[3]
ROWS = pytest.mark.parametrize("row", SETTINGS.values(), ids=SETTINGS.keys())


def test_every_field_is_a_row() -> None:
    assert [field.name for field in fields(Config)] == list(SETTINGS), "make the field with setting(…)"


@ROWS
def test_a_row_says_what_it_is_and_why(row: Setting) -> None:
    assert row.about.endswith(".")
    assert row.reason.endswith(".")
    assert re.fullmatch("[a-z][a-z0-9_]*", row.name)
    assert row.unit in UNITS
    if row.kind in (INTEGER, NUMBER):
        assert row.least is not None, "a number has a range"
        assert row.unit == "" or row.name.endswith(("_s", "_bytes", "_max", "_min", "_below")), (
            "the unit is in the name"
        )
    assert row.default is None or row.default == 0 or row.default_text or row.check(row.default, row.name) is None


@ROWS
def test_a_value_outside_its_range_is_refused_in_the_tables_words(row: Setting) -> None:
    outside = [bound for bound in (row.least and row.least - 1, row.most and row.most + 1) if bound]
    for value in outside:
        with pytest.raises(StartupError, match=f"^{row.name} is .*; it must be "):
            Config(**{row.name: value})
    if row.choices:
        with pytest.raises(StartupError, match="it must be one of"):
            Config(**{row.name: "neither"})


def test_no_name_is_given_twice() -> None:
    rows = SETTINGS.values()
    flags = Counter(row.flag for row in rows if row.flag)
    keys = Counter(key for row in rows for key in row.rabbitmq_keys)
    variables = Counter(name for row in rows for name in (row.variable, *row.rabbitmq_variables))
    assert not [name for names in (flags, keys, variables) for name, count in names.items() if count > 1]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return runpy.run_path(str(ROOT / "tools/settings_pages.py"))


@pytest.mark.parametrize("name", ["docs/configuration.md", "docs/limits.md"])
def test_the_pages_in_docs_are_up_to_date(tool: dict[str, Any], name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    assert page == tool["rewritten"](page, tool["PAGES"][name]()), "run .venv/bin/python tools/settings_pages.py"


def test_every_limit_of_clients_has_the_test_that_the_page_names(tool: dict[str, Any]) -> None:
    rows = tool["limits_page"].__globals__["ROWS"]
    assert len(rows) > 20
    for row in rows:
        file, _, function = row.test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text if function else "def test_" in text, row
        assert row.name in SETTINGS or hasattr(limits, row.name), row
