"""What rights and TLS cost: `python -m benches.access [MESSAGES]` publishes to a broker of its own, in four ways.

A client publishes as fast as it can: over TCP as guest, as a user with patterns, with a topic permission, and within
TLS. What is compared is the broker's CPU time for each message, in one run; the smallest of several rounds counts.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from pamqp import body, commands, frame, header

from benches.idle_queues import expect, send
from penstock.cli.ctl.broker_control import BrokerControl
from penstock.cli.tls import make

MESSAGES = 2_000_000
ROUNDS = 3
BATCH = 1000
PAYLOAD = b"x" * 100


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    with tempfile.TemporaryDirectory(prefix="penstock-access-") as folder:
        tls = Path(folder, "tls")
        make(tls, ["localhost"], "guest", 1)
        serve = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data-dir", f"{folder}/data", "--json"]
        serve += ["--tls-port", "0", "--tls-cert", str(tls / "server.pem"), "--tls-key", str(tls / "server.key")]
        process = subprocess.Popen([*serve, "--log-level", "error"], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            with BrokerControl(f"{folder}/data") as control:
                for user in ("patterns", "topics"):
                    control.ask("add_user", {"name": user, "password": user})
                    rights = dict.fromkeys(("configure", "write", "read"), "^(amq\\..*|bench-.*)$")
                    control.ask("set_permissions", {"user": user, **rights})
                topic = {"user": "topics", "exchange": "amq.topic", "write": "^bench\\.", "read": ""}
                control.ask("set_topic_permissions", topic)
            context = ssl.create_default_context(cafile=str(tls / "ca.pem"))
            ways = {
                "guest": (ready["port"], "guest", None),
                "user with patterns": (ready["port"], "patterns", None),
                "user with topics": (ready["port"], "topics", None),
                "guest within TLS": (ready["tls_port"], "guest", context),
            }
            best: dict[str, float] = {}
            for _ in range(ROUNDS):
                for name, (port, user, secure) in ways.items():
                    took_us = publish(process.pid, port, user, secure, count) / count * 1e6
                    best[name] = min(best.get(name, took_us), took_us)
        finally:
            process.terminate()
            process.wait(120)
    for name, took_us in best.items():
        print(f"{name:20} {took_us:6.2f} us of CPU per message, {best['guest'] / took_us:.2f} of guest's speed")
    return 0


def publish(pid: int, port: int, user: str, context: ssl.SSLContext | None, count: int) -> float:
    """Publish to a topic exchange without bindings; return the seconds of CPU that the broker took."""
    raw = socket.create_connection(("127.0.0.1", port))
    with raw if context is None else context.wrap_socket(raw, server_hostname="localhost") as connection:
        reader = connection.makefile("rb")
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        expect(reader.read, commands.Connection.Start)
        send(connection, 0, commands.Connection.StartOk({}, "PLAIN", f"\0{user}\0{user}", "en_US"))
        expect(reader.read, commands.Connection.Tune)
        send(connection, 0, commands.Connection.TuneOk(0, 131_072, 0), commands.Connection.Open("/"))
        expect(reader.read, commands.Connection.OpenOk)
        send(connection, 1, commands.Channel.Open())
        expect(reader.read, commands.Channel.OpenOk)
        one = frame.marshal(commands.Basic.Publish(0, "amq.topic", "bench.key"), 1)
        one += frame.marshal(header.ContentHeader(0, len(PAYLOAD), commands.Basic.Properties()), 1)
        one += frame.marshal(body.ContentBody(PAYLOAD), 1)
        before_s = cpu_s(pid)
        for _ in range(count // BATCH):
            connection.sendall(one * BATCH)
        send(connection, 1, commands.Exchange.Declare(0, "amq.direct", "direct", passive=True))
        expect(reader.read, commands.Exchange.DeclareOk)
        return cpu_s(pid) - before_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    sys.exit(main())
