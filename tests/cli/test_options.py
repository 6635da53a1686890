"""Help, version, wrong options and settings: everything that does not need a broker to run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import penstock
from penstock.cli.main import BUILD, main
from penstock.cli.serve import serve
from penstock.config import SETTINGS, Config, UserConfig
from penstock.errors import StartupError
from penstock.machine import default_memory_bytes
from penstock.setting import BOOLEAN
from penstock.settings.resolve import resolve
from tests.cli.process import environment


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner(env=environment(**variables)).invoke(main, arguments)


def config_of(env: dict[str, str], **flags: object) -> Config:
    return resolve({"HOME": "/nobody", "XDG_CONFIG_HOME": "/nobody", **env}, flags).config()


def test_help_of_every_command_names_its_exit_codes() -> None:
    assert main.commands
    for arguments in ([], *([name] for name in main.commands)):
        for option in ("--help", "-h"):
            result = run(*arguments, option)
            assert result.exit_code == 0
            assert "Exit codes: 0" in result.output


def test_help_of_serve_names_every_variable_it_reads() -> None:
    text = " ".join(run("serve", "--help").output.split())
    for row in SETTINGS.values():
        assert row.variable in text or not row.flag or row.kind == BOOLEAN
    for name in ("DEFAULT_USER", "DEFAULT_PASS", "DEFAULT_VHOST"):
        assert f"PENSTOCK_{name}" in text
    assert "RABBITMQ_DEFAULT_USER, _PASS, _VHOST and RABBITMQ_NODE_PORT" in text


def test_every_option_has_a_help_text() -> None:
    for command in main.commands.values():
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                # The text of the command says what it is.
                continue
            assert isinstance(parameter, click.Option)
            assert parameter.help or parameter.name == "log_level", parameter.name


def test_without_a_command_the_help_is_shown() -> None:
    assert "serve" in run().output


def test_the_version_is_the_packages() -> None:
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"penstock, version {penstock.__version__} ({BUILD})\n")


def test_the_command_is_installed_and_runs_as_a_module_too() -> None:
    installed = Path(sys.executable).with_name("penstock")
    for command in ([str(installed)], [sys.executable, "-m", "penstock"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert penstock.__version__ in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "65536"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "amqp"],
        ["serve", "--user", "alice"],
        ["serve", "--user", ":secret"],
        ["serve", "--user", "alice:"],
        ["serve", "--memory-limit", "0"],
        ["serve", "--disk-limit", "0"],
        ["serve", "--confirm-sync", "maybe"],
        ["serve", "--in-memory", "--data-dir", "x"],
        ["fsck"],
        ["dump"],
        ["dump", "x", "--limit", "0"],
        ["serve", "--log-level", "loud"],
        ["serve", "--no-such-option"],
        ["serve", "extra"],
        ["dance"],
    ],
)
def test_wrong_options_exit_with_2_and_say_what_is_wrong(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


@pytest.mark.parametrize("value", ["amqp", "-1", "65536", "²", "1e3", "9" * 5000])
@pytest.mark.parametrize("variable", ["PENSTOCK_PORT", "RABBITMQ_NODE_PORT"])
def test_a_wrong_port_in_a_variable_exits_with_1_and_names_the_variable(variable: str, value: str) -> None:
    result = run("serve", **{variable: value})
    assert result.exit_code == 1
    assert re.search(
        rf"penstock: {variable} is '?{value}'?; it must be (a port number|between 0 and 65535)", result.output
    )
    assert "Traceback" not in result.output


def test_the_environment_of_rabbitmqs_images_is_understood() -> None:
    config = config_of(
        {
            "RABBITMQ_DEFAULT_USER": "alice",
            "RABBITMQ_DEFAULT_PASS": "s3cr:t",
            "RABBITMQ_DEFAULT_VHOST": "shop",
            "RABBITMQ_NODE_PORT": "5673",
        }
    )
    assert config.users == [UserConfig("alice", "s3cr:t")]
    assert (config.vhosts, config.port, config.host) == (["shop"], 5673, "127.0.0.1")


def test_penstocks_own_variables_come_first() -> None:
    config = config_of(
        {
            "PENSTOCK_HOST": "0.0.0.0",
            "PENSTOCK_PORT": "5674",
            "RABBITMQ_NODE_PORT": "5673",
            "PENSTOCK_DEFAULT_USER": "bob",
            "RABBITMQ_DEFAULT_USER": "alice",
            "PENSTOCK_DEFAULT_PASS": "b",
            "RABBITMQ_DEFAULT_PASS": "a",
            "PENSTOCK_DEFAULT_VHOST": "bobs",
            "RABBITMQ_DEFAULT_VHOST": "alices",
        }
    )
    assert config.users == [UserConfig("bob", "b")]
    assert (config.vhosts, config.port, config.host) == (["bobs"], 5674, "0.0.0.0")


def test_empty_variables_count_as_unset() -> None:
    names = ("HOST", "PORT", "DEFAULT_USER", "DEFAULT_PASS", "DEFAULT_VHOST", "DATA_DIR", "CONFIRM_SYNC")
    assert config_of({f"PENSTOCK_{name}": "" for name in names}) == config_of({})


def test_guest_stays_on_this_machine_however_it_was_named() -> None:
    assert Config().users == [UserConfig("guest", "guest", is_default=True)]
    for env in ({"RABBITMQ_DEFAULT_PASS": "better"}, {"PENSTOCK_DEFAULT_USER": "guest", "PENSTOCK_DEFAULT_PASS": "x"}):
        (user,) = config_of(env).users
        assert (user.name, user.is_default) == ("guest", False)
    config = config_of({"PENSTOCK_USERS": "guest:guest alice:x"})
    assert [(user.name, user.is_default) for user in config.users] == [("guest", False), ("alice", False)]
    assert config.loopback_users == ["guest"]


def test_options_come_before_variables() -> None:
    options = ("--host", "127.0.0.2", "--port", "0", "--user", "bob:a:b", "--vhost", "one", "--vhost", "two")
    variables = {"PENSTOCK_PORT": "1", "PENSTOCK_HOST": "192.0.2.1", "PENSTOCK_DEFAULT_USER": "alice"}
    result = run("config", "show", "--json", *options, "--memory-limit", "3", **variables)
    shown = {name: one["value"] for name, one in json.loads(result.output)["settings"].items()}
    assert (shown["host"], shown["port"], shown["vhosts"]) == ("127.0.0.2", 0, ["one", "two"])
    assert [user["name"] for user in shown["users"]] == ["bob"]
    assert shown["memory_bytes_max"] == 3 * 1024 * 1024


@pytest.mark.parametrize(
    "settings",
    [
        {"port": -1},
        {"port": 65536},
        {"channels_max": 0},
        {"channels_max": 65536},
        {"frame_bytes_max": 4095},
        {"heartbeat_s": -1},
        {"heartbeat_s": 65536},
        {"users": []},
        {"vhosts": []},
        {"vhosts": ["/", ""]},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(StartupError):
        Config(**settings)  # type: ignore[arg-type]


def test_the_memory_of_a_container_counts_not_the_machines(tmp_path: Path) -> None:
    whole = default_memory_bytes([])
    assert whole > 0
    limit = tmp_path / "memory.max"
    assert default_memory_bytes([str(limit)]) == whole
    limit.write_text("max\n")
    assert default_memory_bytes([str(limit)]) == whole
    limit.write_text("100000000\n")
    assert default_memory_bytes([str(limit)]) == 40_000_000
    limit.write_text(f"{2**63 - 4096}\n")
    assert default_memory_bytes([str(limit)]) == whole


def test_serve_is_a_command_of_penstock() -> None:
    assert main.commands["serve"] is serve
