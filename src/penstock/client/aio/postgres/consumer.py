"""A consumer on PostgreSQL: a connection of its own, which is its proof of life, and which hears the queue's channel.

When to attach, look, wait and sweep is decided by `penstock.pg.participant` and `penstock.pg.floor`; here is the I/O.
What a cancelled call had reserved already is kept, and is what the next one gets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from penstock.client.aio.driver import AsyncConsumerDriver, ConsumerOptions
from penstock.client.aio.postgres.link import AsyncPgLink
from penstock.client.aio.postgres.listener import AsyncPgListener
from penstock.client.aio.waiting import Lock, monotonic, to_the_end
from penstock.client.errors import ClientError, Closed, NotReserved
from penstock.client.message import Message
from penstock.client.pg_errors import NotAttached
from penstock.client.pg_rows import EXPIRED_COLUMN, finalized, id_array, reserved
from penstock.pg.floor import Floor, RecentLooks
from penstock.pg.participant import SWEEP_S, Chore, Participant

# How long a consumer that finds something at every look is still said to wait.
SECONDS_STILL_WAITING: Final = 1.0
# What the history says about messages that have expired.
NOTE_OF_EXPIRED: Final = "expired"


class AsyncPgConsumer(AsyncConsumerDriver):
    def __init__(self, queue: str, options: ConsumerOptions, link: AsyncPgLink, session_link: AsyncPgLink) -> None:
        self.queue = queue
        self.channel = ""
        self._lease_s = options.lease_s
        self._link = link
        self._session_link = session_link
        self._lock = Lock()
        self._participant = Participant(queue, "consumer", stays_s=SECONDS_STILL_WAITING)
        # Name and address, as rows that we reserve say it.
        self._who: tuple[str | None, str | None] = (None, None)
        self._generation = -1
        self._is_closed = False
        self._floor = Floor(RecentLooks())
        self._sweep = Chore(SWEEP_S)
        # Reserved, and not handed out yet.
        self._found: deque[Message] = deque()
        # Reserved by answers that came, and not settled: what else is ours in the database, we have never heard of.
        self._known: set[str] = set()

    @property
    def number(self) -> str:
        """Of the participant, as notifications name it; "" when there is none."""
        return str(self._participant.number or "")

    async def attach(self) -> None:
        """Be counted among the queue's consumers, and hear its channel; again after the connection was lost."""
        if self._is_closed:
            raise Closed(f"the consumer of {self.queue!r} is closed")
        if self._link.is_connected and self._link.generation == self._generation:
            return
        async with self._lock:
            await self._link.connect()
            if self._link.generation != self._generation:
                await to_the_end(self._attach(self._link.generation))

    async def reserve(self, count: int, deadline_s: float) -> list[Message]:
        await self.attach()
        messages = await self._look(count)
        if messages:
            await self._stop_waiting_if_busy(messages)
            return messages
        if monotonic() >= deadline_s:
            return []
        if await self.begin_to_wait():
            messages = await self._look(count)
        listener = AsyncPgListener(self._link, [self.queue], self._participant.empty_since_s or 0.0)
        while not messages and monotonic() < deadline_s:
            if await listener.wait(min(deadline_s, self._floor.walk_at_s), [self.number]):
                self._floor.look_at_all()
            # Meanwhile we may have been closed, or had to attach anew.
            await self.begin_to_wait()
            messages = await self._look(count, is_waiting=True)
        self._participant.waited(monotonic())
        return messages

    async def finalize(self, ids: Sequence[str], note: str | None) -> list[str]:
        return await self._settle("finalize", ids, note)

    async def finalize_one(self, message: Message, note: str | None) -> Message | None:
        await self.attach()
        if id_array([message.id]) == "{}":
            return None
        parameters = (self.queue, message.id, note, self._participant.number)
        try:
            rows = await self._free_link().rows("finalize_one", parameters)
        except NotReserved:
            return None
        self._known.discard(message.id)
        return finalized(self.queue, rows[0])

    async def finalize_and_reserve(self, ids: Sequence[str], note: str | None, count: int) -> list[Message]:
        await self.attach()
        if not await to_the_end(self._fetch_next(ids, note, count)):
            raise NotReserved(f"a message of {self.queue!r} is not, or no longer, reserved by this consumer")
        return self._take(count)

    async def requeue(self, ids: Sequence[str], delay_s: float | None, note: str | None) -> list[str]:
        await self.attach()
        self._floor.look_at_all()
        parameters = (self.queue, id_array(ids), self._participant.number, delay_s, note)
        given_back = await self._free_link().values("requeue", parameters)
        self._known.difference_update(ids)
        return given_back

    async def bury(self, ids: Sequence[str], note: str | None) -> list[str]:
        return await self._settle("bury", ids, note)

    async def kick(self, count: int) -> int:
        await self.attach()
        self._floor.look_at_all()
        kicked: int = await self._free_link().value("kick", (self.queue, str(count)))
        return kicked

    async def touch(self, ids: Sequence[str], lease_s: float) -> list[str]:
        return await self._settle("touch", ids, lease_s)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._link.is_connected and self._link.generation == self._generation:
                await self._link.rows("detach", (self._participant.number,))
        except ClientError:
            # Then the connection is gone, and what was reserved goes back as that of the dead.
            pass
        finally:
            await self._link.close()

    async def begin_to_wait(self) -> bool:
        """Say that we wait, so that puts notify; False when that was said before."""
        await self.attach()
        if not self._participant.found_nothing(monotonic()):
            return False
        await self._free_link().rows("set_waiting", (self._participant.number, True))
        self._participant.told_waiting(True)
        return True

    async def sweep_if_due(self) -> None:
        """Now and then, look after what the dead have left."""
        if not self._sweep.is_due(monotonic()):
            return
        rows = await self._free_link().rows("seen_and_sweep", (self._participant.number,))
        is_attached, woken, _ = rows[0]
        if woken:
            self._floor.look_at_all()
        if not is_attached:
            # The queue was dropped, or we were taken for dead. What we reserve now would not stay ours.
            await self._attach_anew()

    async def _attach_anew(self) -> None:
        """With a new number: the old one is known to be gone."""
        self._generation = -1
        await self.attach()

    async def _attach(self, generation: int) -> bool:
        if not self._participant.attached(await self._link.value("attach", self._participant.attach_parameters())):
            # What the old number had reserved is not ours any more.
            self._found.clear()
            self._known.clear()
        if generation > 1:
            # Reserved by an answer that was lost: no other consumer would get it as long as we live.
            await self._link.rows(
                "give_back_others", (self.queue, id_array(list(self._known)), self._participant.number)
            )
        self.channel = await self._link.value("channel_of", (self.queue,))
        await self._link.listen(self.channel)
        name, address = (await self._link.rows("who_am_i"))[0]
        self._who = (name, address)
        self._floor.look_at_all()
        self._sweep = Chore(SWEEP_S)
        self._generation = generation
        return True

    async def _stop_waiting_if_busy(self, messages: list[Message]) -> None:
        if not self._participant.found(monotonic()):
            return
        self._participant.told_waiting(False)
        try:
            await self._free_link().rows("set_waiting", (self._participant.number, False))
        except BaseException:
            self._found.extendleft(reversed(messages))
            raise

    async def _look(self, count: int, is_waiting: bool = False) -> list[Message]:
        if not self._found:
            await to_the_end(self._fetch(count, is_waiting))
        return self._take(count)

    def _take(self, count: int) -> list[Message]:
        """What was found, for the caller."""
        return [self._found.popleft() for _ in range(min(count, len(self._found)))]

    async def _fetch(self, count: int, is_waiting: bool = False) -> bool:
        """Reserve what there is; whether there was something."""
        await self.sweep_if_due()
        while True:
            now_s = monotonic()
            floor = self._floor.value(now_s)
            try:
                rows = await self._reserve(count, floor)
            except NotAttached:
                await self._attach_anew()
                rows = await self._reserve(count, 0)
            if not rows and floor and self._floor.may_walk(now_s, is_waiting):
                rows = await self._reserve(count, 0)
            if not rows or await self._keep(rows):
                return bool(rows)
            await self._link.rows("finalize_expired", (NOTE_OF_EXPIRED, self.queue, self._participant.number))

    async def _reserve(self, count: int, floor: int) -> list[tuple[Any, ...]]:
        started_s = monotonic()
        parameters = (self.queue, str(count), self._participant.number, self._lease_s, str(floor))
        rows = await self._link.rows("reserve", parameters)
        if floor == 0:
            self._floor.walked(started_s, monotonic())
        return rows

    async def _fetch_next(self, ids: Sequence[str], note: str | None, count: int) -> bool:
        """Finalize, and reserve what there is; whether all were finalized."""
        # A consumer that is never without work does nothing but this, and messages of dead ones must not wait.
        await self.sweep_if_due()
        started_s = monotonic()
        floor = self._floor.value(started_s)
        settle = (self.queue, id_array(ids), note, self._participant.number)
        reserve = (self.queue, str(count), self._participant.number, self._lease_s, str(floor))
        rows = await self._link.rows("finalize_and_reserve", (*settle, *reserve, str(len(ids))))
        self._known.difference_update(ids)
        if floor == 0:
            self._floor.walked(started_s, monotonic())
        done: int = rows[0][-1]
        found = [row for row in rows if row[0] is not None]
        if found and not await self._keep(found):
            await self._fetch(count)
        return done == len(ids)

    async def _keep(self, rows: list[tuple[Any, ...]]) -> bool:
        """Keep what was reserved until it is taken; False when all of it was too old and is gone now."""
        ids = [row[0] for row in rows]
        self._floor.taken(min(ids), max(ids))
        old = [str(row[0]) for row in rows if row[EXPIRED_COLUMN]]
        fresh = [reserved(self.queue, row, *self._who) for row in rows if not row[EXPIRED_COLUMN]]
        self._found.extend(fresh)
        # Not the old ones: they would not be settled if the connection breaks here, so they have to go back.
        self._known.update([one.id for one in fresh])
        if old:
            await self._link.rows("finalize", (self.queue, id_array(old), NOTE_OF_EXPIRED, self._participant.number))
        return len(old) < len(rows)

    async def _settle(self, verb: str, ids: Sequence[str], detail: str | float | None) -> list[str]:
        await self.attach()
        done = await self._free_link().values(verb, (self.queue, id_array(ids), detail, self._participant.number))
        if verb != "touch":
            self._known.difference_update(ids)
        return done

    def _free_link(self) -> AsyncPgLink:
        """Return our own connection, unless a caller waits for notifications there."""
        if self._link.listeners and self._session_link.is_connected:
            return self._session_link
        return self._link
