"""Put messages as fast as it goes, and say how fast that is: `python producer.py URL`."""

from __future__ import annotations

import argparse
import time

from penstock import Session


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url", help="postgresql://…, amqp://… or file://…")
    options.add_argument("--queue", default="classic")
    options.add_argument("--payload", default="data")
    options.add_argument("--batch", type=int, default=1, help="messages in one call")
    options.add_argument("--seconds", type=float, default=None, help="for how long; by default until Ctrl+C")
    given = options.parse_args()
    total = since = 0
    with Session(given.url) as session, session.producer_for(given.queue) as producer:
        began = said = time.monotonic()
        try:
            while given.seconds is None or time.monotonic() - began < given.seconds:
                if given.batch == 1:
                    producer.put(given.payload)
                else:
                    producer.put_many([given.payload] * given.batch)
                since += given.batch
                now = time.monotonic()
                if now - said >= 1.0:
                    print(f"{since / (now - said):,.0f} messages a second", flush=True)
                    total += since
                    said, since = now, 0
        except KeyboardInterrupt:
            pass
    total += since
    print(f"{total} messages put, {total / (time.monotonic() - began):,.0f} a second")


if __name__ == "__main__":
    main()
