"""Verbs about users, permissions and limits."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import click

from penstock.cli.ctl.ctl import Ctl, verb, vhost_option

PERMISSION_COLUMNS: Final = ("configure", "write", "read")


def password_from(given: str | None) -> str:
    """Return the password that was given, or else the first line of the input: arguments can be seen by others."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True))
    return sys.stdin.readline().rstrip("\n")


def object_from(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"that is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.BadParameter('that is no JSON object such as {"max-connections": 10}')
    return value


@verb
@click.argument("user")
@click.argument("password", required=False)
@click.option("--pre-hashed-password", default="", metavar="HASH", help="RabbitMQ's salted SHA-256 in base64.")
def add_user(ctl: Ctl, user: str, password: str | None, pre_hashed_password: str) -> None:
    """Make a user. Without PASSWORD it is read from the input."""
    ctl.say(f'Adding user "{user}" ...')
    if pre_hashed_password:
        ctl.ask("add_user", name=user, password_hash=pre_hashed_password)
    else:
        ctl.ask("add_user", name=user, password=password_from(password))
    ctl.say("Done. Don't forget to grant the user permissions to some vhosts: penstockctl set_permissions")


@verb
@click.argument("user")
@click.argument("password", required=False)
def change_password(ctl: Ctl, user: str, password: str | None) -> None:
    """Give a user another password. Without PASSWORD it is read from the input."""
    ctl.say(f'Changing password for user "{user}" ...')
    ctl.ask("change_password", name=user, password=password_from(password))


@verb
@click.argument("user")
def clear_password(ctl: Ctl, user: str) -> None:
    """Take a user's password away: it cannot log in with one any more."""
    ctl.say(f'Clearing password for user "{user}" ...')
    ctl.ask("clear_password", name=user)


@verb
@click.argument("user")
@click.argument("password", required=False)
def authenticate_user(ctl: Ctl, user: str, password: str | None) -> None:
    """Succeed if the user has this password."""
    ctl.say(f'Authenticating user "{user}" ...')
    ctl.ask("authenticate_user", name=user, password=password_from(password))
    ctl.say("Success")


@verb
@click.argument("user")
def delete_user(ctl: Ctl, user: str) -> None:
    """Delete a user; its connections are closed."""
    ctl.say(f'Deleting user "{user}" ...')
    ctl.ask("delete_user", name=user)


@verb
@click.argument("user")
@click.argument("tags", nargs=-1)
def set_user_tags(ctl: Ctl, user: str, tags: tuple[str, ...]) -> None:
    """Replace the tags of a user: administrator, monitoring, policymaker, management, impersonator."""
    ctl.say(f'Setting tags for user "{user}" to [{", ".join(tags)}] ...')
    ctl.ask("set_user_tags", name=user, tags=list(tags))


@verb
def list_users(ctl: Ctl) -> None:
    """List the users and their tags."""
    ctl.say("Listing users ...")
    ctl.show(ctl.ask("list_users"), ("user", "tags"))


@verb
@vhost_option
@click.argument("user")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
def set_permissions(ctl: Ctl, vhost: str, user: str, configure: str, write: str, read: str) -> None:
    """Set what a user may configure, write to and read from, as patterns over names."""
    ctl.say(f'Setting permissions for user "{user}" in vhost "{vhost}" ...')
    ctl.ask("set_permissions", vhost=vhost, user=user, configure=configure, write=write, read=read)


@verb
@vhost_option
@click.argument("user")
def clear_permissions(ctl: Ctl, vhost: str, user: str) -> None:
    """Take away what a user may do in a vhost."""
    ctl.say(f'Clearing permissions for user "{user}" in vhost "{vhost}" ...')
    ctl.ask("clear_permissions", vhost=vhost, user=user)


@verb
@vhost_option
def list_permissions(ctl: Ctl, vhost: str) -> None:
    """List who may do what in a vhost."""
    ctl.say(f'Listing permissions for vhost "{vhost}" ...')
    ctl.show(ctl.ask("list_permissions", vhost=vhost), ("user", *PERMISSION_COLUMNS))


@verb
@click.argument("user")
def list_user_permissions(ctl: Ctl, user: str) -> None:
    """List what a user may do, vhost by vhost."""
    ctl.say(f'Listing permissions for user "{user}" ...')
    ctl.show(ctl.ask("list_user_permissions", user=user), ("vhost", *PERMISSION_COLUMNS))


@verb
@vhost_option
@click.argument("user")
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
def set_topic_permissions(ctl: Ctl, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
    """Set the routing keys that a user may publish and bind with at a topic exchange."""
    ctl.say(f'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{vhost}" ...')
    ctl.ask("set_topic_permissions", vhost=vhost, user=user, exchange=exchange, write=write, read=read)


@verb
@vhost_option
@click.argument("user")
@click.argument("exchange", required=False)
def clear_topic_permissions(ctl: Ctl, vhost: str, user: str, exchange: str | None) -> None:
    """Allow all routing keys again, at one exchange or at all."""
    ctl.say(f'Clearing topic permissions for user "{user}" in vhost "{vhost}" ...')
    ctl.ask("clear_topic_permissions", vhost=vhost, user=user, exchange=exchange)


@verb
@vhost_option
def list_topic_permissions(ctl: Ctl, vhost: str) -> None:
    """List the topic permissions of a vhost."""
    ctl.say(f'Listing topic permissions for vhost "{vhost}" ...')
    ctl.show(ctl.ask("list_topic_permissions", vhost=vhost), ("user", "exchange", "write", "read"))


@verb
@click.argument("user")
def list_user_topic_permissions(ctl: Ctl, user: str) -> None:
    """List the topic permissions of a user."""
    ctl.say(f'Listing topic permissions for user "{user}" ...')
    ctl.show(ctl.ask("list_user_topic_permissions", user=user), ("vhost", "exchange", "write", "read"))


@verb
@click.argument("user")
@click.argument("limits")
def set_user_limits(ctl: Ctl, user: str, limits: str) -> None:
    """Set limits of a user as JSON: {"max-connections": 10, "max-channels": 100}."""
    ctl.say(f'Setting user limits to "{limits}" for user "{user}" ...')
    ctl.ask("set_user_limits", name=user, limits=object_from(limits))


@verb
@click.argument("user")
@click.argument("limit", default="all")
def clear_user_limits(ctl: Ctl, user: str, limit: str) -> None:
    """Take one limit of a user away, or all."""
    ctl.say(f'Clearing user limits for user "{user}" ...')
    ctl.ask("clear_user_limits", name=user, limit=limit)


@verb
@click.option("--user", default=None, metavar="USER")
@click.option("--global", "_all", is_flag=True, help="All users; that is the default.")
def list_user_limits(ctl: Ctl, user: str | None, _all: bool) -> None:
    """List the limits of one user, or of all."""
    ctl.show(ctl.ask("list_user_limits", name=user), ("user", "limits"))


VERBS: Final[tuple[click.Command, ...]] = (
    *(add_user, change_password, clear_password, authenticate_user, delete_user, set_user_tags, list_users),
    *(set_permissions, clear_permissions, list_permissions, list_user_permissions),
    *(set_topic_permissions, clear_topic_permissions, list_topic_permissions, list_user_topic_permissions),
    *(set_user_limits, clear_user_limits, list_user_limits),
)
