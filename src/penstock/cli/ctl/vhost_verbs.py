"""Verbs about vhosts."""

from __future__ import annotations

from typing import Final

import click

from penstock.cli.ctl.ctl import Ctl, verb, vhost_option
from penstock.cli.ctl.user_verbs import object_from

VHOST_COLUMNS: Final = ("name", "description", "tags", "limits", "queues")


@verb
@click.argument("vhost")
@click.option("--description", default="")
@click.option("--tags", default="", metavar="TAG,TAG")
def add_vhost(ctl: Ctl, vhost: str, description: str, tags: str) -> None:
    """Make a vhost."""
    ctl.say(f'Adding vhost "{vhost}" ...')
    ctl.ask("add_vhost", name=vhost, description=description, tags=tags)


@verb
@click.argument("vhost")
def delete_vhost(ctl: Ctl, vhost: str) -> None:
    """Delete a vhost with everything in it; its connections are closed."""
    ctl.say(f'Deleting vhost "{vhost}" ...')
    ctl.ask("delete_vhost", name=vhost)


@verb
@click.argument("columns", nargs=-1, type=click.Choice(VHOST_COLUMNS))
def list_vhosts(ctl: Ctl, columns: tuple[str, ...]) -> None:
    """List the vhosts."""
    ctl.say("Listing vhosts ...")
    ctl.show(ctl.ask("list_vhosts"), columns or ("name",))


@verb
@vhost_option
@click.argument("limits")
def set_vhost_limits(ctl: Ctl, vhost: str, limits: str) -> None:
    """Set limits of a vhost as JSON: {"max-connections": 100, "max-queues": 1000}."""
    ctl.say(f'Setting vhost limits to "{limits}" for vhost "{vhost}" ...')
    ctl.ask("set_vhost_limits", vhost=vhost, limits=object_from(limits))


@verb
@vhost_option
@click.argument("limit", default="all")
def clear_vhost_limits(ctl: Ctl, vhost: str, limit: str) -> None:
    """Take one limit of a vhost away, or all."""
    ctl.say(f'Clearing vhost "{vhost}" limits ...')
    ctl.ask("clear_vhost_limits", vhost=vhost, limit=limit)


@verb
@click.option("-p", "--vhost", default=None, metavar="VHOST")
@click.option("--global", "_all", is_flag=True, help="All vhosts; that is the default.")
def list_vhost_limits(ctl: Ctl, vhost: str | None, _all: bool) -> None:
    """List the limits of one vhost, or of all."""
    ctl.show(ctl.ask("list_vhost_limits", vhost=vhost), ("vhost", "limits"))


VERBS: Final[tuple[click.Command, ...]] = (
    *(add_vhost, delete_vhost, list_vhosts),
    *(set_vhost_limits, clear_vhost_limits, list_vhost_limits),
)
