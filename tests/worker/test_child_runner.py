"""Jobs in children: what they cannot do to the worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.worker.jobs.formats import Call
from penstock.worker.jobs.operator_code import load_allow_list
from penstock.worker.runners.child_runner import ChildRunner
from penstock.worker.runners.inline_runner import InlineRunner
from penstock.worker.runners.runner import Ended, Runner, RunnerLost
from tests.interop.deadline import wait_until
from tests.worker import shop

# Python warns about forks of processes with threads; pytest's have some, the command has none.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork; the worker runs jobs inline there"),
]

SHOP = "tests.worker.shop"
MakeRunner = Callable[..., ChildRunner]


@pytest.fixture
def runner_of() -> Iterator[MakeRunner]:
    with ExitStack() as open_runners:

        def make(concurrency: int = 1, jobs_per_child: int = 1) -> ChildRunner:
            runner = ChildRunner(load_allow_list(allowed=[f"{SHOP}:*"]), concurrency, jobs_per_child)
            open_runners.callback(runner.close)
            return runner

        yield make


def start(runner: Runner, key: int, name: str, *args: Any) -> None:
    runner.start(key, f"{SHOP}:{name}", Call(f"{SHOP}:{name}", list(args)))


def wait_for(runner: Runner, count: int = 1) -> dict[int, Ended]:
    ended: dict[int, Ended] = {}

    def has_all() -> bool:
        ended.update({end.key: end for end in runner.wait(0.05)})
        return len(ended) == count

    wait_until(has_all, f"{count} jobs have ended", step=lambda: None)
    return ended


def run_one(runner: Runner, name: str, *args: Any) -> Ended:
    start(runner, 1, name, *args)
    return wait_for(runner)[1]


@pytest.fixture
def gate(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "gate")
    return str(tmp_path / "gate")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_job_runs_in_a_process_of_its_own(runner_of: MakeRunner) -> None:
    runner = runner_of()
    pids = {run_one(runner, "own_pid").note for _ in range(2)}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids


def test_a_pool_keeps_its_processes(runner_of: MakeRunner) -> None:
    runner = runner_of(jobs_per_child=0)
    assert len({run_one(runner, "own_pid").note for _ in range(5)}) == 1


def test_a_process_of_a_pool_is_replaced_after_its_jobs(runner_of: MakeRunner) -> None:
    runner = runner_of(jobs_per_child=2)
    pids = [run_one(runner, "own_pid").note for _ in range(5)]
    assert pids[0] == pids[1] != pids[2]
    assert pids[2] == pids[3] != pids[4]


@pytest.mark.parametrize("jobs_per_child", [1, 0])
def test_a_killed_child_is_a_failure_and_the_next_job_runs(
    runner_of: MakeRunner, tmp_path: Path, jobs_per_child: int
) -> None:
    runner = runner_of(jobs_per_child=jobs_per_child)
    ended = run_one(runner, "die", str(tmp_path / "died"), signal.SIGKILL)
    assert not ended.is_done
    assert "killed by SIGKILL (9)" in ended.note
    assert run_one(runner, "echo", "next").note == '"next"'


def test_a_child_that_dies_while_it_is_idle_costs_no_job_anything(runner_of: MakeRunner) -> None:
    runner = runner_of(jobs_per_child=0)
    pid = int(run_one(runner, "own_pid").note)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: runner.wait(0.05) == [] and pid not in runner.pids(), "the child is known to be dead")
    assert run_one(runner, "echo", 1).is_done


def test_an_exit_code_is_told(runner_of: MakeRunner) -> None:
    assert "exit code 3" in run_one(runner_of(), "exit_with", 3).note


def test_sys_exit_is_an_exception_like_any_other(runner_of: MakeRunner) -> None:
    runner = runner_of(jobs_per_child=0)
    pid = run_one(runner, "own_pid").note
    ended = run_one(runner, "leave", 0)
    assert not ended.is_done
    assert ended.note.startswith("SystemExit: 0")
    assert run_one(runner, "own_pid").note == pid


def test_a_job_can_be_killed_with_the_programs_that_it_started(
    runner_of: MakeRunner, tmp_path: Path, gate: str
) -> None:
    runner = runner_of()
    told = tmp_path / "told"
    start(runner, 7, "hold", str(told), gate)
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the job runs")
    runner.kill(7)
    ended = wait_for(runner)[7]
    assert not ended.is_done
    assert "SIGKILL" in ended.note
    assert not is_alive(int(told.read_text()))


def test_jobs_run_side_by_side(runner_of: MakeRunner, tmp_path: Path, gate: str) -> None:
    runner = runner_of(concurrency=2)
    told = tmp_path / "told"
    for key in (1, 2):
        start(runner, key, "hold", str(told), gate)
    # Both have begun, and neither has ended: nobody has opened the gate.
    wait_until(lambda: told.exists() and told.read_text().count("\n") == 2, "both run")
    assert runner.wait(0.0) == []
    os.close(os.open(gate, os.O_WRONLY))
    assert [end.note for end in wait_for(runner, 2).values()] == ['"released"', '"released"']


def test_a_coroutine_function_is_run_to_its_end(runner_of: MakeRunner) -> None:
    assert run_one(runner_of(), "later", "at last").note == '"at last"'


def test_a_payload_larger_than_any_pipe_gets_through(runner_of: MakeRunner) -> None:
    ended = run_one(runner_of(), "echo", "x" * 3_000_000)
    assert ended.is_done
    assert len(ended.note) == 4000


def test_a_job_that_writes_to_its_worker_has_failed(runner_of: MakeRunner) -> None:
    # Other tests of this process may have left sockets, which are inherited.
    known = shop.sockets()
    runner = runner_of()
    ended = run_one(runner, "spoil", "\xff\xff\xff\xff nonsense", known)
    assert not ended.is_done
    assert "written to the worker's socket" in ended.note
    assert run_one(runner, "echo", 1).is_done


def test_a_child_has_one_thread_and_one_socket(runner_of: MakeRunner) -> None:
    known = shop.sockets()
    runner = runner_of(concurrency=2, jobs_per_child=0)
    assert run_one(runner, "threads").note == "1"
    assert run_one(runner, "open_sockets", known).note == "1"


def test_children_end_with_the_runner(runner_of: MakeRunner, tmp_path: Path, gate: str) -> None:
    runner = runner_of()
    told = tmp_path / "told"
    start(runner, 1, "hold", str(told), gate)
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the job runs")
    runner.close()
    wait_until(lambda: not is_alive(int(told.read_text())), "the child has ended")
    assert runner._is_closed


def test_a_fork_server_that_is_gone_takes_the_jobs_with_it(runner_of: MakeRunner, tmp_path: Path, gate: str) -> None:
    runner = runner_of()
    told = tmp_path / "told"
    start(runner, 1, "hold", str(told), gate)
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "the job runs")
    os.kill(runner._fork_server_pid, signal.SIGKILL)

    def notice() -> bool:
        try:
            runner.wait(0.05)
        except RunnerLost:
            return True
        return False

    wait_until(notice, "the worker has noticed")
    wait_until(lambda: not is_alive(int(told.read_text())), "the child has ended")
    with pytest.raises(RunnerLost):
        start(runner, 2, "echo", 1)


def test_a_wait_can_be_ended_from_outside(runner_of: MakeRunner) -> None:
    runner = runner_of()
    runner.wake()
    assert runner.wait(3600.0) == []


def test_inline_runs_in_this_process() -> None:
    inline = InlineRunner(load_allow_list(allowed=[f"{SHOP}:*"]))
    try:
        assert run_one(inline, "own_pid").note == str(os.getpid())
        ended = run_one(inline, "leave", 1)
        assert not ended.is_done
        inline.wake()
        assert inline.wait(3600.0) == []
    finally:
        inline.close()


def test_a_job_for_which_no_process_can_be_started_has_failed(tmp_path: Path) -> None:
    """In a process of its own, which may have no more than it has: as root the limit does not count."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from penstock.worker.runners.child_runner import ChildRunner\n"
        "from penstock.worker.jobs.formats import Call\n"
        "from penstock.worker.jobs.operator_code import load_allow_list\n"
        "fork, forks = os.fork, []\n"
        "def only_once():\n"
        "    if forks:\n"
        "        raise OSError(11, 'Resource temporarily unavailable')\n"
        "    forks.append(1)\n"
        "    return fork()\n"
        "os.fork = only_once\n"
        f"runner = ChildRunner(load_allow_list(allowed=['{SHOP}:*']))\n"
        f"runner.start(1, '{SHOP}:echo', Call('{SHOP}:echo', [1]))\n"
        "ended = []\n"
        "while not ended:\n"
        "    ended = runner.wait(5)\n"
        "print(ended[0].is_done, ended[0].note)\n"
        "runner.close()\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
    )
    assert done.stdout.startswith("False no process could be started for the job"), done.stderr
