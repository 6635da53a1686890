"""Carries messages of a queue to other queues of its vhost, in the order in which carrying was asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.vhost.handovers import same_envelopes
from penstock.native import mypyc_attr
from penstock.queues.leaving.dead_letters import Dead, DeadLetters, DeadLetterSource

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost


@mypyc_attr(allow_interpreted_subclasses=True)
class Carrier(DeadLetters):
    """Hands messages over by the vhost's handovers."""

    def __init__(self, vhost: VHost) -> None:
        self._vhost = vhost

    def is_open(self) -> bool:
        return self._vhost.handovers.has_room()

    def dead_letter(self, source: DeadLetterSource, dead: Sequence[Dead], reason: str) -> None:
        self._vhost.moves.add(partial(self._carry, source, dead, reason))

    def _carry(self, source: DeadLetterSource, dead: Sequence[Dead], reason: str) -> None:
        for stretch in same_envelopes(dead):
            self.carry_alike(source, stretch, reason)

    @abstractmethod
    def carry_alike(self, source: DeadLetterSource, stretch: Sequence[Dead], reason: str) -> None:
        """Take messages of one envelope away; `handed_over`, `refused` or `give_back` follows."""
