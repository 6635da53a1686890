"""Delay levels: the queues in which messages wait that are not ready yet, on any broker.

A message that is to wait goes down from level to level. A level is a queue in which every message lives equally long,
10 ms times a power of two, and the exchange in front of it. A message that has lived that long is dead-lettered to the
next exchange, which takes it into its own queue or sends it on, as a header for this level says. At the bottom is a
direct exchange, and since the routing key was the name of the target all the way, the message arrives there.

    50 ms = 5 x 10 ms:   penstock.delay.40 -> (penstock.delay.20) -> penstock.delay.10 -> penstock.delay.out -> target

  1. In a queue whose messages all live equally long, the head is the first to die. So no message waits behind another,
     and messages that wait equally long keep their order.
  2. A message is never early. It is late by less than 10 ms, and by what the broker takes to move it some times.
  3. The names are the same for all sessions, and the queues are durable and stay: at most 35 of them in a vhost.
  4. The target is bound to the way out before each put. When it is deleted, so is the binding, and messages that still
     wait are lost at the bottom, unless it was made again and messages were delayed for it again.
"""

from __future__ import annotations

from typing import Final

from penstock.fields import Table
from penstock.limits import EXPIRATION_MS_MAX
from penstock.wire import methods

STEP_MS: Final = 10
LEVELS: Final = 35
NAME_PREFIX: Final = "penstock.delay."
OUT: Final = f"{NAME_PREFIX}out"
# Header exchanges do not look at names that begin with "x-".
BIT_PREFIX: Final = "penstock-delay-"
YES: Final = b"1"
NO: Final = b"0"

assert (2**LEVELS - 1) * STEP_MS >= EXPIRATION_MS_MAX


def steps_of(delay_s: float) -> int:
    """Return how many steps make up this delay, rounded up; 0 when there is none."""
    if delay_s * 1000 > EXPIRATION_MS_MAX:
        raise ValueError("an AMQP broker keeps a message back for ten years at most")
    return max(0, -int(-delay_s * 1000 // STEP_MS))


def top_level(steps: int) -> int:
    """Return the highest level of a message that waits so many steps."""
    return steps.bit_length() - 1


def level_name(level: int) -> str:
    """The name of the level's exchange, and of its queue; below the lowest level is the way out, an exchange only."""
    return OUT if level < 0 else f"{NAME_PREFIX}{STEP_MS << level}"


def bits_of(steps: int) -> Table:
    """Return the headers that lead a message down the levels."""
    return {
        f"{BIT_PREFIX}{STEP_MS << level}": ("S", YES if steps >> level & 1 else NO)
        for level in range(top_level(steps) + 1)
    }


def declarations(top: int, above: int) -> list[methods.Method]:
    """What makes the levels up to `top`, from the bottom, if those up to `above` are there (-1: none is)."""
    made: list[methods.Method] = []
    if above < 0:
        made.append(methods.ExchangeDeclare(OUT, "direct", durable=True, no_wait=True))
    for level in range(above + 1, top + 1):
        made += _level(level)
    return made


def way_to(queue: str) -> methods.QueueBind:
    """What has the messages for this queue arrive there."""
    return methods.QueueBind(queue, OUT, routing_key=queue)


def _level(level: int) -> list[methods.Method]:
    name, below = level_name(level), level_name(level - 1)
    header = f"{BIT_PREFIX}{STEP_MS << level}"
    stays: Table = {"x-match": ("S", b"all"), header: ("S", YES)}
    goes_on: Table = {"x-match": ("S", b"all"), header: ("S", NO)}
    arguments: Table = {"x-message-ttl": ("l", STEP_MS << level), "x-dead-letter-exchange": ("S", below.encode())}
    return [
        methods.ExchangeDeclare(name, "headers", durable=True, no_wait=True),
        methods.QueueDeclare(name, durable=True, no_wait=True, arguments=arguments),
        methods.QueueBind(name, name, no_wait=True, arguments=stays),
        methods.ExchangeBind(below, name, no_wait=True, arguments=goes_on),
    ]
