"""Who syncs: a process or a thread, beside a loop that never rests; failures, ends, and what is left open."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.disk.files import File
from penstock.disk.os_files import OsFiles
from penstock.journal.journal import Journal
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import Syncer
from penstock.server.sync.syncers import FILES_KEPT_MAX, ProcessSyncer, ThreadSyncer

# A turn of the busy loop keeps the interpreter for so long; an answer must come within so many of them.
BURN_S = 0.001
TURNS_MAX = 20_000

MakeSyncer = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Syncer]


class PlainFile(File):
    """A real descriptor, and nothing that these tests do not need."""

    def __init__(self, path: Path) -> None:
        self.path = path.name
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def pwrite(self, pieces: Sequence[bytes], offset: int) -> int:
        return os.pwrite(self._descriptor, b"".join(pieces), offset)

    def pread(self, size: int, offset: int) -> bytes:
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def reserve(self, size: int) -> None:
        raise NotImplementedError

    def fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PipeFile(PlainFile):
    """Cannot be synced: the system says EINVAL."""

    def __init__(self) -> None:
        self.path = "pipe"
        self._descriptor, self.other = os.pipe()


def make_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "asyncio":
        return asyncio.new_event_loop()
    return pytest.importorskip("uvloop", reason="uvloop is not installed").new_event_loop()  # type: ignore[no-any-return]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = make_loop(request.param)
    yield loop
    loop.close()


@pytest.fixture(params=[ProcessSyncer, ThreadSyncer])
def syncer(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Iterator[Syncer]:
    syncer = request.param(loop, lambda: None)
    yield syncer
    syncer.close()


@pytest.fixture
def process(loop: asyncio.AbstractEventLoop) -> Iterator[ProcessSyncer]:
    syncer = ProcessSyncer(loop, lambda: None)
    yield syncer
    syncer.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PlainFile]:
    file = PlainFile(tmp_path / "file")
    yield file
    file.close()


def sync(loop: asyncio.AbstractEventLoop, syncer: Syncer, *files: File) -> OSError | None:
    """Submit, and run the loop until the answer is there."""
    answer: asyncio.Future[OSError | None] = loop.create_future()
    syncer.submit(files, answer.set_result)
    return loop.run_until_complete(asyncio.wait_for(answer, 30))


def open_descriptors(pid: int) -> int:
    folder = Path(f"/proc/{pid}/fd")
    if not folder.exists():
        pytest.skip("this system does not tell what a process has open")
    return len(list(folder.iterdir()))


def test_a_sync_is_answered_on_the_thread_that_asked(
    loop: asyncio.AbstractEventLoop, syncer: Syncer, file: File
) -> None:
    file.pwrite([b"x"], 0)
    assert sync(loop, syncer, file) is None
    assert sync(loop, syncer, file, file) is None
    assert sync(loop, syncer) is None


def test_requests_are_answered_in_their_order(loop: asyncio.AbstractEventLoop, syncer: Syncer, file: File) -> None:
    answers: list[int] = []
    for number in range(10):
        syncer.submit([file], lambda error, number=number: answers.append(number))  # type: ignore[misc]
    assert sync(loop, syncer, file) is None
    assert answers == list(range(10))


def test_whoever_submitted_is_woken_after_the_answer(loop: asyncio.AbstractEventLoop, file: File) -> None:
    for make in (ProcessSyncer, ThreadSyncer):
        events: list[str] = []
        syncer = make(loop, lambda events=events: events.append("woken"))  # type: ignore[misc]
        syncer.submit([file], lambda error, events=events: events.append("answered"))  # type: ignore[misc]
        syncer.close()
        assert events == ["answered", "woken"]


@pytest.mark.parametrize("place", range(4))
def test_every_file_of_a_request_is_synced(
    loop: asyncio.AbstractEventLoop, syncer: Syncer, tmp_path: Path, place: int
) -> None:
    """A file that cannot be synced is noticed wherever it stands among the others."""
    files = [PlainFile(tmp_path / f"file-{number}") for number in range(3)]
    pipe = PipeFile()
    files.insert(place, pipe)
    try:
        error = sync(loop, syncer, *files)
    finally:
        for file in files:
            file.close()
        os.close(pipe.other)
    assert error is not None
    assert error.errno == errno.EINVAL


def test_a_failed_sync_is_reported_with_its_error_number(
    loop: asyncio.AbstractEventLoop, syncer: Syncer, file: File
) -> None:
    pipe = PipeFile()
    try:
        error = sync(loop, syncer, pipe, file)
        assert error is not None
        assert error.errno == errno.EINVAL
        # That was the request's own failure.
        assert sync(loop, syncer, file) is None
    finally:
        pipe.close()
        os.close(pipe.other)


def test_a_file_that_is_closed_already_is_an_error(
    loop: asyncio.AbstractEventLoop, syncer: Syncer, tmp_path: Path
) -> None:
    file = PlainFile(tmp_path / "closed")
    file.close()
    error = sync(loop, syncer, file)
    assert error is not None
    assert error.errno == errno.EBADF


def test_close_waits_for_what_is_under_way(loop: asyncio.AbstractEventLoop, file: File) -> None:
    for make in (ProcessSyncer, ThreadSyncer):
        answers: list[OSError | None] = []
        syncer = make(loop, lambda: None)
        for _ in range(3):
            syncer.submit([file], answers.append)
        syncer.close()
        assert answers == [None, None, None]
        syncer.close()


@pytest.mark.parametrize("make", [ProcessSyncer, ThreadSyncer])
def test_a_loop_that_never_rests_does_not_keep_syncs_from_being_done(
    make: MakeSyncer, loop: asyncio.AbstractEventLoop, file: PlainFile
) -> None:
    commits, turns = 0, 0
    turns_at_submit = 0
    most_turns = 0
    finished = loop.create_future()
    syncer = make(loop, lambda: None)

    def submit() -> None:
        nonlocal turns_at_submit
        turns_at_submit = turns
        file.pwrite([b"x" * 100], commits * 100)
        syncer.submit([file], answered)

    def answered(error: OSError | None) -> None:
        nonlocal commits, most_turns
        assert error is None
        commits += 1
        most_turns = max(most_turns, turns - turns_at_submit)
        if commits == 20:
            finished.set_result(None)
        else:
            submit()

    def turn() -> None:
        nonlocal turns
        turns += 1
        until = time.perf_counter() + BURN_S
        while time.perf_counter() < until:
            pass
        if not finished.done():
            assert turns < TURNS_MAX, f"{commits} commits in {turns} turns"
            loop.call_soon(turn)

    submit()
    loop.call_soon(turn)
    loop.run_until_complete(finished)
    syncer.close()
    assert commits == 20


def test_a_killed_process_is_a_failed_sync_for_ever(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, file: File
) -> None:
    assert sync(loop, process, file) is None
    os.kill(process.pid, signal.SIGKILL)
    for _ in range(3):
        error = sync(loop, process, file)
        assert error is not None
        assert error.errno == errno.EIO


def test_a_process_that_is_killed_at_work_fails_what_is_under_way(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, file: File
) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    answers: list[OSError | None] = []
    process.submit([file], answers.append)
    process.submit([file], answers.append)
    os.kill(process.pid, signal.SIGKILL)
    error = sync(loop, process, file)
    assert error is not None
    assert [type(answer) for answer in answers] == [OSError, OSError]


def test_a_caller_that_fails_when_the_process_is_gone_keeps_no_other_one_from_its_answer(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, file: File
) -> None:
    def fail(error: OSError | None) -> None:
        raise RuntimeError("a bug")

    reported: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    os.kill(process.pid, signal.SIGSTOP)
    answers: list[OSError | None] = []
    process.submit([file], fail)
    process.submit([file], answers.append)
    os.kill(process.pid, signal.SIGKILL)
    sync(loop, process, file)
    assert [type(answer) for answer in answers] == [OSError]
    assert [str(context["exception"]) for context in reported] == ["a bug"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_process_does_not_end_by_the_signals_that_end_a_broker(
    number: signal.Signals, loop: asyncio.AbstractEventLoop, process: ProcessSyncer, file: File
) -> None:
    assert sync(loop, process, file) is None
    os.kill(process.pid, number)
    assert sync(loop, process, file) is None


def test_the_process_ends_with_its_socket(loop: asyncio.AbstractEventLoop, file: File) -> None:
    process = ProcessSyncer(loop, lambda: None)
    assert sync(loop, process, file) is None
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_files_that_come_and_go_leave_no_descriptor_in_either_process(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, file: File, tmp_path: Path
) -> None:
    assert sync(loop, process, file) is None
    here, there = open_descriptors(os.getpid()), open_descriptors(process.pid)
    for number in range(3 * FILES_KEPT_MAX):
        segment = PlainFile(tmp_path / str(number))
        assert sync(loop, process, file, segment) is None
        segment.close()
    assert sync(loop, process, file) is None
    assert (open_descriptors(os.getpid()), open_descriptors(process.pid)) == (here, there)


def test_a_journal_that_begins_many_segments_leaves_no_descriptor_in_either_process(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, tmp_path: Path
) -> None:
    options = JournalOptions(segment_bytes=4096, batch_bytes_max=1024)
    journal = Journal(OsFiles(tmp_path), "journal", process, SystemClock(), options, lambda: 7)
    journal.start(1, 0)

    def commit() -> None:
        durable = loop.create_future()
        journal.define(b"x" * 1000)
        journal.when_durable(durable.set_result)
        journal.commit()
        assert loop.run_until_complete(asyncio.wait_for(durable, 30))

    commit()
    here, there = open_descriptors(os.getpid()), open_descriptors(process.pid)
    for _ in range(100):
        commit()
    assert len(journal.segments.numbers()) > 20
    # The one before is closed when the next request comes.
    assert open_descriptors(os.getpid()) <= here
    assert open_descriptors(process.pid) <= there + 1
    journal.close()


def test_files_that_stay_open_are_kept_up_to_a_limit(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, file: File, tmp_path: Path
) -> None:
    assert sync(loop, process, file) is None
    there = open_descriptors(process.pid)
    many = [PlainFile(tmp_path / str(number)) for number in range(3 * FILES_KEPT_MAX)]
    for one in many:
        assert sync(loop, process, one, file) is None
    assert open_descriptors(process.pid) <= there + FILES_KEPT_MAX + 2
    # Those that were dropped are handed over again.
    assert sync(loop, process, *many) is None
    for one in many:
        one.close()


def test_more_files_than_are_kept_can_be_synced_at_once(
    loop: asyncio.AbstractEventLoop, process: ProcessSyncer, tmp_path: Path
) -> None:
    many = [PlainFile(tmp_path / str(number)) for number in range(4 * FILES_KEPT_MAX)]
    assert sync(loop, process, *many) is None
    assert sync(loop, process, *many) is None
    for one in many:
        one.close()
