"""The `penstockctl` command. Its verbs are in modules by what they are about."""

from __future__ import annotations

import sys

import click

import penstock
from penstock.cli.ctl import definition_verbs, node_verbs, policy_verbs, user_verbs, vhost_verbs
from penstock.cli.ctl.ctl import EXIT_USAGE


class Verbs(click.Group):
    """Takes a verb's options before the verb, too, as rabbitmqctl does: `penstockctl -q list_users`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = next((at for at, word in enumerate(args) if word in self.commands), 0)
        return super().parse_args(ctx, [*args[at : at + 1], *args[:at], *args[at + 1 :]])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(penstock.__version__, prog_name="penstockctl")
def penstockctl() -> None:
    """Administer a running penstock broker, with rabbitmqctl's verbs.

    The broker is reached through the control socket in its data folder; only the folder's owner can.

    Exit codes: 0 done; 64 wrong usage; 65 bad value; 67 no such thing; 69 no broker answers; 70 could not be done;
    77 not allowed.
    """


for _verbs in (node_verbs, user_verbs, vhost_verbs, policy_verbs, definition_verbs):
    for _verb in _verbs.VERBS:
        penstockctl.add_command(_verb)


def main() -> None:
    try:
        code = penstockctl.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(1)
    sys.exit(code or 0)
