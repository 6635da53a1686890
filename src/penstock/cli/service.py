"""`penstock service`: units for systemd, made for this installation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

SERVICE: Final = """\
# /etc/systemd/system/penstock.service
[Unit]
Description=penstock message broker
Documentation=https://pypi.org/project/penstock/
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
User={user}
# /var/lib/penstock and /etc/penstock, for this user alone.
StateDirectory=penstock
StateDirectoryMode=0700
ConfigurationDirectory=penstock
ConfigurationDirectoryMode=0750
Environment=PENSTOCK_DATA_DIR=/var/lib/penstock
ExecStart={command} serve{config}
ExecReload=/bin/kill -HUP $MAINPID
# A start after a crash reads the journal; a stop waits for clients (drain_s) and for the disk.
TimeoutStartSec=infinity
TimeoutStopSec=90
# The event loop says every few seconds that it turns.
WatchdogSec=30
Restart=on-failure
RestartSec=2
LimitNOFILE=32768
UMask=0077
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectControlGroups=true
RestrictSUIDSGID=true
RestrictNamespaces=true
LockPersonality=true
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6

[Install]
WantedBy=multi-user.target
"""
SOCKET: Final = """\
# /etc/systemd/system/penstock.socket
[Unit]
Description=AMQP socket of the penstock message broker

[Socket]
ListenStream={listen}
Backlog=128
NoDelay=true

[Install]
WantedBy=sockets.target
"""


@click.command(short_help="Print units for systemd.")
@click.option("--socket", "is_socket", is_flag=True, help="The socket unit instead of the service unit.")
@click.option("--listen", default="5672", show_default=True, metavar="[HOST:]PORT", help="Where the socket listens.")
@click.option("--user", default="penstock", show_default=True, metavar="NAME", help="Whom the service runs as.")
@click.option("--config", "config_path", default="", metavar="FILE", help="The file of settings, if it is elsewhere.")
def service(is_socket: bool, listen: str, user: str, config_path: str) -> None:
    """Print a systemd unit for this installation of penstock.

    With a socket unit, systemd keeps the port open while the broker restarts: clients wait instead of being refused.

    Exit codes: 0 printed; 2 wrong options.
    """
    if any(not text.isprintable() or "%" in text for text in (listen, user, config_path)):
        raise click.UsageError("options must be printable and without %")
    if is_socket:
        click.echo(SOCKET.format(listen=listen), nl=False)
        return
    command = Path(sys.executable).with_name("penstock")
    config = f" --config {config_path}" if config_path else ""
    click.echo(SERVICE.format(user=user, command=command, config=config), nl=False)
