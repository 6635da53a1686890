"""Buried messages of an AMQP queue, back to where they came from."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.client.aio.amqp.link import AsyncLink
from penstock.client.amqp import names
from penstock.client.amqp.envelope import Outgoing, copy_properties, deliveries_before
from penstock.wire import methods

# Messages that are on their way at once.
KICKED_AT_ONCE = 64


async def kick(link: AsyncLink, queue: str, count: int) -> int:
    """Move up to `count` messages, oldest first, and return how many there were.

    Each is copied, and only then let go. A crash in between leaves both.
    """
    source = names.buried(queue)
    if await link.count(source) is None:
        return 0
    await link.ensure(queue)
    wire = await link.wire()
    channel = await wire.open_channel()
    moved = 0
    try:
        while moved < count:
            asked = [channel.call(methods.BasicGet(source)) for _ in range(min(count - moved, KICKED_AT_ONCE))]
            await wire.settle(asked)
            found = [answer.delivery for answer in asked if answer.delivery is not None]
            if found:
                now = datetime.now(UTC)
                await link.publish(
                    [
                        Outgoing(queue, copy_properties(each, now, deliveries_before(each), None, 0, 0), each.body)
                        for each in found
                    ]
                )
                channel.send(methods.BasicAck(found[-1].tag, multiple=True))
                moved += len(found)
            if len(found) < len(asked):
                break
    finally:
        await wire.settle([channel.close()])
    return moved
