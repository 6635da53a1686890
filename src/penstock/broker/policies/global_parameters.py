"""Parameters of the whole broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.policies.parameters import check_parameter, no_such_parameter

if TYPE_CHECKING:
    from penstock.broker.definitions.definition_log import DefinitionLog


class GlobalParameters:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        # Set where they last.
        self.log: DefinitionLog | None = None

    def put(self, name: str, value: Any) -> None:
        check_parameter(name, value, 0 if name in self.values else len(self.values))
        self.values[name] = value
        if self.log is not None:
            self.log.global_parameter_set(name, value)

    def clear(self, name: str) -> None:
        if name not in self.values:
            raise no_such_parameter()
        del self.values[name]
        if self.log is not None:
            self.log.global_parameter_cleared(name)

    def sections(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return them as the whole of the definitions has them."""
        return [("global_parameters", [{"name": name, "value": value} for name, value in self.values.items()])]
