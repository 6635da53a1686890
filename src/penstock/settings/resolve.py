"""Puts the sources of settings together: flags win over the environment, and the environment over files.

In full, the strongest first: flags (and --set), PENSTOCK_* variables, RABBITMQ_* variables, penstock.toml,
rabbitmq.conf. A source is read whole before it counts, so a mistake in a file is found even where a flag hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.config import GUEST, SETTINGS, UserConfig
from penstock.errors import StartupError
from penstock.machine import default_data_dir
from penstock.settings.environment import (
    CONF_FILE_VARIABLES,
    read_environment,
    read_rabbitmq_environment,
    unknown_variables,
)
from penstock.settings.nearest import did_you_mean
from penstock.settings.places import config_file, read_text
from penstock.settings.rabbitmq_conf import read_lines
from penstock.settings.rabbitmq_keys import read_keys
from penstock.settings.resolved import Resolved
from penstock.settings.toml_file import read_toml
from penstock.settings.values import from_text


def resolve(
    env: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    pairs: Iterable[str] = (),
    config_path: str | None = None,
    rabbitmq_paths: Iterable[str] = (),
) -> Resolved:
    """Return the settings of a broker from all their sources. Raises StartupError; the message names the source.

    `flags` has values of settings by name; `pairs` are the NAME=VALUE of --set.
    """
    resolved = Resolved()
    paths = [path for given in rabbitmq_paths or _paths_from(env) for path in _conf_files(given)]
    for path in paths:
        resolved.files.append(path)
        lines = read_lines(read_text(path), path, env)
        resolved.add(read_keys(lines, resolved.warnings), path, 1)
    path_of_toml = config_file(config_path, env)
    if path_of_toml is not None:
        resolved.files.append(path_of_toml)
        resolved.add(read_toml(read_text(path_of_toml), path_of_toml), path_of_toml, 2)
    resolved.add(*read_rabbitmq_environment(env), 3)
    resolved.add(*read_environment(env), 4)
    for name, value in (flags or {}).items():
        resolved.add({name: value}, SETTINGS[name].flag, 5)
    for pair in pairs:
        resolved.add(_pair(pair), "--set", 5)
    resolved.warnings += unknown_variables(env)
    _settle(resolved, env)
    return resolved


def _settle(resolved: Resolved, env: Mapping[str, str]) -> None:
    """Let settings that speak of the same thing agree: the one from the stronger source counts."""
    values = resolved.values
    if values.get("in_memory") and resolved.ranks.get("data_dir", 0) <= resolved.ranks["in_memory"]:
        values["data_dir"] = None
    else:
        values["in_memory"] = False
        values["data_dir"] = values.get("data_dir") or default_data_dir(env)
    _override(resolved, "vhosts", ("default_vhost",), lambda: [values["default_vhost"]])
    _override(
        resolved,
        "users",
        ("default_user", "default_pass"),
        lambda: [UserConfig(values.get("default_user") or GUEST, values.get("default_pass") or GUEST)],
    )


def _override(resolved: Resolved, name: str, by: tuple[str, ...], make: Any) -> None:
    """Make a list of one from the settings that stand for it, if these come from a stronger source."""
    given = [other for other in by if resolved.values.get(other)]
    if given and max(resolved.ranks[other] for other in given) > resolved.ranks.get(name, 0):
        resolved.values[name] = make()
        resolved.sources[name] = resolved.sources[given[0]]


def _pair(text: str) -> dict[str, Any]:
    name, equals, value = text.partition("=")
    row = SETTINGS.get(name.strip())
    if not equals:
        raise StartupError(f"--set {name!a} has no value: write --set NAME=VALUE")
    if row is None:
        raise StartupError(f"--set: there is no setting {name!a}{did_you_mean(name, SETTINGS)}")
    return {row.name: from_text(row, value.strip(), f"--set {row.name}")}


def _paths_from(env: Mapping[str, str]) -> list[str]:
    return [env[variable] for variable in CONF_FILE_VARIABLES if env.get(variable)]


def _conf_files(given: str) -> list[str]:
    """Return the file itself, or the *.conf files of a folder in order; RabbitMQ lets the ending be left away."""
    path = Path(given)
    if path.is_dir():
        return sorted(str(inside) for inside in path.glob("*.conf"))
    return [str(path.with_name(f"{path.name}.conf"))] if not path.exists() and not path.suffix else [given]
