"""A small store with a message in every kind of place, and what must be true after somebody has damaged it.

The node starts, or refuses to and says why. It never serves wrong bytes. What is missing is named: in the report of the
start, or by a queue that finds it out. Everything that it serves was published with these very bytes.
"""

from __future__ import annotations

from penstock.clock import ManualClock
from penstock.errors import StartupError
from tests.disk.sim_files import SimFiles
from tests.simulation.books import content, require
from tests.simulation.machine import Node, OpenQueue
from tests.simulation.profile import Profile
from tests.simulation.script import SEED, Script
from tests.simulation.simulation import small_buffers
from tests.simulation.verbs import MANY

Content = tuple[object, ...]


class SmallStore:
    """What the first life of the script leaves, after a clean stop or after a kill with everything synced."""

    def __init__(self, stopped: bool, seed: int = SEED) -> None:
        script = Script(seed=seed)
        with small_buffers(script.profile):
            script.first_life()
            for _ in range(3):
                # Batches behind the last checkpoint, one after the other.
                script.publish_to("a")
                script.come_to_rest()
            script.go_idle()
            if stopped:
                assert script.node.stop()
        self.stopped = stopped
        self.profile: Profile = script.profile
        self.clock = ManualClock(script.clock.wall_ms())
        self.rng = script.rng
        self.files = script.files.kill()
        self.definitions = [text for _, text in script.books.definitions]
        # What must be there, and what was there once, by queue id and seq_id.
        self.kept: dict[str, dict[int, Content]] = {}
        self.known: dict[str, dict[int, Content]] = {}
        for books in script.books.durable_queues():
            lasting = [message for message in books.messages.values() if message.lasts]
            if books in script.books.queues.values():
                self.kept[books.queue_id] = {message.seq_id: message.content for message in lasting}
            everything = [*books.gone, *lasting]
            self.known[books.queue_id] = {message.seq_id: message.content for message in everything}

    def paths(self) -> list[str]:
        return [path for path, data in self.files.contents().items() if data]

    def size(self, path: str) -> int:
        return len(self.files.contents()[path])

    def kept_count(self) -> int:
        return sum(map(len, self.kept.values()))

    def tail(self) -> str:
        """The end of a journal that no checkpoint has seen. If it is gone nobody can know that it was there."""
        segments = [path for path in self.paths() if path.startswith("journal/")]
        return "" if self.stopped else max(segments)

    def check(self, files: SimFiles, what: str, in_silence: bool = False) -> int:
        """Open a damaged copy; how many messages are missing, -1 when the node refuses to start."""
        try:
            with small_buffers(self.profile):
                return self._check(files, in_silence)
        except StartupError as refused:
            require(len(str(refused)) > 40, f"{what}: the node does not start, and says only {refused}")
            return -1
        except Exception as error:
            error.add_note(what)
            raise

    def _check(self, files: SimFiles, in_silence: bool) -> int:
        node = Node(files, self.clock, self.profile, self.rng)
        node.open()
        missing = came_back = 0
        lost: float = 0
        for queue in list(node.queues.values()):
            found = self._consume(queue)
            kept = self.kept.get(queue.queue_id, {})
            missing += len(kept.keys() - found.keys())
            came_back += len(found.keys() - kept.keys())
            # A priority queue without a single level says nothing.
            told = queue.messages.status().get("lost", 0)
            assert isinstance(told, int | float)
            lost += told
        gone = [queue_id for queue_id in self.kept if queue_id not in {one.queue_id for one in node.queues.values()}]
        missing += sum(len(self.kept[queue_id]) for queue_id in gone)
        # A batch that "was never completed" is no excuse: a commit mark stands behind all of them.
        is_named = in_silence or lost > 0 or any("never completed" not in line for line in node.report)
        are_known = node.definitions == self.definitions
        assert is_named or are_known, f"the definitions are {node.definitions}, and nobody says so"
        assert is_named or not missing, f"{missing} messages are missing, and nobody says so"
        assert is_named or not came_back, f"{came_back} messages came back, and nobody says so"
        return missing

    def _consume(self, queue: OpenQueue) -> dict[int, Content]:
        """Everything that a queue serves, taken as a consumer takes it."""
        known = self.known[queue.queue_id]
        found: dict[int, Content] = {}
        run = queue.messages.fetch(3, MANY, False)
        while run is not None:
            for seq_id, entry in enumerate(run.entries, run.first_seq_id):
                assert seq_id not in found, f"{seq_id} of {queue.name} came twice"
                assert known.get(seq_id) == content(entry), f"{seq_id} of {queue.name} came with wrong bytes: {entry}"
                found[seq_id] = content(entry)
            run = queue.messages.fetch(3, MANY, False)
        assert len(queue.messages) == 0, f"{queue.name} is empty, and counts {len(queue.messages)}"
        return found


def worst_flips(store: SmallStore, step: int, folder: str = "") -> dict[str, int]:
    """Flip a bit of every `step`th byte, one at a time; how many messages a flip has cost at most, by path."""
    worst: dict[str, int] = {}
    for path in store.paths():
        if not path.startswith(folder):
            continue
        for byte in range(0, store.size(path), step):
            files = store.files.copy()
            files.flip(path, byte, byte % 8)
            missing = store.check(files, f"bit {byte % 8} of byte {byte} of {path}")
            worst[path] = max(worst.get(path, 0), missing)
    return worst
