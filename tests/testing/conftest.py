"""What a test of the embedded broker counts: threads and open files of this process."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.deadline import wait_until


def open_files() -> list[str]:
    """What the process has open, by what it is; only Linux tells."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        return []
    found = []
    for entry in folder.iterdir():
        # The folder itself is open while it is listed, and gone when it is looked at.
        if entry.is_symlink():
            found.append(os.readlink(entry).partition(":")[0])
    return sorted(found)


def broker_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("penstock")}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails when the test leaves a thread, an open file or an unclosed object behind."""
    # What other tests have left is not looked at: it is not this test's, and in a long run there are millions of it.
    gc.freeze()
    files = open_files()
    threads = threading.active_count()
    # A broker that other tests share may be running in this process.
    brokers = broker_threads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        # Nothing is left to the collector: what it would find now was not closed.
        gc.collect()
        gc.unfreeze()
    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []
    assert broker_threads() == brokers
    # Threads of the clients may take a moment.
    wait_until(lambda: threading.active_count() <= threads, "the threads have ended")
    assert open_files() == files
