"""The x-delayed-message exchange routes as the type that it names."""

from __future__ import annotations

import pytest

from penstock.errors import AmqpError
from penstock.fields import Table
from penstock.routing.bindings import QUEUE, Binding
from penstock.routing.factory import DELAYED_TYPE, INNER_TYPES, make_exchange


def delayed(inner: str) -> Table:
    return {"x-delayed-type": ("S", inner.encode())}


@pytest.mark.parametrize("inner", INNER_TYPES)
def test_bindings_match_as_those_of_the_inner_type_do(inner: str) -> None:
    plain = make_exchange(inner, "x", True, False, False, {})
    held = make_exchange(DELAYED_TYPE, "x", True, False, False, delayed(inner))
    for key in ("a", "a.*", "#"):
        binding = Binding("x", (QUEUE, f"q {key}"), key, {})
        assert held.bind(binding) == plain.bind(binding)
    assert held.matches("a.b", {}) == plain.matches("a.b", {})
    assert held.unbind(Binding("x", (QUEUE, "q #"), "#", {}))
    assert plain.unbind(Binding("x", (QUEUE, "q #"), "#", {}))
    assert held.matches("a.b", {}) == plain.matches("a.b", {})


def test_it_says_what_it_is_and_that_it_needs_the_headers() -> None:
    held = make_exchange(DELAYED_TYPE, "x", True, False, True, delayed("direct"))
    assert (held.type_name, held.needs_headers, held.durable, held.internal) == (DELAYED_TYPE, True, True, True)


@pytest.mark.parametrize(
    "arguments", [{}, delayed("x-delayed-message"), delayed("no such"), {"x-delayed-type": ("I", 1)}]
)
def test_a_type_that_cannot_route_is_refused(arguments: Table) -> None:
    with pytest.raises(AmqpError, match="it must be one of direct, fanout, headers, topic"):
        make_exchange(DELAYED_TYPE, "x", True, False, False, arguments)
