"""The generated modules are what the table says, and the generator notices when they are not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ChannelException, ConnectionException
from penstock.reply_codes import REPLY_NAMES, SOFT_CODES

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ["src/penstock/reply_codes.py", "src/penstock/wire/methods.py", "src/penstock/wire/properties.py"]


def codegen(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "codegen.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The generator, its table and its output, somewhere else."""
    tools = ["tools/codegen.py", "tools/codegen_texts.py"]
    for name in [*GENERATED, *tools, "spec/amqp0-9-1.json", "pyproject.toml"]:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return tmp_path


def test_the_generated_modules_are_up_to_date() -> None:
    result = codegen(ROOT, "--check")
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("name", GENERATED)
def test_a_changed_or_missing_module_is_noticed_and_written_again(copy: Path, name: str) -> None:
    original = (copy / name).read_text(encoding="utf-8")
    (copy / name).write_text(original + "\n", encoding="utf-8")
    changed = codegen(copy, "--check")
    (copy / name).unlink()
    missing = codegen(copy, "--check")
    for result in (changed, missing):
        assert result.returncode == 1
        assert result.stdout == f"{name} is not what the table says: run tools/codegen.py\n"
    assert codegen(copy).returncode == 0
    assert (copy / name).read_text(encoding="utf-8") == original


def test_an_unknown_option_is_refused(copy: Path) -> None:
    assert codegen(copy, "--chekc").returncode == 2


def reuse_a_method_id(table: dict[str, Any]) -> None:
    table["classes"][0]["methods"][1]["id"] = table["classes"][0]["methods"][0]["id"]


def misspell_a_type(table: dict[str, Any]) -> None:
    table["classes"][0]["methods"][0]["fields"][0]["type"] = "octett"


def reply_from_the_wrong_side(table: dict[str, Any]) -> None:
    table["classes"][0]["methods"][1]["from"] = "server"


def default_before_none(table: dict[str, Any]) -> None:
    table["classes"][0]["methods"][0]["fields"][0]["default"] = 0


@pytest.mark.parametrize("slip", [reuse_a_method_id, misspell_a_type, reply_from_the_wrong_side, default_before_none])
def test_a_slip_in_the_table_is_refused(copy: Path, slip: Callable[[dict[str, Any]], None]) -> None:
    path = copy / "spec" / "amqp0-9-1.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    slip(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    result = codegen(copy)
    assert result.returncode == 1
    assert "AssertionError" in result.stderr


def test_soft_errors_are_those_that_close_a_channel() -> None:
    soft = {REPLY_NAMES[code] for code in SOFT_CODES}
    assert soft == {
        "CONTENT_TOO_LARGE",
        "NO_ROUTE",
        "NO_CONSUMERS",
        "ACCESS_REFUSED",
        "NOT_FOUND",
        "RESOURCE_LOCKED",
        "PRECONDITION_FAILED",
    }
    assert ChannelException(404, "no queue").reply_text == "NOT_FOUND - no queue"
    with pytest.raises(AssertionError):
        ChannelException(504, "a hard error")
    assert ConnectionException(403, "login refused").reply_text == "ACCESS_REFUSED - login refused"
