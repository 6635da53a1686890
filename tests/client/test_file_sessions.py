"""What is particular about sessions over file://: the folder, who shares it, and what cannot be done with it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.client.aio.session import AsyncSession
from penstock.client.engine import folders
from penstock.client.errors import ClientError, Closed, ConnectionLost
from penstock.client.sync.consumer import Consumer
from penstock.client.sync.session import Session
from penstock.testing import Broker
from tests.client.any_driver import PATIENCE_S

# --- the folder -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["file://", "file:///", "file://host/path", "file://relative", "file:///a?b=c", "file:///a#b", "file:///%00"]
)
def test_a_url_that_means_no_folder_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match="file"):
        Session(url)


def test_any_path_can_be_written_as_a_url(tmp_path: Path) -> None:
    folder = tmp_path / "with space" / "ünicode ☃" / "per%cent # ? +"
    with Session(folder.as_uri()) as session:
        session.use_queue("q")
    assert (folder / "lock").exists()
    with Session(f"file://localhost{folder.as_uri().removeprefix('file://')}") as session:
        assert session.queues() == ["q"]


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with Session((tmp_path / "file").as_uri()) as session, pytest.raises(ConnectionLost, match="not a folder"):
        session.queues()
    assert (tmp_path / "file").read_text() == "hello"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with Session((tmp_path / "folder").as_uri()) as session, pytest.raises(ConnectionLost, match="right to write"):
        session.queues()


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("something else")
    with Session(tmp_path.as_uri()) as session, pytest.raises(ConnectionLost):
        session.queues()
    assert (tmp_path / "format").read_text() == "something else"


# --- sharing ----------------------------------------------------------------------------------------------


def test_sessions_of_one_process_share_the_folder_until_the_last_is_closed(tmp_path: Path) -> None:
    link = tmp_path / "link"
    folder = tmp_path / "folder"
    link.symlink_to(folder)
    first, second = Session(folder.as_uri()), Session(link.as_uri())
    first.producer_for("q").put("x")
    consumer = second.consumer_for("q")
    assert consumer.reserve() is not None
    first.close()
    assert consumer.reserve() is None
    with Broker(data_dir=tmp_path / "other"), pytest.raises(ConnectionLost):
        Session((tmp_path / "other").as_uri()).queues()
    second.close()
    # Nobody has it any more.
    with Broker(data_dir=folder) as broker:
        assert broker.queue_depth("q") == 1


def test_a_session_of_each_face_can_share_a_folder(tmp_path: Path) -> None:
    async def put_and_wait() -> str:
        async with AsyncSession(tmp_path.as_uri()) as session:
            producer = await session.producer_for("there")
            await producer.put("question")
            consumer = await session.consumer_for("back")
            message = await consumer.reserve(wait=PATIENCE_S)
            assert message is not None
            return message.text

    def answer() -> None:
        with Session(tmp_path.as_uri()) as session:
            message = session.consumer_for("there").reserve(wait=PATIENCE_S)
            assert message is not None
            session.producer_for("back").put(f"answer to {message.text}")

    thread = threading.Thread(target=answer)
    thread.start()
    assert asyncio.run(put_and_wait()) == "answer to question"
    thread.join()


def test_one_session_can_be_used_by_several_threads(tmp_path: Path) -> None:
    seen: list[str] = []
    with Session(tmp_path.as_uri()) as session:

        def put(number: int) -> None:
            producer = session.producer_for("q")
            for index in range(30):
                producer.put(f"{number}/{index}")

        def take() -> None:
            consumer = session.consumer_for("q")
            while (message := consumer.reserve(wait=1.0)) is not None:
                consumer.finalize(message)
                seen.append(message.text)

        threads = [threading.Thread(target=put, args=[number]) for number in range(2)]
        threads += [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == sorted([f"{number}/{index}" for number in range(2) for index in range(30)])


def test_a_session_that_nobody_holds_gives_its_messages_back(tmp_path: Path) -> None:
    with Session(tmp_path.as_uri()) as session:
        session.producer_for("q").put("x")

        def reserve_and_forget() -> None:
            message = Session(tmp_path.as_uri()).consumer_for("q").reserve()
            assert message is not None

        reserve_and_forget()
        gc.collect()
        message = session.consumer_for("q").reserve(wait=PATIENCE_S)
        assert message is not None
        assert message.deliveries == 2


def test_a_consumer_that_is_closed_by_another_thread_stops_waiting(tmp_path: Path) -> None:
    session = Session(tmp_path.as_uri())
    consumer = session.consumer_for("q")
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            consumer.reserve(wait=None)
        except ClientError as error:
            ended.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    session.close()
    thread.join(PATIENCE_S)
    assert ended[0] in (Closed, ConnectionLost)


# --- waiting on a loop ------------------------------------------------------------------------------------


def test_a_task_that_is_cancelled_while_it_waits_takes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncSession(tmp_path.as_uri()) as session:
            producer = await session.producer_for("q")
            consumer, other = await session.consumer_for("q"), await session.consumer_for("q")
            for number in range(20):
                waiting = asyncio.create_task(consumer.reserve(wait=None))
                # At another point of its way each time.
                for _ in range(number):
                    await asyncio.sleep(0)
                await producer.put(str(number))
                if waiting.cancel():
                    await asyncio.wait([waiting])
                    if not waiting.cancelled():
                        await consumer.finalize(waiting.result())  # type: ignore[arg-type]
                        continue
                else:
                    await consumer.finalize(await waiting)  # type: ignore[arg-type]
                    continue
                message = await other.reserve(wait=PATIENCE_S)
                assert message is not None
                assert message.text == str(number)
                await other.finalize(message)

    asyncio.run(scenario())


def test_more_tasks_can_wait_than_there_are_threads(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with AsyncSession(tmp_path.as_uri()) as session:
            consumers = [await session.consumer_for("q") for _ in range(60)]
            waiting = [asyncio.create_task(consumer.reserve(wait=PATIENCE_S)) for consumer in consumers]
            await asyncio.sleep(0)
            producer = await session.producer_for("q")
            for number in range(60):
                await producer.put(str(number))
            messages = await asyncio.gather(*waiting)
            return [message.text for message in messages if message is not None]

    assert sorted(asyncio.run(scenario())) == sorted([str(number) for number in range(60)])


# --- what cannot be done ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.history", "x.buried", "penstock.schedules", "penstock.delay.10", "amq.queue"])
def test_names_of_what_stands_beside_queues_are_refused(tmp_path: Path, name: str) -> None:
    with Session(tmp_path.as_uri()) as session:
        for call in (session.use_queue, session.producer_for, session.consumer_for):
            with pytest.raises(ClientError, match="name"):
                call(name)
        assert session.queues() == []


def test_a_queue_that_refuses_messages_says_so(tmp_path: Path) -> None:
    import pika

    with Broker(data_dir=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        connection.channel().queue_declare("small", durable=True, arguments=arguments)
        connection.close()
    with Session(tmp_path.as_uri()) as session:
        producer = session.producer_for("small")
        with pytest.raises(ClientError, match="full"):
            producer.put_many(["all", "or none"])
        producer.put("fits")
        with pytest.raises(ClientError, match="full"):
            producer.put("does not fit")
        messages = session.consumer_for("small").reserve_many(5)
        assert [message.text for message in messages] == ["fits"]


def test_a_paused_queue_hands_out_nothing_and_nobody_spins(tmp_path: Path) -> None:
    with Session(tmp_path.as_uri()) as session:
        session.producer_for("q").put("x")
        engine = folders.acquire(str(tmp_path))
        engine._vhost.queues["q"].pause()
        looks = 0
        reserve = engine.reserve

        def counted(number: int, count: int) -> object:
            nonlocal looks
            looks += 1
            return reserve(number, count)

        engine.reserve = counted  # type: ignore[method-assign, assignment]
        assert session.consumer_for("q").reserve(wait=0.5) is None
        assert looks < 10
        engine._vhost.queues["q"].resume()
        assert session.consumer_for("q").reserve() is not None
        folders.release(engine)


# --- what fails -------------------------------------------------------------------------------------------


def test_after_a_disk_that_failed_the_next_call_opens_the_folder_anew(tmp_path: Path) -> None:
    with Session(tmp_path.as_uri()) as session:
        producer = session.producer_for("q")
        producer.put("before")
        consumer: Consumer = session.consumer_for("q")
        message = consumer.reserve()
        assert message is not None
        engine = folders.acquire(str(tmp_path))
        engine._node.journal.fail(OSError(errno.EIO, "the disk is gone"))
        with pytest.raises(ConnectionLost, match="the disk is gone"):
            producer.put("lost")
        folders.release(engine)
        producer.put("after")
        # What was reserved is anybody's again.
        assert consumer.finalize_many([message]) == []
        assert [one.text for one in consumer.reserve_many(5)] == ["before", "after"]
        assert session.stats("q").consumer_count == 1
