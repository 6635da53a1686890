"""Methods on queues in PostgreSQL whose answer has to wait for the database.

Every question is answered, also when the link is lost. A method is answered with `-ok` when the database has done it,
and with the reason when it has not. What the database has done is done here too, whether the client is still there or
not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.backing.postgres.link import unavailable
from penstock.errors import ChannelException
from penstock.queues.purging import begin_purge
from penstock.queues.queue import Queue
from penstock.server.connection.awaited_method import AwaitedMethod, GoOn
from penstock.server.settling.purge import Purge

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel


def _wait(channel: Channel, index: int, queue: Queue, go_on: GoOn) -> AwaitedMethod:
    return AwaitedMethod(channel, index, go_on, partial(unavailable, queue.name))


def when_made(channel: Channel, index: int, queue: Queue, go_on: GoOn) -> None:
    """Go on when the database has a queue that was declared just now. If it cannot have it, it is not declared."""
    backing = queue.backing
    if backing.is_made():
        go_on()
        return
    vhost = channel.connection.vhost
    wait = _wait(channel, index, queue, go_on)

    def made(error: ChannelException | None) -> None:
        if error is not None and vhost.queues.get(queue.name) is queue:
            backing.leave_rows()
            vhost.delete_queue(queue, False, False)
        wait.over(error)

    wait.begin(2 * limits.PG_QUESTION_S, lambda over: backing.make(made))


def count_anew(queue: Queue, done: Callable[[ChannelException | None], None]) -> None:
    """Call `done` when the queue's count is right: others may have a hand in one that is in PostgreSQL."""
    if queue.crashed:
        done(None)
    else:
        queue.backing.count(done)


def when_counted(channel: Channel, index: int, queue: Queue | None, go_on: GoOn) -> None:
    """Go on when the messages of a queue in PostgreSQL are counted; at once for any other queue."""
    if queue is None or queue.crashed:
        go_on()
    else:
        _wait(channel, index, queue, go_on).begin(2 * limits.PG_QUESTION_S, queue.backing.count)


def when_dropped(channel: Channel, index: int, queue: Queue, delete: GoOn, answer: GoOn) -> None:
    """Delete a queue when the database has dropped it, and answer. If it cannot be dropped, it stays."""
    wait = _wait(channel, index, queue, answer)

    def dropped(error: ChannelException | None) -> None:
        if error is None and not queue.deleted:
            delete()
        wait.over(error)

    wait.begin(limits.PG_REMOVAL_S + 2 * limits.PG_QUESTION_S, lambda over: queue.backing.drop_rows(dropped))


def when_purged(channel: Channel, index: int, queue: Queue, answer: Callable[[int], None]) -> None:
    """Answer with how many messages were purged, when they are gone."""
    if not queue.backing.IS_REMOTE:
        purging = begin_purge(queue)
        if purging is None:
            answer(queue.purge())
        else:
            channel.connection.server.settlements.begin(Purge(channel, queue, purging, answer))
        return
    counts: list[int] = []
    wait = _wait(channel, index, queue, lambda: answer(counts[0]))

    def purged(count: int, error: ChannelException | None) -> None:
        counts.append(count)
        wait.over(error)

    wait.begin(limits.PG_REMOVAL_S + 2 * limits.PG_QUESTION_S, lambda over: queue.backing.purge_all(purged))


def when_looked(channel: Channel, index: int, queue: Queue, go_on: GoOn) -> bool:
    """Have one message fetched, then go on. False when this is not a queue in PostgreSQL, or it gives nothing now."""
    if not queue.backing.IS_REMOTE or queue.paused:
        return False
    _wait(channel, index, queue, go_on).begin(limits.PG_GET_S, queue.backing.ask_once)
    return True
