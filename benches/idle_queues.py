"""What idle queues cost: `python -m benches.idle_queues [COUNT]` declares them on a broker of its own.

100,000 durable queues: 47 MiB -> 139 MiB, 967 bytes each; limit 400 MiB
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pamqp import base, commands, frame

COUNT = 100_000
LIMIT_MIB = 400
AT_ONCE = 500


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory(prefix="penstock-idle-") as folder:
        serve = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data-dir", f"{folder}/data", "--json"]
        process = subprocess.Popen([*serve, "--log-level", "error"], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            before = rss_bytes(process.pid)
            begun = time.monotonic()
            declare(port, count)
            took_s = time.monotonic() - begun
            after = rss_bytes(process.pid)
        finally:
            process.terminate()
            process.wait(120)
    mib = 1 << 20
    print(
        f"{count:,} durable queues: {before // mib} MiB -> {after // mib} MiB, {(after - before) // count:,} bytes"
        f" each; limit {LIMIT_MIB} MiB; declared in {took_s:.1f} s"
    )
    return 0 if after <= LIMIT_MIB * mib else 1


def declare(port: int, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        reader = connection.makefile("rb")
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        login = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
        expect(reader.read, commands.Connection.Start)
        send(connection, 0, login)
        expect(reader.read, commands.Connection.Tune)
        send(connection, 0, commands.Connection.TuneOk(0, 131_072, 0), commands.Connection.Open("/"))
        expect(reader.read, commands.Connection.OpenOk)
        send(connection, 1, commands.Channel.Open())
        expect(reader.read, commands.Channel.OpenOk)
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            send(connection, 1, *[commands.Queue.Declare(0, f"queue-{number}", durable=True) for number in numbers])
            for _ in numbers:
                expect(reader.read, commands.Queue.DeclareOk)


def send(connection: socket.socket, channel: int, *methods: base.Frame) -> None:
    connection.sendall(b"".join([frame.marshal(method, channel) for method in methods]))


def expect(read: object, kind: type[base.Frame]) -> None:
    assert callable(read)
    head = read(7)
    rest = read(int.from_bytes(head[3:7], "big") + 1)
    _, _, received = frame.unmarshal(head + rest)
    if not isinstance(received, kind):
        raise SystemExit(f"expected {kind.__name__}, got {received}")


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the broker has ended")


if __name__ == "__main__":
    sys.exit(main())
