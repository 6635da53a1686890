"""The `penstock` command."""

from __future__ import annotations

import click

import penstock
from penstock import message
from penstock.cli.audit import audit
from penstock.cli.backup import backup, restore
from penstock.cli.config import config
from penstock.cli.dump import dump
from penstock.cli.fsck import fsck
from penstock.cli.history import history
from penstock.cli.pg import pg
from penstock.cli.pipeline import pipeline
from penstock.cli.put import put
from penstock.cli.queues import queues
from penstock.cli.serve import serve
from penstock.cli.service import service
from penstock.cli.tls import tls
from penstock.cli.work import work

# The hot path of a platform wheel and of `make run` is compiled by mypyc (docs/decisions/0018).
BUILD = "interpreted" if str(message.__file__).endswith(".py") else "compiled"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(penstock.__version__, prog_name="penstock", message=f"%(prog)s, version %(version)s ({BUILD})")
def main() -> None:
    """penstock: the message broker that remembers. RabbitMQ-compatible (AMQP 0-9-1).

    Exit codes: 0 done as asked; 1 failed, and says why; 2 wrong options. `penstock COMMAND --help` names the
    environment variables that the command reads.
    """


main.add_command(serve)
main.add_command(config)
main.add_command(service)
main.add_command(fsck)
main.add_command(tls)
main.add_command(audit)
main.add_command(backup)
main.add_command(restore)
main.add_command(dump)
main.add_command(history)
main.add_command(pg)
main.add_command(work)
main.add_command(put)
main.add_command(queues)
main.add_command(pipeline)
