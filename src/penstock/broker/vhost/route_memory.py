from __future__ import annotations

from abc import ABC, abstractmethod


class RouteMemory(ABC):
    """Remembers what publishes mean; a connection."""

    @abstractmethod
    def forget_routes(self) -> None:
        """Queues or exchanges are gone: let go of whatever leads to them."""
