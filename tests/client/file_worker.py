"""A process that uses a folder until it is killed, and tells on its output what it was promised."""

from __future__ import annotations

import os
import sys

from penstock.client.errors import ConnectionLost
from penstock.client.sync.session import Session


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def put_for_ever(url: str) -> None:
    """Put, bury, requeue and finalize; a line for each promise."""
    with Session(url) as session:
        producer, consumer = session.producer_for("work"), session.consumer_for("work")
        number = 0
        while True:
            number += 1
            producer.put(f"put {number}")
            tell(f"put {number}")
            producer.put_many([f"many {number} {index}" for index in range(3)])
            tell(f"many {number}")
            message = consumer.reserve()
            assert message is not None
            if number % 3 == 0:
                consumer.bury(message, note="aside")
                tell(f"buried: {message.text}")
            elif number % 3 == 1:
                consumer.finalize(message, note="done")
                tell(f"finalized: {message.text}")
            else:
                consumer.requeue(message, delay=3600, note="later")
                tell(f"later: {message.text}")


def hold(url: str) -> None:
    """Open the folder, and wait until the input ends."""
    with Session(url) as session:
        session.use_queue("work")
        tell("open")
        sys.stdin.read()


def put_and_leave(url: str) -> None:
    """End without closing anything."""
    session = Session(url)
    session.producer_for("work").put_many(["a", "b"])
    assert session.consumer_for("work").reserve() is not None
    tell("left")


def fork(url: str) -> None:
    """Have a child use the session of its parent, and go on with it."""
    with Session(url) as session:
        producer = session.producer_for("work")
        producer.put("by the parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.put("by the child")
            except ConnectionLost:
                session.close()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        producer.put("by the parent again")
        tell(f"the child ended with {os.waitstatus_to_exitcode(status)}")


VERBS = {"put_for_ever": put_for_ever, "hold": hold, "put_and_leave": put_and_leave, "fork": fork}

if __name__ == "__main__":
    VERBS[sys.argv[1]](sys.argv[2])
