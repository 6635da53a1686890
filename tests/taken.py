"""Takes unsettled deliveries as a channel does: some at once, the others detached and a few at a time."""

from __future__ import annotations

from penstock.server.channel.unacked import Span, Unacked, joined

# One stretch more than this is detached.
AT_ONCE = 2


def taken_through(unacked: Unacked, tag: int) -> list[Span]:
    spans = unacked.take_through(tag, AT_ONCE)
    return joined(spans + taken_from(unacked.detach_through(tag)))


def all_taken(unacked: Unacked) -> list[Span]:
    spans = unacked.take_some(AT_ONCE)
    return joined(spans + taken_from(unacked.detach_through(0)))


def taken_from(detached: Unacked | None) -> list[Span]:
    spans: list[Span] = []
    while detached is not None and not detached.is_empty():
        spans += detached.take_oldest(AT_ONCE)
    return spans
