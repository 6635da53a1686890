"""A row of the table of settings: what a setting is called in each place that can set it, what it may be, and why.

The rows are the fields of `config.Config`. `penstock serve --help`, docs/configuration.md, `penstock config` and the
readers of files, variables and flags in `settings/` are made from them: a field with a row needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, TypeVar, cast

from penstock.errors import StartupError

Given = TypeVar("Given")

MIB: Final = 1024 * 1024
ROW: Final = "setting"
# What the values of a setting look like.
TEXT: Final = "text"
INTEGER: Final = "integer"
NUMBER: Final = "number"
BOOLEAN: Final = "boolean"
TEXTS: Final = "list of texts"
USERS: Final = "list of users"


@dataclass(frozen=True)
class Setting:
    """One setting. `name` is its key in penstock.toml, and PENSTOCK_NAME its variable."""

    name: str
    kind: str
    default: object
    section: str
    # What it is, as one sentence for --help; and why it is there, or why it has this default, for the docs.
    about: str
    reason: str
    # "bytes", "s", "hours"; empty for what has none.
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    # The option of `penstock serve`; without one there is `--set NAME=VALUE`.
    flag: str = ""
    metavar: str = ""
    # What one unit of the flag is worth: MIB for flags that are given in MiB.
    flag_scale: int = 1
    # How --help and the docs describe a default that is not a fixed value.
    default_text: str = ""
    # RabbitMQ's own names: variables of its images, keys of rabbitmq.conf whose value has the same meaning.
    rabbitmq_variables: tuple[str, ...] = ()
    rabbitmq_keys: tuple[str, ...] = ()
    is_secret: bool = False
    # SIGHUP applies a new value; otherwise it counts from the next start.
    is_reloaded: bool = False
    # None is a value: the thing is switched off.
    is_optional: bool = False

    @property
    def variable(self) -> str:
        return f"PENSTOCK_{self.name.upper()}"

    def check(self, value: object, called: str) -> None:
        """Refuse a value outside the range or the choices; `called` is the name that the user knows."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            raise StartupError(f"{called} is {value!r}; it must be one of {', '.join(self.choices)}")
        if self.kind in (INTEGER, NUMBER):
            number = cast(float, value)
            if (self.least is not None and number < self.least) or (self.most is not None and number > self.most):
                raise StartupError(f"{called} is {value}; it must be {self.range_text()}")

    def range_text(self) -> str:
        """The range in words; empty when there is none."""
        if self.least is not None and self.most is not None:
            return f"between {self.least} and {self.most}"
        if self.least is not None:
            return f"{self.least} or more"
        return "" if self.most is None else f"{self.most} or less"


def setting(default: Given, section: str, about: str, reason: str, **row: Any) -> Given:
    """Return a field of `Config` that is a setting; `row` has what else a `Setting` has."""
    made = Setting("", row.pop("kind", "") or _kind_of(default), default, section, about, reason, **row)
    metadata = {ROW: made}
    if isinstance(default, list):
        copied: Any = field(default_factory=lambda: list(default), metadata=metadata)
        return cast(Given, copied)
    made_field: Any = field(default=default, metadata=metadata)
    return cast(Given, made_field)


def _kind_of(default: object) -> str:
    if isinstance(default, bool):
        return BOOLEAN
    if isinstance(default, int):
        return INTEGER
    if isinstance(default, float):
        return NUMBER
    return TEXTS if isinstance(default, list) else TEXT


def settings_of(config_type: Any) -> list[Setting]:
    """Return the rows of a class of settings, in the order of its fields."""
    return [_named(row) for row in fields(config_type) if ROW in row.metadata]


def _named(row: Field[Any]) -> Setting:
    made: Setting = row.metadata[ROW]
    return made if made.name else Setting(**{**made.__dict__, "name": row.name})


def by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    return {row.name: row for row in settings}
