"""The worker: takes messages from queues in order of priority, has their jobs run, and settles them.

It has one thread, which alone uses the session; jobs run in children that have never seen it. A message is reserved,
looked up, run (its reservation renewed), and then finalized, requeued with a delay, or buried.

A worker that is killed has settled nothing by halves: its reservations go back through the session's liveness, and the
deliveries are counted there, so that a job that kills its workers is buried in the end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.client.errors import ConnectionLost, NotReserved
from penstock.clock import Clock, SystemClock
from penstock.worker.jobs.allow_list import AllowList, Refused, Runnable, check_arguments
from penstock.worker.jobs.formats import InvalidPayload, decode_call
from penstock.worker.report import Progress, Reporter
from penstock.worker.runners.runner import Ended, Runner, RunnerLost
from penstock.worker.settings import WorkerSettings
from penstock.worker.settling import Settler
from penstock.worker.timetable import Timetable

if TYPE_CHECKING:
    from penstock.client.message import Message
    from penstock.client.sync.consumer import Consumer
    from penstock.client.sync.session import Session

# While some jobs run and there is room for more, the worker waits for jobs and looks for messages so often: soon at
# first, more rarely as long as nothing comes.
_LOOK_FIRST_S = 0.01
_LOOK_MAX_S = 0.25
# Nothing is waited for longer: so often at least the progress line is drawn.
_TURN_S = 5.0
# Reservations are renewed three times in a lease, and so often at least: it also keeps the connection alive.
_TOUCH_MAX_S = 10.0
_RECONNECT_FIRST_S = 0.1
_RECONNECT_MAX_S = 5.0


class StopWaiting(KeyboardInterrupt):
    """Ends a wait for messages. What waits for a database knows KeyboardInterrupt, and leaves its connection whole."""


@dataclass(slots=True, eq=False)
class _Running:
    message: Message
    consumer: Consumer
    runnable: Runnable
    name: str
    started_s: float
    touch_at_s: float
    kill_at_s: float | None
    # Why the worker has ended it.
    fate: Literal["", "timeout", "stopped", "lost"] = ""


class Worker:
    """Works until it is stopped, or until its settings say that it has done enough."""

    def __init__(
        self,
        session: Session,
        queues: Sequence[str],
        allow_list: AllowList,
        runner: Runner,
        settings: WorkerSettings | None = None,
        *,
        timetable: Timetable | None = None,
        reporter: Reporter | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        assert queues
        self.settings = settings or WorkerSettings()
        self.figures = Progress()
        self._session = session
        self._queues = list(queues)
        self._allow_list = allow_list
        self._runner = runner
        self._clock = clock or SystemClock()
        self._timetable = timetable or Timetable((), self._clock)
        self._reporter = reporter or Reporter()
        self._settler = Settler(self.settings, self._reporter, self.figures, chance or random.Random())  # noqa: S311
        self._consumers: list[Consumer] = []
        self._running: dict[int, _Running] = {}
        self._next_key = 0
        self._taken = 0
        self._stops = 0
        self._stop_at_s: float | None = None
        self._reconnect_s = 0.0
        self._look_s = _LOOK_FIRST_S
        self._is_interruptible = False
        self._touch_s = min(_TOUCH_MAX_S, self.settings.lease_s / 3)

    def stop(self) -> None:
        """No new jobs, and an end when the running ones have ended; again: at once. Safe in a signal handler."""
        self._stops += 1
        self._runner.wake()

    def stop_from_signal(self) -> None:
        """Like `stop`, for a signal handler on the worker's own thread: a wait for messages ends at once."""
        self.stop()
        if self._is_interruptible:
            self._is_interruptible = False
            raise StopWaiting

    def run(self) -> None:
        """Work. Raises what a session raises when it cannot be opened, and RunnerLost."""
        try:
            self._attach()
            while self._turn():
                self._reporter.progress(self.figures)
        except RunnerLost:
            self._give_everything_back()
            raise
        finally:
            self._reporter.ended(self.figures)
            self._runner.close()

    def _attach(self) -> None:
        # In their own process jobs block the worker, which cannot renew: the reservation lasts as long as the worker.
        lease = self.settings.lease_s if self._runner.has_children else None
        self._consumers = [self._session.consumer_for(queue, lease=lease) for queue in self._queues]
        self._reporter.attached(self._queues)
        if len(self._timetable) and not self._session.has_slots:
            self._reporter.problem("workers cannot agree here on who puts a cron slot: have cron on one of them only")

    def _turn(self) -> bool:
        """One look at everything, then a wait; False when there is nothing left to do."""
        self._note_stops()
        self._end_overdue()
        try:
            self._settler.pay()
            self._renew()
            self._put_due_slots()
            took = self._take_jobs()
            if not took and not self._running and not self._settler.owes and not self._waits_for_more:
                return False
            self._is_connected_again()
            self._wait(took)
        except ConnectionLost as error:
            if self._stops and not self._running and self._is_patience_over:
                self._settler.give_up()
                return False
            self._wait_for_connection(error)
        return True

    # --- taking -----------------------------------------------------------------------------------

    @property
    def _may_take(self) -> bool:
        if self._stops or len(self._running) >= self._runner.concurrency:
            return False
        return self.settings.jobs_max is None or self._taken < self.settings.jobs_max

    @property
    def _waits_for_more(self) -> bool:
        """Whether messages that are not there yet concern this worker."""
        return self._may_take and not self.settings.is_burst

    def _take_jobs(self) -> bool:
        """Fill what is free. After each message it begins again at the first queue: that is the priority."""
        took = False
        # Not without end: many messages that are no jobs must not keep the worker from those that run.
        for _ in range(self._runner.concurrency):
            if not self._may_take:
                break
            for consumer in self._consumers:
                message = consumer.reserve(wait=0)
                if message is not None:
                    break
            else:
                return took
            took = True
            self._taken += 1
            self.figures.queue = consumer.queue
            self._begin(consumer, message)
            if not self._runner.has_children:
                # It has run already, and is settled before anything else.
                break
        return took

    def _begin(self, consumer: Consumer, message: Message) -> None:
        """Run the message's job, or say why not."""
        try:
            call = decode_call(message.payload)
        except InvalidPayload as error:
            self._settler.invalid(consumer, message, f"invalid job: {error}")
            return
        try:
            runnable = self._allow_list.find(call)
            check_arguments(runnable, call)
        except Refused as error:
            self._settler.refused(consumer, message, call.name, f"refused: {error}")
            return
        if self._settler.buried_as_deadly(consumer, message, call.name, runnable):
            return
        now_s = self._clock.monotonic_s()
        timeout_s = runnable.options.timeout_s or self.settings.timeout_s
        self._next_key += 1
        self._running[self._next_key] = _Running(
            message,
            consumer,
            runnable,
            call.name,
            started_s=now_s,
            touch_at_s=now_s + self._touch_s,
            kill_at_s=None if timeout_s is None else now_s + timeout_s,
        )
        self.figures.running = len(self._running)
        self._reporter.started(message.queue, message.id, call.name, message.deliveries)
        self._runner.start(self._next_key, runnable.name, call)

    # --- while jobs run ---------------------------------------------------------------------------

    def _renew(self) -> None:
        if not self._runner.has_children:
            return
        now_s = self._clock.monotonic_s()
        for key, job in self._running.items():
            if job.fate or job.touch_at_s > now_s:
                continue
            try:
                job.consumer.touch(job.message, lease=self.settings.lease_s)
            except NotReserved:
                # Another worker may run it already: twice at the same time is worse than once less.
                job.fate = "lost"
                self._runner.kill(key)
            job.touch_at_s = now_s + self._touch_s

    def _end_overdue(self) -> None:
        now_s = self._clock.monotonic_s()
        for key, job in self._running.items():
            if not job.fate and job.kill_at_s is not None and job.kill_at_s <= now_s:
                job.fate = "timeout"
                self._runner.kill(key)

    def _note_stops(self) -> None:
        if not self._stops:
            return
        self.figures.state = "stopping"
        if self._stop_at_s is None:
            self._stop_at_s = self._clock.monotonic_s() + self.settings.grace_s
            self._reporter.stopping(len(self._running), self.settings.grace_s)
        if self._is_patience_over:
            for key, job in self._running.items():
                if not job.fate:
                    job.fate = "stopped"
                    self._runner.kill(key)

    @property
    def _is_patience_over(self) -> bool:
        return self._stops > 1 or (self._stop_at_s is not None and self._stop_at_s <= self._clock.monotonic_s())

    def _put_due_slots(self) -> None:
        if self._stops:
            return
        for entry, slot in self._timetable.due():
            schedule = entry.schedule(self._timetable.zone)
            put = self._session.put_at_slot(schedule, slot, entry.queue, entry.payload())
            self._timetable.settled(entry, slot)
            if put is not None:
                self._reporter.put_by_cron(entry.queue, entry.job, slot.isoformat())

    # --- waiting ----------------------------------------------------------------------------------

    def _wait(self, took: bool) -> None:
        """For a message or for the end of a job, whichever this worker can use."""
        until_s = self._seconds_to_next_timer()
        if not self._may_take:
            self._settle(self._runner.wait(until_s if self._running else 0.0))
            return
        if took:
            self._look_s = _LOOK_FIRST_S
            self._settle(self._runner.wait(0.0))
        elif self._running:
            self._settle(self._runner.wait(min(self._look_s, until_s)))
            self._look_s = min(_LOOK_MAX_S, self._look_s * 2)
        elif self._waits_for_more:
            self._wait_for_messages(until_s)

    def _wait_for_messages(self, seconds: float) -> None:
        try:
            self._is_interruptible = True
            if not self._stops:
                self._session.wait_any(self._consumers, seconds)
            self._is_interruptible = False
        except StopWaiting:
            return
        except BaseException:
            self._is_interruptible = False
            raise

    def _seconds_to_next_timer(self) -> float:
        now_s = self._clock.monotonic_s()
        touches_s = [job.touch_at_s - now_s for job in self._running.values() if not job.fate]
        slot_s = None if self._stops else self._timetable.seconds_to_next()
        return max(0.0, min(self._seconds_to_next_kill(), *touches_s, _TURN_S if slot_s is None else slot_s))

    def _seconds_to_next_kill(self) -> float:
        """Of what needs no session."""
        now_s = self._clock.monotonic_s()
        timers_s = [now_s + _TURN_S]
        for job in self._running.values():
            if job.kill_at_s is not None and not job.fate:
                timers_s.append(job.kill_at_s)
        if self._stop_at_s is not None and self._stop_at_s > now_s:
            timers_s.append(self._stop_at_s)
        return max(0.0, min(timers_s) - now_s)

    def _wait_for_connection(self, error: ConnectionLost) -> None:
        """Jobs go on meanwhile; what is to be said about them is kept."""
        if not self._reconnect_s:
            self._reporter.problem(f"{error}; trying again")
        self.figures.state = "without connection"
        self._reconnect_s = min(_RECONNECT_MAX_S, max(_RECONNECT_FIRST_S, self._reconnect_s * 2))
        self._settle(self._runner.wait(min(self._reconnect_s, self._seconds_to_next_kill())))

    def _is_connected_again(self) -> None:
        if self._reconnect_s:
            self._reconnect_s = 0.0
            self.figures.state = "stopping" if self._stops else "working"
            self._reporter.problem("connected again")

    # --- the end of jobs --------------------------------------------------------------------------

    def _settle(self, ended: Sequence[Ended]) -> None:
        for end in ended:
            job = self._running.pop(end.key)
            self.figures.running = len(self._running)
            seconds = self._clock.monotonic_s() - job.started_s
            if end.is_done:
                self._settler.done(job.consumer, job.message, job.name, seconds, end.note)
            elif job.fate == "lost":
                self._settler.lost(job.message, job.name, seconds, "the reservation was gone; the job was killed")
            elif job.fate == "stopped":
                self._settler.requeued(job.consumer, job.message, job.name, seconds)
            else:
                note = end.note
                if job.fate == "timeout":
                    limit = job.runnable.options.timeout_s or self.settings.timeout_s
                    note = f"the job took longer than its timeout of {limit:g} s and was killed"
                self._settler.failed(job.consumer, job.message, job.name, job.runnable, seconds, note)

    def _give_everything_back(self) -> None:
        for job in self._running.values():
            seconds = self._clock.monotonic_s() - job.started_s
            self._settler.requeued(job.consumer, job.message, job.name, seconds)
        self._running.clear()
