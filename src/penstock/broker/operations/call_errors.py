"""What can be wrong with a call of the console or the command line: the texts say what to do about it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.broker.vhost.companions import DEDUP, companion_kind

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.queues.queue import Queue

# Names that are looked through for one that was meant.
NAMES_LOOKED_AT = 1000


class CallError(Exception):
    """The call cannot be done; nothing was changed."""


class NoSuchQueue(CallError):
    """There is no queue of that name."""


class NoSuchExchange(CallError):
    """There is no exchange of that name."""


class BadQuery(CallError):
    """What is searched for does not make sense. `column` is where in a selector, -1 elsewhere."""

    def __init__(self, text: str, column: int = -1) -> None:
        super().__init__(text)
        self.column = column


class BadRequest(CallError):
    """A value, or a combination of them, that the call does not take."""


def find_queue(vhost: VHost, name: str) -> Queue:
    """Return the queue; companions have names too, though clients cannot use them."""
    queue = vhost.queues.get(name)
    if queue is None:
        queue = vhost.companions.queues.get(name)
    if queue is None:
        known = [*vhost.queues, *vhost.companions.queues]
        raise NoSuchQueue(f"no queue '{name}' in vhost '{vhost.name}'{_meant(name, known)}")
    if queue.crashed:
        raise CallError(
            f"{queue.describe()} has crashed: restart the broker to get at its messages, or delete the queue"
        )
    return queue


def find_changeable(vhost: VHost, name: str) -> Queue:
    """Return a queue whose messages may be taken by hand."""
    queue = find_queue(vhost, name)
    if companion_kind(queue.arguments) == DEDUP:
        raise BadRequest(
            f"'{name}' holds the keys of a deduplication window, not messages: they leave when the window says so"
        )
    return queue


def check_exchange(vhost: VHost, name: str) -> None:
    if name not in vhost.exchanges:
        raise NoSuchExchange(f"no exchange '{name}' in vhost '{vhost.name}'{_meant(name, list(vhost.exchanges))}")


def _meant(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known[:NAMES_LOOKED_AT], 1)
    return f"; did you mean '{near[0]}'?" if near else "; a list of what there is shows the names"
