"""Reserve and finalize messages as fast as it goes, and say how fast that is: `python consumer.py URL`."""

from __future__ import annotations

import argparse
import time

from penstock import Session


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url", help="postgresql://…, amqp://… or file://…")
    options.add_argument("--queue", default="classic")
    options.add_argument("--batch", type=int, default=1, help="messages in one call")
    options.add_argument("--idle", type=float, default=None, help="end after so many seconds without a message")
    given = options.parse_args()
    total = since = 0
    with Session(given.url) as session, session.consumer_for(given.queue, prefetch=given.batch) as consumer:
        messages = consumer.reserve_many(given.batch, wait=given.idle)
        began = said = time.monotonic()
        try:
            while messages:
                total, since = total + len(messages), since + len(messages)
                messages = consumer.finalize_many_and_reserve(messages, given.batch, "done")
                if not messages:
                    messages = consumer.reserve_many(given.batch, wait=given.idle)
                now = time.monotonic()
                if now - said >= 1.0:
                    print(f"{since / (now - said):,.0f} messages a second", flush=True)
                    said, since = now, 0
        except KeyboardInterrupt:
            pass
        stats = session.stats(given.queue)
    print(f"{total} messages finalized, {total / (time.monotonic() - began):,.0f} a second; {stats.ready_count} left")


if __name__ == "__main__":
    main()
