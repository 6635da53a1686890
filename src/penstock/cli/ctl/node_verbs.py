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


VERBS: Final[tuple[click.Command, ...]] = (ping, status)
