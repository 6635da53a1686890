"""A real broker in your test process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # The pytest plugin lives here too and is loaded by every test run on a machine with penstock: only those that use a
    # broker pay for importing it.
    if name == "Broker":
        from penstock.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
