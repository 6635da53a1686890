"""The name of a process in `ps` and `top`: on Linux, through prctl; elsewhere it stays as it is."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# The kernel cuts at 15 bytes and an end.
_NAME_BYTES_MAX = 15


def set_process_name(name: str) -> None:
    """Cut to whole characters."""
    cut = name.encode()[:_NAME_BYTES_MAX].decode("utf-8", "ignore").encode()
    _prctl(_PR_SET_NAME, ctypes.c_char_p(cut))


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that forked it ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def _prctl(option: int, value: object) -> None:
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        # A C library without it: a name is not worth more.
        return
