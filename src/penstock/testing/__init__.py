"""A real broker in your test process."""

from __future__ import annotations

from penstock.testing.broker import Broker

__all__ = ["Broker"]
