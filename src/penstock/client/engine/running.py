"""A broker that runs inside the calls of its users: one lock, a turn in each call, and a word to those who wait.

There is no loop and no thread. Each call takes the lock, does what has come due in the meantime (expiries, messages
that were held, leases, consumers that nobody holds any more), does its work, writes the journal, and wakes whoever
waits on a queue that has something ready. Who waits does so outside, and looks again when something comes due.

Whatever goes wrong in the middle of a call leaves RAM and folder apart. Then the engine is given up as a crash would
do it: nothing more is written, and the next call opens the folder anew and finds what was synced.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock import limits
from penstock.client.engine.names import fitted
from penstock.client.engine.opening import open_folder
from penstock.client.errors import ClientError, ConnectionLost
from penstock.clock import Clock, SystemClock
from penstock.errors import AmqpError

VHOST: Final = "/"
# Who waits looks again after so long even if nothing comes due: consumers that were forgotten announce themselves here.
LOOK_AGAIN_S: Final = 1.0
# A moment in which something is due has begun when it is over.
MOMENT_S: Final = 0.001

Wake = Callable[[], None]


class Running:
    """What the verbs of `Engine` stand on."""

    def __init__(self, folder: str, clock: Clock | None = None) -> None:
        """Open the folder. Raises ConnectionLost with words that say what to do."""
        self.folder = folder
        self._clock = clock or SystemClock()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._is_inside = False
        # Why it cannot be used any more.
        self._end = ""
        self._broker, self._node = open_folder(folder, self._clock)
        self._vhost = self._broker.vhosts[VHOST]
        self._tended_s = self._clock.monotonic_s()
        # Whom to wake, by queue; under a lock of its own, which is never held for long.
        self._watch_lock = threading.Lock()
        self._watchers: dict[str, dict[int, Wake]] = {}
        self._watch_number = 0
        # What was ready in the queues that somebody watches when it was last looked at.
        self._ready_then: dict[str, int] = {}
        self._node.end_turn()

    # --- life -------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether it was closed or given up, or belongs to the process that this one was forked from."""
        return bool(self._end) or self._pid != os.getpid()

    def close(self) -> None:
        """Leave the folder as a clean stop leaves it."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._check_not_inside()
            if self._end:
                return
            self._end = "it was closed"
            try:
                self._broker.stop()
            except OSError as error:
                self._node.abandon()
                raise ConnectionLost(f"{self.folder} could not be left cleanly: {error}") from error
            finally:
                self._wake_all()

    def _give_up(self, why: str) -> None:
        """Let go of the folder as a crash would."""
        self._end = why
        self._node.abandon()
        self._wake_all()

    # --- calls ------------------------------------------------------------------------------------------

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Everything that a verb does is done in here."""
        if self._pid != os.getpid():
            raise ConnectionLost(
                f"{self.folder} is open in the process that this one was forked from; only that uses it"
            )
        with self._lock:
            self._check_not_inside()
            if self._end:
                raise ConnectionLost(f"{self.folder}: {self._end}")
            self._is_inside = True
            first_lsn = self._node.journal.next_lsn
            try:
                self._begin_turn()
                first_lsn = self._node.journal.next_lsn
                yield
                self._node.end_turn()
                self._check_disk()
            except ClientError:
                raise
            except AmqpError as error:
                if self._node.journal.next_lsn != first_lsn:
                    # Refused half-way: what is gathered must not be written.
                    self._give_up(f"it was given up after {error!r}")
                raise ClientError(str(error)) from error
            except Exception as error:
                self._give_up(f"it was given up after {error!r}")
                raise ConnectionLost(f"{self.folder} failed: {error!r}. The next call opens it anew") from error
            except BaseException:
                # Ctrl-C, at any place.
                self._give_up("a call was interrupted")
                raise
            finally:
                self._is_inside = False
                self._wake_ready()

    def _check_not_inside(self) -> None:
        """The lock lets its thread in again: a signal handler may run in the middle of a call."""
        if self._is_inside:
            raise ClientError("a session over file:// was used by a signal handler, in the middle of another call")

    def _begin_turn(self) -> None:
        now_s = self._clock.monotonic_s()
        self._broker.expiries.run_due(self._clock.wall_ms())
        if now_s - self._tended_s >= limits.MEMORY_CHECK_S:
            self._tended_s = now_s
            for alarm in self._broker.alarms:
                alarm.check()
            self._broker.tend_memory()

    def _sync(self) -> None:
        """Everything up to here is on disk, or this raises."""
        answers: list[bool] = []
        self._node.journal.when_durable(answers.append)
        # The syncer answers before `commit` returns.
        self._node.journal.commit(urgent=True)
        self._check_disk()
        if answers != [True]:
            raise ClientError(f"the disk of {self.folder} is full: what was asked for may be undone by a crash")

    def _check_disk(self) -> None:
        error = self._node.failed
        if error is not None:
            self._give_up(f"the disk has failed: {error}")
            raise ConnectionLost(f"the disk of {self.folder} has failed: {error}. The next call opens the folder anew")

    def _check_room(self) -> None:
        """Whether the disk has room for more messages."""
        alarm = self._broker.disk_alarm
        if alarm is not None and alarm.active:
            raise ClientError(
                f"the disk of {self.folder} is nearly full: {alarm.bytes_min} bytes are kept free, so that messages can"
                " still be finalized. Make room there"
            )

    # --- waiting ----------------------------------------------------------------------------------------

    def watch(self, queue_names: list[str], wake: Wake) -> int:
        """Call `wake` when one of the queues may have something, on any thread; a number for `unwatch`.

        Who watches looks afterwards, and then waits.
        """
        with self._watch_lock:
            self._watch_number += 1
            for name in queue_names:
                self._watchers.setdefault(name, {})[self._watch_number] = wake
            return self._watch_number

    def unwatch(self, number: int) -> None:
        with self._watch_lock:
            for name in [name for name, wakes in self._watchers.items() if number in wakes]:
                del self._watchers[name][number]
                if not self._watchers[name]:
                    del self._watchers[name]
                    self._ready_then.pop(name, None)

    def _wake_ready(self) -> None:
        """Whatever a call has done, who waits on a queue that has more to give than before is told.

        Not whoever could have something: there may be messages that are for somebody else, in a queue with groups.
        """
        if not self._watchers or self._end:
            return
        with self._watch_lock:
            wakes: list[Wake] = []
            for name, waiting in self._watchers.items():
                ready = self._ready_count(name)
                if ready > self._ready_then.get(name, 0):
                    wakes.extend(waiting.values())
                self._ready_then[name] = ready
        for wake in wakes:
            wake()

    def _wake_all(self) -> None:
        with self._watch_lock:
            wakes = [wake for waiting in self._watchers.values() for wake in waiting.values()]
        for wake in wakes:
            wake()

    def _ready_count(self, name: str) -> int:
        queue = self._vhost.queues.get(fitted(name))
        return 0 if queue is None or queue.crashed else queue.ready_count()

    def _look_again_s(self, lease_end_s: float | None) -> float:
        """When it is worth looking again, by the monotonic clock, although nobody has called."""
        now_s = self._clock.monotonic_s()
        look_s = now_s + LOOK_AGAIN_S
        if lease_end_s is not None:
            look_s = min(look_s, lease_end_s)
        due_ms = self._broker.expiries.next_due_ms()
        if due_ms >= 0:
            look_s = min(look_s, now_s + max(0, due_ms - self._clock.wall_ms()) / 1000 + MOMENT_S)
        return look_s
