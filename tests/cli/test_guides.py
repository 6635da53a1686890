"""The commands that docs/configuration.md and docs/operations.md show run as they stand."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.settings.toml_file import read_toml
from tests.cli.process import environment

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Those that start nothing, change nothing and need no broker.
COMMAND = re.compile(r"^    (penstock (?:config|service)[^>#\n]*)", re.MULTILINE)
COMMANDS = sorted(
    {
        found.strip()
        for page in ("configuration.md", "operations.md")
        for found in COMMAND.findall((DOCS / page).read_text(encoding="utf-8"))
    }
)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guides_runs(command: str, tmp_path: Path) -> None:
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("heartbeat = 30\n")
    words = shlex.split(command.replace("/etc/rabbitmq/rabbitmq.conf", str(conf)))
    result = CliRunner(env=environment(HOME=str(tmp_path))).invoke(main, words[1:])
    assert result.exit_code == 0, result.output


def test_the_example_of_a_file_is_one() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    example = text.partition("    # /etc/penstock/penstock.toml\n")[2].partition("\n- **")[0]
    lines = "\n".join(line.removeprefix("    ") for line in example.splitlines())
    assert tomllib.loads(lines)["users"][0]["name"] == "app"
    assert read_toml(lines, "penstock.toml")["memory_bytes_max"] == 2 * 1024**3
