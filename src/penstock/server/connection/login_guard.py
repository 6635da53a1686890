"""Slows down clients that guess passwords, by address and by user at an address.

A refused login is answered at once, so a guesser is slowed before the next guess: the next login of the same user from
the same address is not looked at for a while, and each one that comes meanwhile waits behind the others. An address
that guesses over many users is slowed in all, after some free attempts. The same user at another address is not slowed,
so that others cannot be locked out. A login that succeeds ends the waiting of all behind it, so that an application
with one wrong password among many right ones goes on. When the table is full, the oldest entry goes.
"""

from __future__ import annotations

from penstock import limits
from penstock.clock import Clock

# How often a login that waits looks whether it still has to.
LOOK_AGAIN_S = 0.1

# Address, and user; no user: the address as a whole.
Key = tuple[str, str]


class LoginGuard:
    def __init__(self, clock: Clock, delay_s: float) -> None:
        """`delay_s` lies between two guesses at one user from one address; 0 turns the guard off."""
        self._clock = clock
        self._delay_s = delay_s
        # When the next attempt may be looked at; for an address as a whole, how far its free attempts are used up.
        self._free_s: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._free_s)

    def wait_s(self, address: str, user: str) -> float:
        """Return how long a login that has come now has to wait; 0 when it can be looked at."""
        now_s = self._clock.monotonic_s()
        own_s = self._free_s.get((address, user), 0.0) - now_s
        burst_s = limits.LOGIN_GUESSES_FREE * self._address_step_s()
        all_s = self._free_s.get((address, ""), 0.0) - burst_s - now_s
        return max(0.0, own_s, all_s)

    def take_turn(self, address: str, user: str) -> None:
        """A login waits: the next one waits behind it."""
        self._push((address, user), self._delay_s)

    def refused(self, address: str, user: str) -> None:
        key = (address, user)
        now_s = self._clock.monotonic_s()
        if self._free_s.get(key, 0.0) <= now_s:
            self._push(key, self._delay_s)
        self._push((address, ""), self._address_step_s())

    def succeeded(self, address: str, user: str) -> None:
        """End the waiting for this user at this address: the password was right."""
        self._free_s.pop((address, user), None)

    def _address_step_s(self) -> float:
        return self._delay_s / limits.LOGIN_GUESSES_PER_DELAY

    def _push(self, key: Key, step_s: float) -> None:
        if step_s <= 0:
            return
        now_s = self._clock.monotonic_s()
        # No login waits longer than a handshake may take, so longer waits are not noted: a flood ends with the flood.
        free_s = min(max(now_s, self._free_s.pop(key, 0.0)) + step_s, now_s + limits.LOGIN_WAIT_S_MAX)
        if len(self._free_s) >= limits.LOGIN_GUARD_ENTRIES_MAX:
            # The one that has waited longest for another guess.
            del self._free_s[next(iter(self._free_s))]
        self._free_s[key] = free_s
