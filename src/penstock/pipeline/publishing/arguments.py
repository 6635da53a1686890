"""Arguments that the entry points of `replay` and `triage` share.

What it does not do: the command line of `penstock pipeline`, which is in `cli`.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from penstock.pipeline.publishing.replayed import Destination
from penstock.pipeline.publishing.selection import Selection, SelectionError


def add_selection(made: argparse.ArgumentParser) -> None:
    made.add_argument("--vhost", help="that of the broker's URL unless given")
    made.add_argument("--queue", help="in which they were")
    made.add_argument("--from", dest="since", metavar="TIME", help="published from then on: 2026-01-31T08:00:00Z")
    made.add_argument("--to", dest="until", metavar="TIME", help="published before then")
    made.add_argument("--exchange", help="by which they came")
    made.add_argument("--routing-key", help="with which they came")
    made.add_argument("--content-type")
    made.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    made.add_argument("--where", metavar="SQL", help="on the columns of published events: size > 1000")
    made.add_argument("--outcome", action="append", default=[], help="how their life has ended: dead-lettered, …")
    made.add_argument("--reason", action="append", default=[], help="why they were dead-lettered: expired, …")


def add_destination(made: argparse.ArgumentParser) -> None:
    made.add_argument("--to-queue", help="instead of the queue that they were in")
    made.add_argument("--to-exchange")
    made.add_argument("--to-routing-key", help="instead of their own; with --to-exchange")
    made.add_argument("--to-original", action="store_true", help="to the exchange they came by, with their key")
    made.add_argument("--dry-run", action="store_true", help="count and show, and publish nothing")
    made.add_argument("--rate-limit", type=float, metavar="N", help="messages in a second")


def replay_parser() -> argparse.ArgumentParser:
    """The arguments of `jobs.replay.main`."""
    made = argparse.ArgumentParser(prog="replay", description="messages of the past back into queues")
    made.add_argument("--broker", required=True, help="amqp://user:password@host:port/vhost")
    made.add_argument("--lake", help="folder of the lake")
    made.add_argument("--source", help="data folder of a broker, or its http:// URL")
    made.add_argument("--name", default="", help="the same replay has the same name: no message twice")
    add_selection(made)
    add_destination(made)
    made.add_argument("--ordered", action="store_true", help="in the order in which they were published")
    made.add_argument("--slice-rows", type=int, metavar="N", help="published by one job of Spark")
    made.add_argument("--user")
    made.add_argument("--password", help="rather in PENSTOCK_PASSWORD, where others do not see it")
    made.add_argument("--master", help="of Spark; for spark-submit leave it away")
    return made


def selection_of(given: argparse.Namespace) -> Selection:
    """SelectionError for what cannot be understood."""
    return Selection(
        vhost=given.vhost,
        queue=given.queue,
        since=moment(given.since),
        until=moment(given.until),
        outcomes=tuple(given.outcome),
        reasons=tuple(given.reason),
        exchange=given.exchange,
        routing_key=given.routing_key,
        content_type=given.content_type,
        headers=tuple(header(text) for text in given.header),
        where=given.where,
    )


def destination_of(given: argparse.Namespace) -> Destination:
    try:
        return Destination(given.to_queue, given.to_exchange, given.to_routing_key, given.to_original)
    except ValueError as error:
        raise SelectionError(str(error)) from None


def moment(text: str | None) -> datetime | None:
    """An ISO time; without a zone it is UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise SelectionError(f"{text!r} is no time; write it like 2026-01-31T08:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise SelectionError(f"a header is given as NAME=VALUE, not {text!r}")
    return name, value
