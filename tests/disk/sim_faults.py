"""What is to go wrong on a disk in memory, and when.

A `FaultPlan` belongs to one `SimFiles`. Tests set its attributes at any time; nothing in it is random. Calls are
counted from 1 in the life of one `SimFiles`, closing excepted: a handle can always be given back.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import Final

# After the others a crash finds the disk as it was before the call.
CHANGING_CALLS: Final = frozenset(
    {
        "open",
        "create",
        "make_dir",
        "rename",
        "unlink",
        "remove_dir",
        "sync_dir",
        "lock",
        "pwrite",
        "truncate",
        "reserve",
        "fdatasync",
    }
)


UNEXPECTED: Final = -1


class SimCrash(BaseException):
    """The machine is down. Not an Exception, so that nobody who handles errors handles this one."""


class Survival(Enum):
    """What a crash leaves of what was not synced."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    # Chosen for each write and each name on its own.
    ANYTHING = "anything"


class Fault:
    """One call that fails, or writes less than it was asked to."""

    __slots__ = ("bytes_done", "call", "error", "exception", "forever", "nth", "path", "seen")

    def __init__(
        self,
        error: int,
        call: str,
        path: str,
        nth: int,
        forever: bool,
        bytes_done: int,
        exception: Exception | None = None,
    ) -> None:
        assert nth >= 1
        assert bytes_done >= 0
        # An errno; 0 for a write that is only short; UNEXPECTED for an exception that is no error of the disk.
        self.error = error
        self.exception = exception
        # "" stands for every call.
        self.call = call
        # How the path begins.
        self.path = path
        # Counted among the calls that match, from the moment the fault was planned.
        self.nth = nth
        self.forever = forever
        # Of a pwrite: what reaches the file all the same.
        self.bytes_done = bytes_done
        self.seen = 0

    def strikes(self, call: str, path: str) -> bool:
        if (self.call and self.call != call) or not path.startswith(self.path):
            return False
        self.seen += 1
        return self.seen == self.nth or (self.forever and self.seen > self.nth)

    def as_error(self, call: str, path: str) -> Exception:
        if self.exception is not None:
            return self.exception
        return OSError(self.error, f"simulated {errno.errorcode[self.error]} in {call}", path)


class FaultPlan:
    """What happens to one disk."""

    def __init__(
        self,
        survival: Survival = Survival.ANYTHING,
        torn_at: int | None = None,
        holes: bool = True,
        crash_at: int = 0,
        crash_after: bool = False,
        capacity_bytes: int | None = None,
    ) -> None:
        self.survival = survival
        # So many bytes of the last unsynced write survive, whatever happens to the others.
        self.torn_at = torn_at
        # With Survival.ANYTHING: a write may also miss sectors in its middle, and a file may be longer than its data.
        self.holes = holes
        # SimCrash comes out of this call; 0 for none. Before it has happened, or after.
        self.crash_at = crash_at
        self.crash_after = crash_after
        # Room for the bytes of all files; None for as much as you like.
        self.capacity_bytes = capacity_bytes
        self.faults: list[Fault] = []

    def fail(self, error: int, call: str = "", path: str = "", nth: int = 1, forever: bool = False) -> None:
        """The nth call of this name from now on fails with an errno; forever: and all that follow."""
        assert error in errno.errorcode, error
        self.faults.append(Fault(error, call, path, nth, forever, 0))

    def fail_with(self, exception: Exception, call: str = "", path: str = "", nth: int = 1) -> None:
        """The nth call of this name from now on raises something that no disk is expected to raise."""
        self.faults.append(Fault(UNEXPECTED, call, path, nth, False, 0, exception))

    def short_write(self, bytes_done: int, nth: int = 1, path: str = "", error: int = 0, forever: bool = False) -> None:
        """The nth pwrite from now on writes no more than this; with an error: and then fails."""
        self.faults.append(Fault(error, "pwrite", path, nth, forever, bytes_done))

    def heal(self) -> None:
        """No call fails any more."""
        self.faults.clear()

    def fault_for(self, call: str, path: str) -> Fault | None:
        struck = None
        # Every fault counts its calls, also those on which another one strikes.
        for fault in self.faults:
            if fault.strikes(call, path) and struck is None:
                struck = fault
        return struck

    def for_next_life(self) -> FaultPlan:
        """Nature and size of the disk stay; what was planned for single calls is over."""
        return FaultPlan(self.survival, holes=self.holes, capacity_bytes=self.capacity_bytes)
