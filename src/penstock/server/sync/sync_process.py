"""The process that syncs files for a broker, so that a busy event loop cannot keep a sync from being done.

It is started by `syncers.ProcessSyncer` as a file of its own, without site and without penstock, and does nothing but
read commands from a socket. Descriptors come along with the command that names them and are kept until it is said that
they are not needed. The n-th ADD belongs to the n-th descriptor, so it does not matter in what pieces the bytes arrive.

    ADD number      keep the descriptor that comes with this as `number`
    SYNC number     make its data durable
    END             answer with the first error number since the last END, 0 for none, as four octets
    DROP number     close it

It ends when the other end of the socket is closed: with its broker, however that ends. It ignores the signals by which
a terminal or a service manager stops a broker, because the broker still needs it for its last commit.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import sys
from collections import deque

COMMAND_BYTES = 8
ANSWER_BYTES = 4
ADD = 1
SYNC = 2
END = 3
DROP = 4
# More than one is never sent with a command; the rest is room.
DESCRIPTORS_MAX = 16
READ_BYTES = 4096


def command(kind: int, number: int = 0) -> bytes:
    return kind.to_bytes(4, "little") + number.to_bytes(4, "little")


def sync_data(descriptor: int) -> None:
    """Return when what was written is durable; of a folder, its names."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        # Not fdatasync: a file system may leave names out of that.
        os.fsync(descriptor)
    elif sys.platform == "darwin":
        import fcntl

        # There fsync only hands the data to the drive.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


class SyncWorker:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._descriptors: dict[int, int] = {}
        self._arrived: deque[int] = deque()
        self._error = 0

    def run(self) -> None:
        """Until the broker hangs up."""
        rest = b""
        while True:
            data, arrived, _, _ = socket.recv_fds(self._connection, READ_BYTES, DESCRIPTORS_MAX)
            if not data:
                return
            self._arrived.extend(arrived)
            rest += data
            whole = len(rest) - len(rest) % COMMAND_BYTES
            for pos in range(0, whole, COMMAND_BYTES):
                kind = int.from_bytes(rest[pos : pos + 4], "little")
                self._handle(kind, int.from_bytes(rest[pos + 4 : pos + 8], "little"))
            rest = rest[whole:]

    def _handle(self, kind: int, number: int) -> None:
        if kind == ADD:
            self._descriptors[number] = self._arrived.popleft()
        elif kind == SYNC:
            self._sync(number)
        elif kind == END:
            self._connection.sendall(self._error.to_bytes(ANSWER_BYTES, "little"))
            self._error = 0
        else:
            os.close(self._descriptors.pop(number))

    def _sync(self, number: int) -> None:
        # Behind a failure nothing is synced: the broker does not use these files any more.
        if self._error:
            return
        try:
            sync_data(self._descriptors[number])
        except OSError as error:
            self._error = error.errno or errno.EIO


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        try:
            SyncWorker(connection).run()
        except (BrokenPipeError, ConnectionResetError):
            # The broker died while it waited for an answer.
            return


if __name__ == "__main__":
    main()
