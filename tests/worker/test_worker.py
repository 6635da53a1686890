"""The worker on each kind of place: what it takes, runs, refuses and settles."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from penstock.client.message import Message
from penstock.client.sync.session import Session
from penstock.worker.jobs.backoff import Backoff
from penstock.worker.report import JobReport
from tests.worker.running import Recorder, make_worker, meanwhile, open_gate, put, wait_for_lines, work

# Python warns about forks of processes with threads; pytest's have some, the command has none.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork; the worker runs jobs inline there"),
]

SHOP = "tests.worker.shop"


def put_raw(session: Session, payload: bytes | dict[str, object], queue: str = "default") -> None:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    with session.producer_for(queue) as producer:
        producer.put(body)


def buried(session: Session, queue: str = "default") -> Message:
    """The one buried message, reserved."""
    consumer = session.consumer_for(queue)
    assert consumer.kick(10) == 1
    message = consumer.reserve(wait=5)
    assert message is not None
    return message


# --- what is taken ------------------------------------------------------------------------------------


def test_the_first_queue_with_messages_is_drained_before_the_next(session: Session) -> None:
    for queue in ("low", "high", "middle"):
        for number in range(2):
            put(session, queue, "echo", f"{queue} {number}")
    recorder = work(session, "high", "middle", "low")
    assert [report.queue for report in recorder.reports] == ["high", "high", "middle", "middle", "low", "low"]


def test_a_message_that_comes_to_an_earlier_queue_is_next(session: Session) -> None:
    for _ in range(2):
        put(session, "low", "echo", 1)

    def put_first(report: JobReport) -> None:
        if len(recorder.reports) == 1:
            put(session, "high", "echo", 2)

    recorder = Recorder(put_first)
    work(session, "high", "low", recorder=recorder)
    assert [report.queue for report in recorder.reports] == ["low", "high", "low"]


def test_a_worker_stops_after_so_many_messages(session: Session) -> None:
    for number in range(3):
        put(session, "default", "echo", number)
    recorder = work(session, jobs_max=2, is_burst=False)
    assert recorder.outcomes == ["done", "done"]
    assert session.stats("default").ready_count == 1


def test_jobs_run_side_by_side_up_to_the_concurrency(session: Session, tmp_path: Path, gate: str) -> None:
    told = tmp_path / "told"
    for _ in range(3):
        put(session, "default", "hold", str(told), gate)

    def watch() -> None:
        assert len(wait_for_lines(told, 2)) == 2
        # The third begins when one of the others has ended.
        open_gate(gate)
        assert len(wait_for_lines(told, 3)) == 3
        open_gate(gate)

    with meanwhile(watch):
        recorder = work(session, concurrency=2)
    assert recorder.outcomes == ["done"] * 3


# --- formats and refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "note"),
    [
        ({"job": f"{SHOP}:add", "args": [1], "kwargs": {"b": 2}}, "3"),
        ({"job": f"{SHOP}.add", "params": [1, 2]}, "3"),
        ({"class": "Mailer", "args": ["you"]}, '"mailed you"'),
        ({"class": "Counter", "args": [5]}, "15"),
        ({"job": f"{SHOP}:later", "args": ["in time"]}, '"in time"'),
    ],
)
def test_each_format_is_run(session: Session, payload: dict[str, object], note: str) -> None:
    put_raw(session, payload)
    recorder = work(session)
    assert [(report.outcome, report.note) for report in recorder.reports] == [("done", note)]
    assert session.stats("default").ready_count == 0
    if session.has_history:
        assert [message.finalized_note for message in session.history("default")] == [note]


@pytest.mark.parametrize("name", ["os:system", "os.system", f"{SHOP}:system", "posix:system", f"{SHOP}:_private"])
@pytest.mark.parametrize("shape", ["job", "class"])
def test_a_name_that_was_not_allowed_is_never_run(session: Session, tmp_path: Path, name: str, shape: str) -> None:
    mark = tmp_path / "was-run"
    put_raw(session, {shape: name, "args": [f"touch {mark}"]})
    recorder = work(session)
    assert recorder.outcomes == ["refused"]
    assert recorder.begun == []
    assert not mark.exists()
    message = buried(session)
    assert message.note is not None
    assert "is not allowed here" in message.note


def test_arguments_that_do_not_fit_are_put_aside_at_once(session: Session) -> None:
    put(session, "default", "add", 1, 2, 3)
    assert work(session).outcomes == ["refused"]
    assert "cannot be called so" in (buried(session).note or "")


@pytest.mark.parametrize("payload", [b"\xff", b"not json", b"[]", b'{"job": 5}', b'{"job": "x", "class": "y"}'])
def test_a_payload_that_is_no_job_is_finalized_with_the_reason(session: Session, payload: bytes) -> None:
    put_raw(session, payload)
    put(session, "default", "echo", "next")
    recorder = work(session)
    assert recorder.outcomes == ["invalid", "done"]
    stats = session.stats("default")
    assert (stats.ready_count, stats.buried_count) == (0, 0)
    if session.has_history:
        notes = [message.finalized_note or "" for message in session.history("default")]
        assert any(note.startswith("invalid job: ") for note in notes)


# --- failures -----------------------------------------------------------------------------------------


def test_a_job_that_fails_is_tried_again_and_buried_in_the_end(session: Session, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    put(session, "failing", "fail", str(tries))
    recorder = work(session, "failing")
    assert recorder.outcomes == ["retry", "retry", "buried"]
    assert [report.attempt for report in recorder.reports] == [1, 2, 3]
    assert tries.read_text().splitlines() == ["tried"] * 3
    note = buried(session, "failing").note or ""
    assert note.startswith("ValueError: this never works")
    assert "in fail" in note
    assert "run_call" not in note


def test_a_failed_job_waits_before_it_is_tried_again(session: Session) -> None:
    put(session, "default", "leave", 1)
    recorder = work(session, backoff=Backoff(first_s=3600.0, jitter=0.0))
    assert [(report.outcome, report.retry_in_s) for report in recorder.reports] == [("retry", 3600.0)]
    assert session.stats("default").ready_count == 0


@pytest.mark.parametrize("jobs_per_child", [1, 0])
def test_a_killed_child_is_a_failure_and_the_job_is_tried_again(
    session: Session, tmp_path: Path, jobs_per_child: int
) -> None:
    put(session, "default", "die", str(tmp_path / "died"), signal.SIGKILL)
    recorder = work(session, jobs_per_child=jobs_per_child, backoff=Backoff(first_s=0.0))
    assert recorder.outcomes == ["retry", "done"]
    assert "killed by SIGKILL" in recorder.reports[0].note
    assert recorder.reports[1].note == '"survived"'


def test_a_job_that_takes_too_long_is_killed(session: Session) -> None:
    put(session, "default", "hang")
    recorder = work(session)
    assert recorder.outcomes == ["buried"]
    assert recorder.reports[0].note == "the job took longer than its timeout of 0.2 s and was killed"


def test_the_workers_timeout_is_for_jobs_without_their_own(session: Session, tmp_path: Path, gate: str) -> None:
    put(session, "default", "hold", str(tmp_path / "told"), gate)
    recorder = work(session, timeout_s=0.1, max_attempts=1)
    assert recorder.outcomes == ["buried"]


def test_a_job_whose_workers_never_came_back_is_buried_unrun(session: Session, tmp_path: Path) -> None:
    put(session, "failing", "fail", str(tmp_path / "tries"))
    consumer = session.consumer_for("failing")
    for _ in range(3):
        message = consumer.reserve(wait=5)
        assert message is not None
        consumer.requeue(message, note="seen")
    consumer.close()
    recorder = work(session, "failing")
    assert recorder.outcomes == ["buried"]
    assert recorder.reports[0].note.startswith("handed out 3 times")
    assert not (tmp_path / "tries").exists()


def test_a_reservation_that_is_gone_is_reported_and_nothing_is_settled(session: Session) -> None:
    message_id = put(session, "default", "echo", 1)

    class Thief(Recorder):
        def started(self, queue: str, message_id: str, job: str, attempt: int) -> None:
            (consumer,) = worker._consumers
            consumer.finalize(Message(message_id, queue, b"", "reserved"), "stolen")

    recorder = Thief()
    worker = make_worker(session, recorder=recorder)
    worker.run()
    assert [(report.id, report.outcome) for report in recorder.reports] == [(message_id, "lost")]
    assert "would have been 'done'" in recorder.reports[0].note


def test_a_job_whose_reservation_was_lost_while_it_ran_is_killed(session: Session, tmp_path: Path, gate: str) -> None:
    put(session, "default", "hold", str(tmp_path / "told"), gate)

    class Thief(Recorder):
        def started(self, queue: str, message_id: str, job: str, attempt: int) -> None:
            (consumer,) = worker._consumers
            consumer.finalize(Message(message_id, queue, b"", "reserved"), "stolen")

    recorder = Thief()
    # Renewed every third of a second.
    worker = make_worker(session, recorder=recorder, lease_s=1.0)
    worker.run()
    assert recorder.outcomes == ["lost"]
    assert "the job was killed" in recorder.reports[0].note


def test_a_reservation_is_renewed_while_its_job_runs(session: Session, tmp_path: Path, gate: str) -> None:
    told = tmp_path / "told"
    put(session, "default", "hold", str(told), gate)
    renewed: list[str] = []

    def release_after_renewals() -> None:
        wait_for_lines(told)
        worker_consumer = worker._consumers[0]
        touch = worker_consumer.touch

        def counted(message: Message, lease: float | None = None) -> None:
            touch(message, lease)
            renewed.append(message.id)
            # The lease is over by then, three times.
            if len(renewed) == 9:
                open_gate(gate)

        worker_consumer.touch = counted  # type: ignore[method-assign]

    recorder = Recorder()
    worker = make_worker(session, recorder=recorder, lease_s=0.3)
    with meanwhile(release_after_renewals):
        worker.run()
    assert len(renewed) >= 9
    assert [(report.outcome, report.attempt) for report in recorder.reports] == [("done", 1)]


# --- stopping -----------------------------------------------------------------------------------------


def test_a_stopped_worker_lets_its_job_end_and_takes_no_other(session: Session, tmp_path: Path, gate: str) -> None:
    told = tmp_path / "told"
    for _ in range(2):
        put(session, "default", "hold", str(told), gate)
    recorder = Recorder()
    worker = make_worker(session, recorder=recorder, is_burst=False)

    def stop() -> None:
        wait_for_lines(told)
        worker.stop()
        open_gate(gate)

    with meanwhile(stop):
        worker.run()
    assert [report.note for report in recorder.reports] == ['"released"']
    assert session.stats("default").ready_count == 1


@pytest.mark.parametrize(("grace_s", "stops"), [(0.0, 1), (3600.0, 2)])
def test_jobs_that_outlast_the_grace_or_a_second_stop_are_given_back(
    session: Session, tmp_path: Path, gate: str, grace_s: float, stops: int
) -> None:
    told = tmp_path / "told"
    put(session, "default", "hold_once", str(told), gate)
    recorder = Recorder()
    worker = make_worker(session, recorder=recorder, is_burst=False, grace_s=grace_s)

    def stop() -> None:
        wait_for_lines(told)
        for _ in range(stops):
            worker.stop()

    with meanwhile(stop):
        worker.run()
    assert recorder.outcomes == ["requeued"]
    # It is there at once for the next worker, and a stop is no reason to bury it: this was its only attempt.
    assert [report.note for report in work(session, max_attempts=1).reports] == ['"second time"']


def test_a_stopped_worker_that_has_nothing_to_do_ends(session: Session) -> None:
    worker = make_worker(session, is_burst=False)
    worker.stop()
    worker.run()
    assert worker.figures.finished == 0


def test_many_messages_that_are_no_jobs_do_not_keep_the_worker_from_its_running_one(session: Session) -> None:
    """The job's timeout comes while there are still messages to refuse."""
    put(session, "default", "hang")

    def refill(report: JobReport) -> None:
        if report.outcome == "invalid" and "buried" not in recorder.outcomes:
            put_raw(session, b"no job")

    put_raw(session, b"no job")
    recorder = Recorder(refill)
    work(session, recorder=recorder, concurrency=2)
    assert sorted(set(recorder.outcomes)) == ["buried", "invalid"]
