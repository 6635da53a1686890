"""A function that can be called by name, with arguments that came as JSON.

The parameters are those of the function: keyword-only, with annotations out of `KINDS`. What does not fit is refused
with the parameter's name before the function is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest

# What a parameter may be annotated with: what JSON has for it, and how people are told.
KINDS: Final[dict[Any, tuple[tuple[type, ...], str]]] = {
    str: ((str,), "a text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str | None: ((str, type(None)), "a text, or null"),
    int | None: ((int, type(None)), "a whole number, or null"),
    list[str]: ((list,), "a list of texts"),
    list[int]: ((list,), "a list of whole numbers"),
    list[Any]: ((list,), "a list"),
    dict[str, Any]: ((dict,), "an object"),
}
ITEMS: Final[dict[Any, type]] = {list[str]: str, list[int]: int}


class Operation:
    def __init__(self, function: Callable[..., Any], *, changes: bool = True) -> None:
        """`changes`: it is answered when what it did is durable."""
        self.name = function.__name__
        self.summary = (inspect.getdoc(function) or "").partition("\n")[0]
        self.changes = changes
        self._function = function
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())
        assert hints[parameters[0].name] is Call, function
        self.kinds: dict[str, Any] = {}
        self._needed: list[str] = []
        for parameter in parameters[1:]:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, f"{self.name}: {parameter.name}"
            assert hints[parameter.name] in KINDS, f"{self.name}: {parameter.name}"
            self.kinds[parameter.name] = hints[parameter.name]
            if parameter.default is inspect.Parameter.empty:
                self._needed.append(parameter.name)

    def __call__(self, call: Call, arguments: Mapping[str, Any]) -> Any:
        """Call the function; raises BadRequest when the arguments are not its own."""
        for name, value in arguments.items():
            if name not in self.kinds:
                near = get_close_matches(name, self.kinds, 1)
                meant = f"; did you mean '{near[0]}'?" if near else ""
                raise BadRequest(f"{self.name} has no argument '{name}'{meant}")
            check_kind(f"'{name}' of {self.name}", value, self.kinds[name])
            check_texts(f"'{name}' of {self.name}", value)
        missing = [name for name in self._needed if name not in arguments]
        if missing:
            raise BadRequest(f"{self.name} needs {', '.join(missing)}")
        return self._function(call, **arguments)


def check_texts(described: str, value: object) -> None:
    """Raise BadRequest if a text out of JSON, however deep, has half a surrogate pair: it could not be written.

    Names that are not UTF-8 are kept as Python keeps file names, in the surrogates from DC80 to DCFF. Those can be.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            try:
                each.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raise BadRequest(f"{described} has a text with half a surrogate pair: {each[:64]!a}") from None
        elif isinstance(each, dict):
            waiting.extend(each.keys())
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def check_kind(described: str, value: object, kind: Any) -> None:
    """Raise BadRequest unless a value out of JSON is what the annotation says."""
    types, words = KINDS[kind]
    # In Python, true is a number, too.
    fits = isinstance(value, types) and (not isinstance(value, bool) or bool in types)
    item = ITEMS.get(kind)
    if fits and item is not None:
        assert isinstance(value, list)
        fits = all(isinstance(each, item) and not isinstance(each, bool) for each in value)
    if not fits:
        raise BadRequest(f"{described} must be {words}")
