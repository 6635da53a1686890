"""Settings in the environment: PENSTOCK_* for every setting, and the RABBITMQ_* variables that have a meaning here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.config import SETTINGS
from penstock.settings.nearest import nearest
from penstock.settings.values import from_text

CONF_FILE_VARIABLES: Final = ("RABBITMQ_CONFIG_FILE", "RABBITMQ_CONFIG_FILES")
# Of RabbitMQ's scripts and images; nothing in a broker depends on them.
HARMLESS: Final = frozenset(
    {
        *("RABBITMQ_HOME", "RABBITMQ_VERSION", "RABBITMQ_PGP_KEY_ID", "RABBITMQ_DATA_DIR", "RABBITMQ_LOGS"),
        *("RABBITMQ_ERLANG_COOKIE", "RABBITMQ_NODENAME", "RABBITMQ_USE_LONGNAME"),
        *CONF_FILE_VARIABLES,
    }
)
# Of other commands of penstock, and of tests.
OF_OTHERS: Final = frozenset(
    {
        *("PENSTOCK_CONFIG", "PENSTOCK_URL", "PENSTOCK_USER", "PENSTOCK_PASSWORD", "PENSTOCK_SOURCE", "PENSTOCK_JAVA"),
        *("PENSTOCK_NAME",),
    }
)


def read_environment(env: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that PENSTOCK_* variables give, and which variable each is from. Empty counts as unset."""
    return _read(env, ((row.name, row.variable) for row in SETTINGS.values()))


def read_rabbitmq_environment(env: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that variables of RabbitMQ give, and which variable each is from."""
    pairs = ((row.name, variable) for row in SETTINGS.values() for variable in row.rabbitmq_variables)
    return _read(env, pairs)


def _read(env: Mapping[str, str], names: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, variable in names:
        if env.get(variable):
            values[name] = from_text(SETTINGS[name], env[variable], variable)
            sources[name] = variable
    return values, sources


def unknown_variables(env: Mapping[str, str]) -> list[str]:
    """Return warnings about variables that look like settings and are none."""
    own = {row.variable for row in SETTINGS.values()}
    of_rabbitmq = {variable for row in SETTINGS.values() for variable in row.rabbitmq_variables}
    warnings = []
    for variable in sorted(env):
        if variable.startswith("RABBITMQ_") and variable not in of_rabbitmq | HARMLESS:
            warnings.append(f"{variable} means nothing to penstock and is passed over")
        elif variable.startswith("PENSTOCK_") and variable not in own | OF_OTHERS:
            like = nearest(variable.removeprefix("PENSTOCK_"), SETTINGS)
            if like:
                warnings.append(f"{variable} is no setting; did you mean {SETTINGS[like].variable}?")
    return warnings
