"""What can be wrong with a call of the console or the command line: the texts say what to do about it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.broker.vhost.companions import DEDUP, companion_kind
from penstock.errors import AmqpError

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.queues.queue import Queue

# Names that are looked through for one that was meant.
NAMES_LOOKED_AT = 1000


class CallError(Exception):
    """The call cannot be done; nothing was changed. `kind` is for programs, the text for people."""

    kind = "failed"


class NotAllowed(CallError):
    """The actor may not do that."""

    kind = "not_allowed"


class NotFound(CallError):
    """What the call is about is not there."""

    kind = "not_found"


class NoSuchVHost(NotFound):
    """There is no vhost of that name."""


class NoSuchQueue(NotFound):
    """There is no queue of that name."""


class NoSuchExchange(NotFound):
    """There is no exchange of that name."""


class AlreadyExists(CallError):
    """Something of that name is there already, and the call would have made it."""

    kind = "exists"


class BadQuery(CallError):
    """What is searched for does not make sense. `column` is where in a selector, -1 elsewhere."""

    kind = "bad_request"

    def __init__(self, text: str, column: int = -1) -> None:
        super().__init__(text)
        self.column = column


class BadRequest(CallError):
    """A value, or a combination of them, that the call does not take."""

    kind = "bad_request"


def of_amqp(error: AmqpError) -> CallError:
    """Return what AMQP would have answered, for callers that do not speak it."""
    if error.reply_code == 403:
        return NotAllowed(error.reply_text)
    if error.reply_code == 404:
        return NotFound(error.reply_text)
    return BadRequest(error.reply_text)


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
