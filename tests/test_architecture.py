"""ARCHITECTURE.md and docs/glossary.md are true: the arrows are those of the import table, and every name resolves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_import_direction import LEAVES, ROOMS
from tests.tidy_rules import ROOT, source_files

PACKAGE = ROOT / "src/penstock"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
MAP = PAGE.partition("## 2. Map")[2].partition("\n## ")[0]
# Folders of a data folder, which are nobody's source.
ON_DISK = ("readers/", "lost+found")

DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"[\w*./-]+(?:/[\w*.-]*|\.py|\.md)")


def named(pattern: re.Pattern[str]) -> list[str]:
    """Every name of that form on the two pages."""
    tokens = re.findall(r"`([^`\n]+)`", f"{PAGE}\n{GLOSSARY}")
    return sorted({token for token in tokens if pattern.fullmatch(token)})


def arrows() -> dict[str, list[str]]:
    """Room → the rooms behind its arrow; an arrow may go on in the next line, below its beginning."""
    found: dict[str, list[str]] = {}
    room, column = "", 0
    for line in MAP.splitlines():
        begins = re.match(r"    (\w+)/\*? +", line)
        if begins:
            room, column = begins[1], 0
        at = line.find("-> ")
        if at >= 0:
            column = at + 3
            found[room] = _names(line[column:])
        elif column and not line[:column].strip() and line[column:].strip():
            found[room] += _names(line[column:])
        else:
            column = 0
    return found


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def allowed(room: str) -> list[str]:
    """What the table lets the room import, a room once; the leaves are left out where there is something else."""
    rooms = list(dict.fromkeys(name.partition(".")[0] for name in ROOMS[room]))
    return [name for name in rooms if name != "leaves"] or ["leaves"]


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("", "leaves", "__main__")])
def test_the_arrow_of_a_room_is_what_the_import_table_says(room: str) -> None:
    assert arrows()[room] == allowed(room), f"write in the map: -> {', '.join(allowed(room))}"


def test_the_map_names_the_leaves() -> None:
    line = next(line for line in MAP.splitlines() if line.startswith("    leaves*"))
    assert set(line.split()[1:]) == set(LEAVES)


def members(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield inner.name
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            yield inner.attr
        elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            yield inner.target.id


@cache
def classes() -> dict[str, set[str]]:
    """What each class has. Not when this file is imported: every process of a run does that."""
    return {
        node.name: set(members(node))
        for file in source_files("src/penstock")
        for node in file.tree.body
        if isinstance(node, ast.ClassDef)
    }


def module_of(parts: list[str]) -> tuple[Path, list[str]] | None:
    """The file that the first parts name, and what is left; None when they name none."""
    for count in range(len(parts), 0, -1):
        base = PACKAGE.joinpath(*parts[:count])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path, parts[count:]
    return None


def is_there(name: str) -> bool:
    parts = name.removeprefix("penstock.").split(".")
    if parts[0] in classes():
        return len(parts) == 2 and parts[1] in classes()[parts[0]]
    found = module_of(parts)
    if found is None:
        return False
    path, rest = found
    if not rest:
        return True
    top = {node.name for node in ast.parse(path.read_text()).body if hasattr(node, "name")}
    if path.name == "__init__.py" or rest[0] not in top:
        return re.search(rf"\b{rest[0]}\b", path.read_text()) is not None and len(rest) == 1
    return len(rest) == 1 or rest[1] in classes().get(rest[0], ())


# Tables in PostgreSQL look the same.
TABLES = ("penstock.messages", "penstock.messages_history")
# Words of AMQP do, too: basic.ack, connection.blocked.
OF_OURS = tuple(f"{name}." for name in (*ROOMS, *LEAVES) if name)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in named(DOTTED)
        if (name.startswith(("penstock.", *OF_OURS)) and name not in TABLES) or name[0].isupper()
    ],
)
def test_a_name_on_the_page_is_in_the_source(name: str) -> None:
    if name.endswith((".py", ".md")):
        assert any(base.joinpath(name).exists() for base in (ROOT, PACKAGE)), f"there is no file {name}"
    else:
        assert is_there(name), f"there is no {name}"


def words_and_places() -> list[tuple[str, str]]:
    """Each row of the glossary: the word, and what its last column says."""
    rows = [line.strip("| ").split(" | ") for line in GLOSSARY.splitlines() if line.startswith("| ")]
    return [(row[0], row[-1]) for row in rows if row[0] != "word"]


def test_every_word_of_the_glossary_is_there_once_and_has_a_place() -> None:
    rows = words_and_places()
    assert len(rows) > 50, "there is nothing to check: the rule looks in the wrong place"
    assert len({word for word, _ in rows}) == len(rows), "one word, one meaning"
    assert [word for word, place in rows if not re.fullmatch(r"`[^`]+`(, `[^`]+`)*", place)] == []


@pytest.mark.parametrize("path", [path for path in named(PATH) if path not in ON_DISK])
def test_a_path_on_the_page_is_in_the_repository(path: str) -> None:
    found = [*ROOT.glob(path.rstrip("/")), *PACKAGE.glob(path.rstrip("/"))]
    assert found, f"there is no {path}"


def test_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
