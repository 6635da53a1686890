"""Work that moves messages from queue to queue, one piece after the other.

A move publishes, a publish may drop, a dropped message is dead-lettered, which is a move: chains and rings of queues
would recurse. So a move that comes up during another one is listed, and done behind it. A move is one turn of the loop,
hence one batch of the journal; so are those that follow from it, as long as there are not too many.

Queues that dead-letter to each other through a fan-out multiply a message: ten of them make millions of moves of it. So
a turn does MOVES_PER_TURN of them, and the schedule goes on with the rest. Until then these messages are pending where
they died; a crash leaves them there. What follows from a move is done before what was listed behind that move: the list
grows with the length of a chain, and not with the number of messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.clock import Clock
from penstock.queues.leaving.expiry import Expiring, ExpirySchedule

# A move of one message to ten queues takes some 300 µs.
MOVES_PER_TURN: Final = 100
# What takes many turns pauses between them, a millisecond longer each time up to this: it leaves most of the time to
# others, even if it never ends.
PAUSE_MS_MAX: Final = 20

Move = Callable[[], None]


class Moves(Expiring):
    def __init__(self, expiries: ExpirySchedule, clock: Clock, per_turn: int = MOVES_PER_TURN) -> None:
        self._expiries = expiries
        self._clock = clock
        self._per_turn = per_turn
        # What the move that is being done leads to; None while none is.
        self._following: list[Move] | None = None
        # What was too much for one turn, with how many turns it has had: each with all that follows from it.
        self._unfinished: deque[tuple[int, deque[Move]]] = deque()

    def __len__(self) -> int:
        """How many moves wait for a later turn."""
        return sum([len(waiting) for _, waiting in self._unfinished])

    def add(self, move: Move) -> None:
        """Do it now, with what follows from it; or, during another move, behind that one."""
        if self._following is not None:
            self._following.append(move)
        else:
            self._do(0, deque([move]))

    def expire_due(self, now_ms: int) -> None:
        if self._unfinished:
            turns, waiting = self._unfinished.popleft()
            self._do(turns, waiting)

    def _do(self, turns: int, waiting: deque[Move]) -> None:
        """As many as fit in a turn."""
        try:
            for _ in range(self._per_turn):
                if not waiting:
                    break
                self._one(waiting)
        finally:
            if waiting:
                self._unfinished.append((turns + 1, waiting))
            if self._unfinished:
                # Never in this millisecond: sockets are read in between.
                self._expiries.arm(self, self._clock.wall_ms() + min(self._unfinished[0][0], PAUSE_MS_MAX))

    def _one(self, waiting: deque[Move]) -> None:
        """The next move. What follows from it is the next then, also when it failed half-way."""
        following: list[Move] = []
        self._following = following
        try:
            waiting.popleft()()
        finally:
            self._following = None
            following.reverse()
            waiting.extendleft(following)
