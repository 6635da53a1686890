"""`python -m benches.stalls.steady PORT RATE publish|consume`: one side of a steady traffic, until it is killed."""

from __future__ import annotations

import struct
import sys
import time

from benches.stalls.client import DELIVERY_START, Client, method, publish

BURST = 100


def main() -> None:
    port, rate, role = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    client = Client(port)
    if role == "consume":
        consume(client)
        return
    burst = publish("", "q", b"0123456789" * 10) * BURST
    due = time.monotonic()
    while True:
        client.send(burst)
        due += BURST / rate
        time.sleep(max(0.0, due - time.monotonic()))


def consume(client: Client) -> None:
    client.call((60, 10), struct.pack(">IHB", 0, 1_000, 0))
    client.consume("q")
    got = acked = 0
    carry = b""
    while True:
        octets = carry + client.sock.recv(1 << 18)
        got += octets.count(DELIVERY_START)
        last = octets.rfind(DELIVERY_START)
        carry = octets[max(last + len(DELIVERY_START), len(octets) - len(DELIVERY_START) + 1) :]
        if got - acked >= BURST:
            client.send(method((60, 80), struct.pack(">QB", got, 1)))
            acked = got


if __name__ == "__main__":
    main()
