"""Runs jobs in a child process: takes calls from its socket, runs the function, answers with a note.

A child has neither a session nor a connection: the fork server was forked before the worker opened one. It ends with
`os._exit`, so that no exit handler of the worker's runs in it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import sys
import traceback
from types import FrameType

from penstock.worker.jobs.allow_list import AllowList
from penstock.worker.runners import frames
from penstock.worker.runners.frames import Frame, FrameReader
from penstock.worker.runners.notes import exception_note, result_note
from penstock.worker.runners.process_name import die_with_parent, set_process_name

EXIT_DONE = 0
EXIT_BROKEN = 70
# Frames of this module at the top of each traceback: run_call and _call.
_OWN_FRAMES = 2


def child_main(connection: socket.socket, allow_list: AllowList, jobs_max: int, parent_pid: int) -> None:
    """The whole life of a child; does not return."""
    code = EXIT_BROKEN
    try:
        _settle_in(parent_pid)
        serve(connection, allow_list, jobs_max)
        code = EXIT_DONE
    except (BrokenPipeError, ConnectionResetError):
        # The worker has gone, and does not need the answer.
        code = EXIT_DONE
    except BaseException:
        # The caller does not show it.
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def serve(connection: socket.socket, allow_list: AllowList, jobs_max: int) -> None:
    """Run calls until there are no more, or until it were `jobs_max` (0 = no limit)."""
    reader = FrameReader()
    count = 0
    while True:
        call = frames.receive(connection, reader)
        if call is None:
            return
        answer = run_call(allow_list, call)
        _flush()
        connection.sendall(frames.encode(answer))
        count += 1
        if count == jobs_max:
            return


def run_call(allow_list: AllowList, call: Frame) -> Frame:
    """Run one call; the answer says how it went. Nothing that a job raises comes out."""
    try:
        result = _call(allow_list, call)
    # SystemExit and KeyboardInterrupt as well: a job that calls sys.exit has not ended its child.
    except BaseException as error:
        return {"done": False, "note": exception_note(error, _OWN_FRAMES)}
    return {"done": True, "note": result_note(result)}


def _call(allow_list: AllowList, call: Frame) -> object:
    runnable = allow_list.get(call["name"])
    # The worker looked it up in the same table before.
    assert runnable is not None
    result = runnable.function(*call["args"], **call["kwargs"])
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    return result


def _settle_in(parent_pid: int) -> None:
    # A group of its own: killing a job also ends the programs that it has started.
    os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != parent_pid:
        os._exit(EXIT_DONE)
    set_process_name("penstock job")
    # The worker decides when a job has to end. Service managers send SIGTERM to every process of a service, which would
    # end jobs that the worker still waits for. A handler, unlike SIG_IGN, does not outlive an exec.
    signal.signal(signal.SIGTERM, _ignore)
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _ignore(number: int, frame: FrameType | None) -> None:
    return


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # A closed standard output is not the job's fault.
            continue
