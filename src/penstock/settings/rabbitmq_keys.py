"""What the keys of a rabbitmq.conf mean here: a setting, or a warning that names the key.

A key whose value has the meaning of one setting is in that setting's row (`rabbitmq_keys`). Here are those that have
another unit, or another form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock import limits
from penstock.config import DEPRECATED, GUEST, SETTINGS
from penstock.errors import StartupError
from penstock.machine import default_memory_bytes
from penstock.setting import Setting
from penstock.settings.nearest import did_you_mean
from penstock.settings.rabbitmq_conf import ConfLine
from penstock.settings.values import from_text, to_text

LOG_LEVELS: Final = {
    **{level: level for level in ("debug", "info", "warning", "error")},
    "notice": "info",
    **dict.fromkeys(("critical", "alert", "emergency", "none"), "error"),
}
EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the user's file asks for it.
# What RabbitMQ calls no limit.
UNLIMITED: Final = ("0", "infinity")

Values = dict[str, Any]
Reader = Callable[[ConfLine, Values, list[str]], None]


def _rows_by_key() -> dict[str, Setting]:
    return {key: row for row in SETTINGS.values() for key in row.rabbitmq_keys}


ROWS: Final = _rows_by_key()


def read_keys(lines: Iterable[ConfLine], warnings: list[str]) -> Values:
    """Return the settings that lines of a rabbitmq.conf give; keys that mean nothing here are warned about."""
    values: Values = {}
    for line in lines:
        if line.value.startswith("encrypted:"):
            raise StartupError(f"{line.where}: penstock cannot decrypt {line.key}; give it as it is, or in a variable")
        reader = SPECIAL.get(line.key) or next((SPECIAL[key] for key in PREFIXES if line.key.startswith(key)), None)
        if reader is not None:
            reader(line, values, warnings)
        elif line.key in ROWS:
            row = ROWS[line.key]
            unlimited = line.value in UNLIMITED and row.least is not None and row.least > 0 and row.most is not None
            values[row.name] = row.most if unlimited else from_text(row, line.value, f"{line.where}: {line.key}")
        else:
            hint = did_you_mean(line.key, [*ROWS, *SPECIAL])
            warnings.append(f"{line.where}: {line.key} means nothing to penstock and is passed over{hint}")
    return values


def _listener(line: ConfLine, values: Values, warnings: list[str]) -> None:
    """`5672`, `127.0.0.1:5672`, `::1:5672`."""
    if "port" in values:
        warnings.append(f"{line.where}: penstock has one AMQP listener; {line.key} is passed over")
        return
    host, _, port = line.value.rpartition(":")
    values["port"] = from_text(SETTINGS["port"], port, f"{line.where}: {line.key}")
    # A port alone means every address in RabbitMQ.
    values["host"] = host.strip("[]") or EVERY_ADDRESS


def _handshake(line: ConfLine, values: Values, _: list[str]) -> None:
    row = SETTINGS["handshake_s"]
    text = line.value if not line.value.isdecimal() else f"{line.value}ms"
    values[row.name] = from_text(row, text, f"{line.where}: {line.key}")


def _memory_share(line: ConfLine, values: Values, _: list[str]) -> None:
    values["memory_bytes_max"] = _share(line)


def _memory_bytes(line: ConfLine, values: Values, _: list[str]) -> None:
    values["memory_bytes_max"] = from_text(SETTINGS["memory_bytes_max"], line.value, f"{line.where}: {line.key}")


def _disk_share(line: ConfLine, values: Values, _: list[str]) -> None:
    values["disk_bytes_min"] = _share(line)


def _disk_bytes(line: ConfLine, values: Values, _: list[str]) -> None:
    values["disk_bytes_min"] = from_text(SETTINGS["disk_bytes_min"], line.value, f"{line.where}: {line.key}")


def _share(line: ConfLine) -> int:
    """A share of the memory of the machine, in bytes."""
    try:
        share = float(line.value)
    except ValueError:
        share = -1.0
    if not 0 < share < 1000:
        raise StartupError(f"{line.where}: {line.key} is {line.value!r}; it must be a share of the memory, as 0.4")
    return max(1, int(share * default_memory_bytes() / limits.MEMORY_SHARE))


def _log_level(line: ConfLine, values: Values, warnings: list[str]) -> None:
    level = LOG_LEVELS.get(line.value)
    if level is None:
        raise StartupError(f"{line.where}: {line.key} is {line.value!r}; it must be one of {', '.join(LOG_LEVELS)}")
    if level != line.value:
        warnings.append(
            f"{line.where}: {line.key} is {line.value!r}; penstock logs {to_text(ROW_LEVEL, level)} and above"
        )
    values["log_level"] = level


def _default_tag(line: ConfLine, _values: Values, warnings: list[str]) -> None:
    if (line.key, line.value) != ("default_user_tags.administrator", "true"):
        warnings.append(f"{line.where}: the default user is an administrator; {line.key} is passed over")


def _deprecated(line: ConfLine, values: Values, warnings: list[str]) -> None:
    """`deprecated_features.permit.NAME = true|false`"""
    feature = line.key.removeprefix("deprecated_features.permit.")
    if feature not in DEPRECATED:
        warnings.append(f"{line.where}: penstock has no feature {feature}; {line.key} is passed over")
        return
    if line.value not in ("true", "false"):
        raise StartupError(f"{line.where}: {line.key} is {line.value!r}; it must be true or false")
    values.setdefault("deprecated_permitted" if line.value == "true" else "deprecated_denied", []).append(feature)


def _loopback(line: ConfLine, values: Values, warnings: list[str]) -> None:
    """`loopback_users.NAME = true|false`, `loopback_users = none`"""
    names = values.setdefault("loopback_users", [GUEST])
    if line.key == "loopback_users":
        if line.value != "none":
            warnings.append(f"{line.where}: loopback_users can be none here; name users as loopback_users.NAME = true")
            return
        names.clear()
        return
    name = line.key.removeprefix("loopback_users.")
    if line.value not in ("true", "false"):
        raise StartupError(f"{line.where}: {line.key} is {line.value!r}; it must be true or false")
    if name in names:
        names.remove(name)
    if line.value == "true":
        names.append(name)


def _log_format(line: ConfLine, values: Values, warnings: list[str]) -> None:
    if line.value not in ("plaintext", "json"):
        warnings.append(f"{line.where}: {line.key} can be plaintext or json here; {line.value} is passed over")
        return
    values["log_format"] = "json" if line.value == "json" else "text"


ROW_LEVEL: Final = SETTINGS["log_level"]
SPECIAL: Final[dict[str, Reader]] = {
    "listeners.tcp.": _listener,
    "handshake_timeout": _handshake,
    "vm_memory_high_watermark.relative": _memory_share,
    "vm_memory_high_watermark.absolute": _memory_bytes,
    "disk_free_limit.relative": _disk_share,
    "disk_free_limit.absolute": _disk_bytes,
    **dict.fromkeys(("log.level", "log.console.level", "log.file.level", "log.default.level"), _log_level),
    **dict.fromkeys(("log.console.formatter", "log.file.formatter"), _log_format),
    "default_user_tags.": _default_tag,
    "deprecated_features.permit.": _deprecated,
    "loopback_users": _loopback,
    "loopback_users.": _loopback,
}
# Keys that end in a name of the user's.
PREFIXES: Final = tuple(key for key in SPECIAL if key.endswith("."))
