"""Put some jobs: `python enqueue.py URL`."""

from __future__ import annotations

import sys

from mail import send

from penstock import Session


def main(url: str) -> None:
    with Session(url) as session:
        send.enqueue(session, "ada@example.org", subject="The engine works")
        send.enqueue(session, "nobody")
        send.enqueue_in(session, 60, "later@example.org")


if __name__ == "__main__":
    main(sys.argv[1])
