"""How many descriptors the process may have, and how they are shared between connections and files.

Every connection is a descriptor, and so is every open file of the store. The limits on connections leave enough for
the files: a client that opens sockets until it is refused must not keep the journal from beginning a new segment.
"""

from __future__ import annotations

import sys

from penstock import limits

if sys.platform != "win32":
    import resource


class DescriptorBudget:
    __slots__ = ("connections", "handshakes", "handshakes_per_address", "http_connections", "open_files", "total")

    def __init__(self, total: int, connections_max: int = limits.CONNECTIONS_MAX) -> None:
        self.total = total
        # Of the queues and stores. The rest of the files are few: see limits.DESCRIPTORS_OTHERS.
        self.open_files = max(16, min(limits.OPEN_FILES_MAX, total // 4))
        self.http_connections = max(4, min(limits.HTTP_CONNECTIONS_MAX, total // 16))
        # Accepted in one turn, before they can be counted and refused.
        accepted = min(limits.ACCEPT_BACKLOG, total // 8)
        left = total - self.open_files - self.http_connections - accepted
        left -= limits.DESCRIPTORS_OTHERS + limits.DESCRIPTORS_SPARE
        all_connections = max(16, min(limits.CONNECTIONS_MAX + limits.PRE_AUTH_CONNECTIONS_MAX, left))
        # Those that have not logged in, altogether and from one address. They cannot take the place of the others.
        self.handshakes = min(limits.PRE_AUTH_CONNECTIONS_MAX, all_connections // 4)
        self.handshakes_per_address = max(2, self.handshakes // 2)
        self.connections = min(connections_max, all_connections - self.handshakes)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process towards the hard one, as far as the broker can make use of it."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.DESCRIPTORS_WANTED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # macOS has a limit besides the hard one. What there is has to do.
        return


def descriptor_limit() -> int:
    """Return how many descriptors this process may have, at most as many as the broker can make use of."""
    if sys.platform == "win32":
        return limits.DESCRIPTORS_WANTED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else min(soft, limits.DESCRIPTORS_WANTED)
