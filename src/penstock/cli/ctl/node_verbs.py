"""Verbs about the node as a whole."""

from __future__ import annotations

from typing import Final

import click

from penstock.cli.ctl.ctl import Ctl, verb


@verb
def ping(ctl: Ctl) -> None:
    """Succeed if the broker answers."""
    ctl.say("Will ping the broker...")
    answer = ctl.ask("ping")
    ctl.say(f"Ping succeeded: {answer['product']} {answer['version']}")


@verb
def status(ctl: Ctl) -> None:
    """Show what runs, for how long, and what it holds."""
    ctl.say("Status of the broker ...")
    ctl.show_object(ctl.ask("status"))


@verb
@click.option("--used", is_flag=True, help="Those alone that a client has used since the start.")
def list_deprecated_features(ctl: Ctl, used: bool) -> None:
    """List what RabbitMQ has deprecated, whether it is permitted here, and how often it was used."""
    ctl.say("Listing deprecated features ...")
    ctl.show(ctl.ask("list_deprecated_features", used=used), ("name", "permitted", "used", "last_used_by"))


VERBS: Final[tuple[click.Command, ...]] = (ping, status, list_deprecated_features)
