"""Open files, few enough for all queues together.

A node may have more files than a process may have open. So the stores do not keep handles; they ask the cache for a
file each time they use one, and say who they are. A file that is open already is handed out again. When there are too
many, the cache asks the owner of the one that was used longest ago to give it back. It never closes a handle itself:
only the owner knows whether it is in use, and an owner works in its own context. So the owner is asked through
`handle_wanted_back`, brings the question to its context, and closes there.

Invariants
  1. A handle belongs to the owner that opened it, and only that owner is handed it. Who calls, and from where, does not
     matter.
  2. A handle is closed by its owner or not at all. One that was asked back works until then.
  3. A handle is asked back once.
  4. At most `limit` handles are open that were not asked back. With owners that answer at once, as `SegmentFiles` does
     unless told otherwise, at most `limit` are open; others are over it for as long as they take.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock import limits
from penstock.disk.files import File, Files
from penstock.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class HandleOwner(ABC):
    """Opens files through the cache, and gives them back when asked."""

    @abstractmethod
    def handle_wanted_back(self, path: str) -> None:
        """Close this file through the cache, soon, in the owner's context.

        It may be called in the middle of any `HandleCache.open`, the owner's own included. So an owner that closes at
        once must never hold a file across its next `open`.
        """


Key = tuple[HandleOwner, str]


class HandleCache:
    def __init__(self, files: Files, limit: int = limits.OPEN_FILES_MAX) -> None:
        assert limit > 0
        self.limit = limit
        self._files = files
        # The one that was used longest ago comes first.
        self._open: dict[Key, File] = {}
        # Still open, but on their way back.
        self._asked: dict[Key, File] = {}
        self._found_count = 0
        self._opened_count = 0
        self._asked_count = 0
        self._open_max = 0

    def open(self, owner: HandleOwner, path: str, create: bool = False) -> File:
        """Return the file, open; FileNotFoundError when there is none and `create` is not given."""
        key = (owner, path)
        file = self._open.pop(key, None)
        if file is not None:
            self._open[key] = file
            self._found_count += 1
            return file
        file = self._asked.get(key)
        if file is not None:
            self._found_count += 1
            return file
        while len(self._open) >= self.limit:
            self._ask_for_the_oldest()
        file = self._files.open(path, create)
        self._open[key] = file
        self._opened_count += 1
        self._open_max = max(self._open_max, len(self))
        return file

    def close(self, owner: HandleOwner, path: str) -> None:
        """Close a file of this owner; fine when it is not open."""
        file = self.detach(owner, path)
        if file is not None:
            file.close()

    def close_all(self, owner: HandleOwner) -> None:
        for path in self.paths(owner):
            self.close(owner, path)

    def paths(self, owner: HandleOwner) -> list[str]:
        return [path for holder, path in [*self._open, *self._asked] if holder is owner]

    def detach(self, owner: HandleOwner, path: str) -> File | None:
        """Forget a file and leave it open for a sync; the caller closes it."""
        key = (owner, path)
        file = self._open.pop(key, None)
        return file if file is not None else self._asked.pop(key, None)

    def __len__(self) -> int:
        """Open files, with those that were asked back and are not closed yet."""
        return len(self._open) + len(self._asked)

    def status(self) -> dict[str, int]:
        """Return counters for operators."""
        return {
            "open": len(self),
            "open_max": self._open_max,
            "limit": self.limit,
            "waiting_for": len(self._asked),
            "found": self._found_count,
            "opened": self._opened_count,
            "asked_back": self._asked_count,
        }

    def _ask_for_the_oldest(self) -> None:
        key = next(iter(self._open))
        # Moved first: the owner may close it before it returns.
        self._asked[key] = self._open.pop(key)
        self._asked_count += 1
        owner, path = key
        owner.handle_wanted_back(path)
