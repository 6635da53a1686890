"""Large bodies on disk are read beside the loop: who wants them waits, everybody else is served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from durable_bench import DurableBench
from pamqp import body, commands
from wire_bench import Client

from penstock.disk.checksum import crc32
from penstock.disk.os_files import OsFiles
from penstock.server.sync.thread_reader import ThreadReader

LARGE = bytes(range(256)) * 3
SECOND = LARGE[::-1]
PRIORITIES: dict[str, Any] = {"x-max-priority": 3}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DurableBench]:
    bench = DurableBench(tmp_path)
    node = bench.server.broker.node
    assert node is not None
    node.options.embed_below = 100
    node.options.message_store.own_file_bytes = 300
    node.options.message_store.slice_bytes = 200
    bench.syncer.is_open = True
    yield bench
    bench.stop()


def filled(bench: DurableBench, *texts: bytes, **arguments: Any) -> Client:
    """A client, and messages of a durable queue that have all left memory."""
    client = bench.client()
    client.call(commands.Queue.Declare(0, "q", durable=True, arguments=arguments))
    client.publish("", "q", *texts, delivery_mode=2)
    bench.loop.run()
    bench.server.broker.node.journal.commit(urgent=True)  # type: ignore[union-attr]
    bench.loop.run()
    backing = bench.vhost.queues["q"].backing
    backing.set_queue_mode(True)
    backing.resume()
    return client


def bodies(frames: list[Any]) -> list[bytes]:
    return [frame.value for frame in frames if isinstance(frame, body.ContentBody)]


@pytest.mark.parametrize("arguments", [{}, PRIORITIES], ids=["a plain queue", "a queue with priorities"])
def test_a_get_of_a_large_body_waits_for_it_while_others_are_served(
    bench: DurableBench, arguments: dict[str, Any]
) -> None:
    client = filled(bench, LARGE, b"small", **arguments)
    assert client.call(commands.Basic.Get(0, "q", False)) == []
    assert len(bench.reader.held) == 1
    # What comes behind it on the connection waits; other connections do not.
    assert client.call(commands.Basic.Get(0, "q", False)) == []
    other = bench.client()
    assert other.call(commands.Queue.Declare(0, "q", passive=True))[0].message_count == 2
    bench.reader.answer()
    frames = client.read()
    assert bodies(frames) == [LARGE, b"small"]
    assert [frame.delivery_tag for frame in frames if isinstance(frame, commands.Basic.GetOk)] == [1, 2]


def test_a_consumer_is_told_when_its_large_body_was_read_and_those_behind_it_follow(bench: DurableBench) -> None:
    client = filled(bench, LARGE, b"small", SECOND)
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert bodies(client.read()) == []
    bench.reader.answer()
    assert bodies(client.read()) == [LARGE, b"small"]
    bench.reader.answer()
    assert bodies(client.read()) == [SECOND]
    assert not bench.reader.held


def test_two_consumers_that_wait_for_one_large_body_get_one_message_each(bench: DurableBench) -> None:
    client = filled(bench, LARGE, b"small")
    others = [bench.client(), bench.client()]
    for other in others:
        other.call(commands.Basic.Qos(0, 1))
        other.send(commands.Basic.Consume(0, "q", "t"))
        assert bodies(other.read()) == []
    assert len(bench.reader.held) == 1
    bench.reader.answer()
    assert sorted(len(text) for other in others for text in bodies(other.read())) == [5, len(LARGE)]
    assert client.call(commands.Queue.Declare(0, "q", passive=True))[0].message_count == 0


def test_a_body_that_could_not_be_read_beside_the_loop_is_read_on_the_spot(bench: DurableBench) -> None:
    client = filled(bench, LARGE)
    assert client.call(commands.Basic.Get(0, "q", True)) == []
    bench.reader.answer(spoilt=True)
    assert bodies(client.read()) == [LARGE]


def test_a_get_whose_queue_is_deleted_meanwhile_is_answered_empty(bench: DurableBench) -> None:
    client = filled(bench, LARGE)
    assert client.call(commands.Basic.Get(0, "q", True)) == []
    assert bench.client().call(commands.Queue.Delete(0, "q"))[0].message_count == 1
    assert isinstance(client.read()[0], commands.Basic.GetEmpty)
    bench.reader.answer()
    assert client.read() == []


def test_a_get_whose_message_is_purged_meanwhile_gets_the_next_one(bench: DurableBench) -> None:
    client = filled(bench, LARGE)
    assert client.call(commands.Basic.Get(0, "q", True)) == []
    other = bench.client()
    assert other.call(commands.Queue.Purge(0, "q"))[0].message_count == 1
    other.publish("", "q", b"next", delivery_mode=2)
    bench.loop.run()
    bench.reader.answer()
    assert bodies(client.read()) == [b"next"]


def test_a_client_that_leaves_while_its_body_is_read_costs_nobody_anything(bench: DurableBench) -> None:
    client = filled(bench, LARGE)
    assert client.call(commands.Basic.Get(0, "q", False)) == []
    client.transport.close()
    bench.loop.run()
    backing = bench.vhost.queues["q"].backing
    before = backing.ram_bytes()
    bench.reader.answer()
    # It is counted as long as it is kept, and goes when nobody takes it.
    assert backing.ram_bytes() == before + len(LARGE) + 1
    backing.resume()
    backing.resume()
    assert backing.ram_bytes() == before
    other = bench.client()
    assert other.call(commands.Basic.Get(0, "q", False)) == []
    bench.reader.answer()
    assert bodies(other.read()) == [LARGE]
    assert bench.server.internal_errors == 0


def test_a_disk_that_does_not_answer_ends_the_get_with_an_error(bench: DurableBench) -> None:
    client = filled(bench, LARGE)
    assert client.call(commands.Basic.Get(0, "q", True)) == []
    bench.loop.pass_s(61.0)
    closed = client.read()[0]
    assert isinstance(closed, commands.Connection.Close)
    assert (closed.reply_code, closed.reply_text) == (
        541,
        "INTERNAL_ERROR - the broker could not read a message from its disk (no answer within 60 s)",
    )


DEAD: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def taken(bench: DurableBench, client: Client, count: int) -> None:
    """The client gets messages of q; large ones are read."""
    client.call(commands.Basic.Qos(0, count))
    client.send(commands.Basic.Consume(0, "q", "t"))
    client.read()
    while bench.reader.held:
        bench.reader.answer()
        client.read()
    assert bench.vhost.queues["q"].backing.depth() - len(bench.vhost.queues["q"].backing) == count
    client.call(commands.Basic.Cancel("t"))


def dead_letters(bench: DurableBench) -> list[bytes]:
    client = bench.client()
    found = []
    while not isinstance((frames := client.call(commands.Basic.Get(0, "dead", True)))[0], commands.Basic.GetEmpty):
        found += bodies(frames)
    return found


def dying(bench: DurableBench, *texts: bytes, **arguments: Any) -> Client:
    bench.client().call(commands.Queue.Declare(0, "dead", durable=True))
    return filled(bench, *texts, **DEAD, **arguments)


@pytest.mark.parametrize("arguments", [{}, PRIORITIES], ids=["a plain queue", "a queue with priorities"])
def test_dead_letters_wait_for_their_large_bodies_and_come_in_order(
    bench: DurableBench, arguments: dict[str, Any]
) -> None:
    client = dying(bench, b"first", LARGE, b"small", SECOND, b"last", **arguments)
    taken(bench, client, 5)
    client.send(commands.Basic.Nack(4, True, False))
    client.send(commands.Basic.Nack(5, False, False))
    bench.loop.run()
    dead = bench.vhost.queues["dead"]
    assert (len(dead), len(bench.reader.held)) == (1, 1)
    # Others are served meanwhile.
    assert bench.client().call(commands.Queue.Declare(0, "q", passive=True))[0].message_count == 0
    bench.reader.answer()
    bench.loop.run()
    assert (len(dead), len(bench.reader.held)) == (3, 1)
    bench.reader.answer(spoilt=True)
    bench.loop.run()
    assert bench.vhost.queues["q"].backing.depth() == 0
    assert dead_letters(bench) == [b"first", LARGE, b"small", SECOND, b"last"]
    assert bench.server.internal_errors == 0


def test_a_queue_that_is_deleted_meanwhile_leaves_its_dead_letters(bench: DurableBench) -> None:
    client = dying(bench, LARGE, b"small")
    taken(bench, client, 2)
    client.send(commands.Basic.Nack(0, True, False))
    bench.loop.run()
    assert len(bench.reader.held) == 1
    assert isinstance(client.call(commands.Queue.Delete(0, "q"))[0], commands.Queue.DeleteOk)
    assert dead_letters(bench) == [LARGE, b"small"]
    bench.reader.answer()
    bench.loop.run()
    assert bench.server.internal_errors == 0


def test_a_large_body_that_expires_or_is_too_much_is_not_read_on_the_loop(bench: DurableBench) -> None:
    client = dying(bench, LARGE, b"small", SECOND, **{"x-message-ttl": 60_000})
    queue = bench.vhost.queues["q"]
    queue.expiry.expire_due(queue.wall_ms() + 60_001)
    bench.loop.run()
    dead = bench.vhost.queues["dead"]
    assert (len(queue), len(dead), len(bench.reader.held)) == (0, 0, 1)
    bench.reader.answer()
    bench.loop.run()
    assert len(dead) == 2
    bench.reader.answer()
    bench.loop.run()
    assert dead_letters(bench) == [LARGE, b"small", SECOND]
    assert client.call(commands.Queue.Declare(0, "q", passive=True))[0].message_count == 0


def test_a_large_body_that_makes_room_is_not_read_on_the_loop(bench: DurableBench) -> None:
    client = dying(bench, LARGE, b"small", **{"x-max-length": 2})
    client.publish("", "q", b"next", b"last", delivery_mode=2)
    bench.loop.run()
    assert (len(bench.vhost.queues["q"]), len(bench.reader.held)) == (2, 1)
    bench.reader.answer()
    bench.loop.run()
    assert dead_letters(bench) == [LARGE, b"small"]


def browsing(bench: DurableBench) -> Client:
    client = bench.client()
    client.send(commands.Basic.Consume(0, "q", "b", arguments={"x-browse": True}))
    return client


@pytest.mark.parametrize("arguments", [{}, PRIORITIES], ids=["a plain queue", "a queue with priorities"])
def test_browsers_wait_for_large_bodies_in_turn_and_see_all_of_them(
    bench: DurableBench, arguments: dict[str, Any]
) -> None:
    client = filled(bench, b"first", LARGE, b"small", SECOND, **arguments)
    browsers = [browsing(bench), browsing(bench)]
    found: list[list[bytes]] = [[], []]
    readings = 0
    for _ in range(20):
        for browser, seen in zip(browsers, found, strict=True):
            seen += bodies(browser.read())
        assert len(bench.reader.held) <= 1
        if bench.reader.held:
            readings += 1
            bench.reader.answer()
    assert found == [[b"first", LARGE, b"small", SECOND]] * 2
    assert readings == 4
    assert client.call(commands.Queue.Declare(0, "q", passive=True))[0].message_count == 4


def test_a_browser_that_leaves_while_its_body_is_read_does_not_hold_up_the_others(bench: DurableBench) -> None:
    filled(bench, LARGE, SECOND)
    gone = browsing(bench)
    gone.read()
    bench.reader.answer()
    gone.transport.close()
    bench.loop.run()
    other = browsing(bench)
    backing = bench.vhost.queues["q"].backing
    found: list[bytes] = []
    for _ in range(10):
        found += bodies(other.read())
        backing.resume()
        if bench.reader.held:
            bench.reader.answer()
    assert found == [LARGE, SECOND]


def test_the_reading_thread_reads_checks_and_closes_files_and_leaves_the_rest_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc" + LARGE)
    files = OsFiles(tmp_path)
    loop = asyncio.new_event_loop()
    answers: list[tuple[bytes | None, int]] = []
    told: list[int] = []
    reader = ThreadReader(loop, lambda: told.append(len(answers)))
    opened = [files.open("f"), files.open("f")]
    # A file that is closed cannot be read.
    opened[1].close()
    try:
        for file in opened:
            reader.submit(file, len(LARGE), 3, 7, lambda found, crc: answers.append((found, crc)))
        deadline = loop.time() + 30.0
        while len(answers) < 2 and loop.time() < deadline:
            loop.run_until_complete(asyncio.sleep(0.001))
        assert answers == [(LARGE, crc32(LARGE, 7)), (None, 7)]
        assert told == [1, 2]
        assert [file.fileno() for file in opened] == [-1, -1]
    finally:
        reader.close()
        loop.close()
    assert "penstock-read" not in [thread.name for thread in threading.enumerate()]
