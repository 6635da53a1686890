"""Verbs about policies, operator policies and parameters."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import click

from penstock.cli.ctl.ctl import EXIT_DATA, Ctl, Verb, verb, vhost_option

COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
APPLY_TO: Final = ("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all")


def _policy_options(command: Verb) -> Verb:
    for option in (
        vhost_option,
        click.option("--priority", type=int, default=0, show_default=True, help="The highest that matches counts."),
        click.option("--apply-to", type=click.Choice(APPLY_TO), default="all", show_default=True),
        click.argument("definition", metavar="DEFINITION"),
        click.argument("pattern"),
        click.argument("name"),
    ):
        command = option(command)
    return command


@verb
@_policy_options
def set_policy(ctl: Ctl, name: str, pattern: str, definition: str, apply_to: str, priority: int, vhost: str) -> None:
    """Set a policy: '{"max-length": 1000}' for the queues whose names match the pattern."""
    ctl.say(
        f'Setting policy "{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}" for vhost'
        f' "{vhost}" ...'
    )
    ctl.ask(
        "set_policy",
        vhost=vhost,
        name=name,
        pattern=pattern,
        definition=_decoded(definition),
        apply_to=apply_to,
        priority=priority,
    )


@verb
@_policy_options
def set_operator_policy(
    ctl: Ctl, name: str, pattern: str, definition: str, apply_to: str, priority: int, vhost: str
) -> None:
    """Set limits that no policy and no argument of a queue can exceed."""
    ctl.say(
        f'Setting operator policy override "{name}" for pattern "{pattern}" to "{definition}" with priority'
        f' "{priority}" for vhost "{vhost}" ...'
    )
    ctl.ask(
        "set_operator_policy",
        vhost=vhost,
        name=name,
        pattern=pattern,
        definition=_decoded(definition),
        apply_to=apply_to,
        priority=priority,
    )


@verb
@vhost_option
@click.argument("name")
def clear_policy(ctl: Ctl, name: str, vhost: str) -> None:
    """Remove a policy."""
    ctl.say(f'Clearing policy "{name}" on vhost "{vhost}" ...')
    ctl.ask("clear_policy", vhost=vhost, name=name)


@verb
@vhost_option
@click.argument("name")
def clear_operator_policy(ctl: Ctl, name: str, vhost: str) -> None:
    """Remove an operator policy."""
    ctl.say(f'Clearing operator policy "{name}" on vhost "{vhost}" ...')
    ctl.ask("clear_operator_policy", vhost=vhost, name=name)


@verb
@vhost_option
def list_policies(ctl: Ctl, vhost: str) -> None:
    """List the policies of a vhost, the one that counts most first."""
    ctl.say(f'Listing policies for vhost "{vhost}" ...')
    ctl.show(ctl.ask("list_policies", vhost=vhost), COLUMNS)


@verb
@vhost_option
def list_operator_policies(ctl: Ctl, vhost: str) -> None:
    """List the operator policies of a vhost, the one that counts most first."""
    ctl.say(f'Listing operator policy overrides for vhost "{vhost}" ...')
    ctl.show(ctl.ask("list_operator_policies", vhost=vhost), COLUMNS)


@verb
@vhost_option
@click.option("--exchange", "is_exchange", is_flag=True, help="NAME is that of an exchange.")
@click.argument("name")
def effective_policy(ctl: Ctl, name: str, is_exchange: bool, vhost: str) -> None:
    """Show which policies apply to a queue or an exchange, and what they say together."""
    ctl.show_object(ctl.ask("exchange_policies" if is_exchange else "queue_policies", vhost=vhost, name=name))


@verb
@vhost_option
@click.argument("component")
@click.argument("name")
@click.argument("value")
def set_parameter(ctl: Ctl, component: str, name: str, value: str, vhost: str) -> None:
    """Set a runtime parameter; VALUE is JSON."""
    ctl.say(f'Setting runtime parameter "{name}" for component "{component}" in vhost "{vhost}" ...')
    ctl.ask("set_parameter", vhost=vhost, component=component, name=name, value=value)


@verb
@vhost_option
@click.argument("component")
@click.argument("name")
def clear_parameter(ctl: Ctl, component: str, name: str, vhost: str) -> None:
    """Remove a runtime parameter."""
    ctl.say(f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{vhost}" ...')
    ctl.ask("clear_parameter", vhost=vhost, component=component, name=name)


@verb
@vhost_option
def list_parameters(ctl: Ctl, vhost: str) -> None:
    """List the runtime parameters of a vhost."""
    ctl.say(f'Listing runtime parameters for vhost "{vhost}" ...')
    ctl.show(ctl.ask("list_parameters", vhost=vhost), ("component", "name", "value"))


@verb
@click.argument("name")
@click.argument("value")
def set_global_parameter(ctl: Ctl, name: str, value: str) -> None:
    """Set a global parameter; VALUE is JSON."""
    ctl.say(f'Setting global runtime parameter "{name}" ...')
    ctl.ask("set_global_parameter", name=name, value=value)


@verb
@click.argument("name")
def clear_global_parameter(ctl: Ctl, name: str) -> None:
    """Remove a global parameter."""
    ctl.say(f'Clearing global runtime parameter "{name}" ...')
    ctl.ask("clear_global_parameter", name=name)


@verb
def list_global_parameters(ctl: Ctl) -> None:
    """List the global parameters."""
    ctl.say("Listing global runtime parameters ...")
    ctl.show(ctl.ask("list_global_parameters"), ("name", "value"))


def _decoded(definition: str) -> Any:
    try:
        decoded = json.loads(definition)
    except ValueError as error:
        click.echo(f"Error: JSON decoding error. Reason: {error}", err=True)
        sys.exit(EXIT_DATA)
    if not isinstance(decoded, dict):
        click.echo("Error: a definition is a JSON object: '{\"max-length\": 1000}'", err=True)
        sys.exit(EXIT_DATA)
    return decoded


VERBS: Final[tuple[click.Command, ...]] = (
    set_policy,
    clear_policy,
    list_policies,
    set_operator_policy,
    clear_operator_policy,
    list_operator_policies,
    effective_policy,
    set_parameter,
    clear_parameter,
    list_parameters,
    set_global_parameter,
    clear_global_parameter,
    list_global_parameters,
)
