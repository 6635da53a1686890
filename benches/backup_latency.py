"""What a running backup costs publishers: `python -m benches.backup_latency [BACKLOG_MIB]`.

A broker of its own gets a backlog. Then one publisher waits for the confirm of each message, in turns with and without
a backup beside it; the turns alternate, so that the noise of the machine meets both.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

BACKLOG_MIB = 256
BODY_BYTES = 1000
ROUNDS = 4
# Of a turn without a backup; one with a backup lasts as long as that takes.
TURN_S = 5.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)
PENSTOCK = (sys.executable, "-m", "penstock")


def main() -> None:
    backlog_mib = int(sys.argv[1]) if len(sys.argv) > 1 else BACKLOG_MIB
    with tempfile.TemporaryDirectory(prefix="penstock-backup-") as name:
        folder = Path(name)
        serve = [*PENSTOCK, "serve", "--port", "0", "--data-dir", f"{folder}/data", "--json", "--log-level", "error"]
        process = subprocess.Popen(serve, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
                measure(connection.channel(), folder, backlog_mib)
        finally:
            process.terminate()
            process.wait(120)


def measure(channel: BlockingChannel, folder: Path, backlog_mib: int) -> None:
    channel.queue_declare("backlog", durable=True)
    for _ in range((backlog_mib << 20) // BODY_BYTES):
        channel.basic_publish("", "backlog", bytes(BODY_BYTES), PERSISTENT)
    channel.confirm_delivery()
    alone: list[float] = []
    beside: list[float] = []
    backup_s: list[float] = []
    for number in range(ROUNDS):
        until = time.monotonic() + TURN_S
        while time.monotonic() < until:
            alone.append(latency_s(channel))
        begun = time.monotonic()
        command = [*PENSTOCK, "backup", f"{folder}/backup-{number}", "--data-dir", f"{folder}/data"]
        backup = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while backup.poll() is None:
            beside.append(latency_s(channel))
        assert backup.returncode == 0
        backup_s.append(time.monotonic() - begun)
    print(f"backlog {backlog_mib} MiB, backups of {', '.join(f'{seconds:.1f}' for seconds in backup_s)} s")
    for title, found in (("alone", alone), ("beside a backup", beside)):
        print(
            f"{title:16} {len(found):6,} confirms: median {at(found, 0.5) * 1000:6.2f} ms,"
            f" p99 {at(found, 0.99) * 1000:6.2f} ms, longest {max(found) * 1000:6.1f} ms"
        )
    print(f"ratio of p99: {at(beside, 0.99) / at(alone, 0.99):.2f}, of medians: {at(beside, 0.5) / at(alone, 0.5):.2f}")


def latency_s(channel: BlockingChannel) -> float:
    begun = time.monotonic()
    channel.basic_publish("", "backlog", bytes(BODY_BYTES), PERSISTENT)
    return time.monotonic() - begun


def at(found: list[float], share: float) -> float:
    return sorted(found)[int(len(found) * share)]


if __name__ == "__main__":
    main()
