"""Functions with @job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.client.errors import Closed
from penstock.client.sync.session import Session
from penstock.worker import Backoff, Job, job
from penstock.worker.cron import CronError
from tests.worker import shop


@pytest.fixture
def folder_url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'queues'}"


def test_calling_a_job_just_calls_it() -> None:
    assert shop.add(1, b=2) == 3
    assert shop.add.__name__ == "add"


def test_a_job_is_put_onto_its_queue(folder_url: str) -> None:
    with Session(folder_url) as session:
        message_id = shop.add.enqueue(session, 1, b=2)
        message = session.consumer_for("sums").reserve()
        assert message is not None
        assert message.id == message_id
        assert message.json() == {"job": "tests.worker.shop:add", "args": [1], "kwargs": {"b": 2}}


def test_without_a_queue_it_is_the_default_one(folder_url: str) -> None:
    with Session(folder_url) as session:
        shop.hang.enqueue(session)
        assert session.stats("default").ready_count == 1


def test_a_job_can_be_put_for_later(folder_url: str) -> None:
    with Session(folder_url) as session:
        shop.add.enqueue_in(session, 3600, 1)
        shop.add.enqueue_at(session, datetime.now(UTC) + timedelta(hours=1), 1)
        stats = session.stats("sums")
        assert (stats.ready_count, stats.scheduled_count) == (0, 2)


def test_a_job_makes_one_producer_for_many_puts(folder_url: str) -> None:
    with Session(folder_url) as session:
        for number in range(3):
            shop.add.enqueue(session, number)
        assert session.stats("sums").producer_count == 1
    with pytest.raises(Closed):
        shop.add.enqueue(session, 4)


def test_the_payload_can_be_put_in_any_other_way() -> None:
    assert json.loads(shop.add.payload(5)) == {"job": "tests.worker.shop:add", "args": [5]}


def test_a_job_inside_a_function_needs_a_name() -> None:
    def inner() -> None:
        raise AssertionError("nobody calls this")

    with pytest.raises(ValueError, match="no worker finds it"):
        job(inner)
    assert job(name="tests:inner")(inner).name == "tests:inner"


def test_a_backoff_may_be_a_number() -> None:
    def inner() -> None:
        raise AssertionError("nobody calls this")

    made: Job[[], None] = job(name="x", backoff=2.5)(inner)
    assert made.options.backoff == Backoff(first_s=2.5)


def test_options_that_make_no_sense_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        job(max_attempts=0)
    with pytest.raises(ValueError, match="timeout"):
        job(timeout=0)
    with pytest.raises(ValueError, match="first_s"):
        job(backoff=-1)
    with pytest.raises(CronError):
        job(cron="every day")
