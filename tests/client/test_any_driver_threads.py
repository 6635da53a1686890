"""Several producers and consumers at once, each on a thread: no message twice, none lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.client import any_driver
from tests.client.any_driver import PATIENCE_S, Place

PRODUCERS = 2
CONSUMERS = 3
MESSAGES = 40

place = any_driver.place


def run_all(functions: list[Callable[[], None]]) -> None:
    """Each on a thread; the first error of any of them comes out."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def put_all(session: Any, queue: str, number: int) -> None:
    with session.producer_for(queue) as producer:
        for index in range(MESSAGES // 2):
            producer.put(f"{number}/{index}")
        producer.put_many([f"{number}/{index}" for index in range(MESSAGES // 2, MESSAGES)])


def take_all(session: Any, queue: str, seen: list[bytes], lock: threading.Lock, everybody: threading.Event) -> None:
    with session.consumer_for(queue) as consumer:
        while not everybody.is_set():
            message = consumer.reserve(wait=0.2)
            if message is None:
                continue
            consumer.finalize(message)
            with lock:
                seen.append(message.payload)
                if len(seen) >= PRODUCERS * MESSAGES:
                    everybody.set()


def test_each_message_is_handled_exactly_once_with_a_session_for_each_thread(place: Place) -> None:
    queue = place.queue()
    place.session().use_queue(queue)
    seen: list[bytes] = []
    lock, everybody = threading.Lock(), threading.Event()
    watchdog = threading.Timer(3 * PATIENCE_S, everybody.set)
    watchdog.start()
    run_all(
        [
            *[partial(put_all, place.session(), queue, number) for number in range(PRODUCERS)],
            *[partial(take_all, place.session(), queue, seen, lock, everybody) for _ in range(CONSUMERS)],
        ]
    )
    watchdog.cancel()
    wanted = [f"{number}/{index}".encode() for number in range(PRODUCERS) for index in range(MESSAGES)]
    assert Counter(seen) == Counter(wanted)
    assert place.session().consumer_for(queue).reserve() is None


def test_one_session_can_be_used_by_several_tasks(place: Place) -> None:
    """A session of the synchronous face is for one thread; there each has its own."""
    queue = place.queue()
    shared = place.session()
    shared.use_queue(queue)
    sessions = [shared if place.face == "async" else place.session() for _ in range(PRODUCERS + CONSUMERS)]
    seen: list[bytes] = []
    lock, everybody = threading.Lock(), threading.Event()
    watchdog = threading.Timer(3 * PATIENCE_S, everybody.set)
    watchdog.start()
    run_all(
        [
            *[partial(put_all, sessions[number], queue, number) for number in range(PRODUCERS)],
            *[partial(take_all, session, queue, seen, lock, everybody) for session in sessions[PRODUCERS:]],
        ]
    )
    watchdog.cancel()
    wanted = [f"{number}/{index}".encode() for number in range(PRODUCERS) for index in range(MESSAGES)]
    assert Counter(seen) == Counter(wanted)
