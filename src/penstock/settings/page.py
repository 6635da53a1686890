"""The generated part of docs/configuration.md: every setting with its names, range, default and reason."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.config import SETTINGS
from penstock.setting import TEXTS, USERS, Setting
from penstock.settings.rabbitmq_keys import SPECIAL
from penstock.settings.values import to_text


def settings_page() -> str:
    """Return the tables as Markdown, a section for each group of settings."""
    sections: dict[str, list[Setting]] = {}
    for row in SETTINGS.values():
        sections.setdefault(row.section, []).append(row)
    parts = [_section(name, rows) for name, rows in sections.items()]
    return "\n".join([*parts, _rabbitmq_section()])


def _section(name: str, rows: Iterable[Setting]) -> str:
    lines = [f"### {name[0].upper()}{name[1:]}", ""]
    for row in rows:
        lines += [f"**`{row.name}`** ({_kind(row)}; default {_default(row)})", ""]
        lines += [f"{row.about} {row.reason}".rstrip(), ""]
        lines += [f"{_names(row)}{_live(row)}", ""]
    return "\n".join(lines)


def _kind(row: Setting) -> str:
    if row.choices:
        return " or ".join(f"`{choice}`" for choice in row.choices)
    units = {"bytes": "bytes", "s": "seconds", "hours": "hours"}
    kind = units.get(row.unit) or row.kind
    limits = row.range_text()
    return f"{kind}, {limits}" if limits else kind


def _default(row: Setting) -> str:
    return row.default_text or f"`{to_text(row, row.default)}`"


def _names(row: Setting) -> str:
    names = [f"`{row.variable}`"]
    if row.flag:
        unit = " (in MiB)" if row.flag_scale != 1 else ""
        again = ", repeated" if row.kind in (TEXTS, USERS) else ""
        names.insert(0, f"`{row.flag}`{unit}{again}")
    names += [f"`{name}`" for name in row.rabbitmq_variables]
    text = f"Also {', '.join(names)}"
    if row.rabbitmq_keys:
        text += f"; in rabbitmq.conf {', '.join(f'`{key}`' for key in row.rabbitmq_keys)}"
    return f"{text}."


def _live(row: Setting) -> str:
    return " SIGHUP applies a new value." if row.is_reloaded else ""


def _rabbitmq_section() -> str:
    plain = [key for row in SETTINGS.values() for key in row.rabbitmq_keys]
    special = [f"{key}NAME" if key.endswith(".") else key for key in SPECIAL]
    keys = ", ".join(f"`{key}`" for key in sorted([*plain, *special]))
    about = "These keys are read; any other one is named in a warning and passed over"
    return f"### Keys of rabbitmq.conf\n\n{about}: {keys}.\n"
