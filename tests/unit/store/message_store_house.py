"""A shared store with tiny files on a disk in memory, and a journal that is only a list."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from tests.disk.sim_files import SimFiles

from penstock.journal.syncer import InlineSyncer
from penstock.message import FRAME_END, Envelope
from penstock.store.shared.compaction import SyncFiles
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.message_store import MessageStore, MessageStoreOptions
from penstock.store.shared.records import BadRecord, encode_record

FOLDER = "vhosts/v1/shared/persistent"
SYNC_INLINE = InlineSyncer().submit
TINY = MessageStoreOptions(file_bytes=600, dead_share=0.5, own_file_bytes=500, buffer_bytes=300)

Message = tuple[Envelope, bytes]


def message(number: int, size: int = 40) -> Message:
    """A message that is like no other."""
    body = (b"%d." % number * size)[:size] + FRAME_END
    return Envelope("x", f"key.{number}", b"\x10\x00\x02", persistent=True, priority=number % 10), body


def record_size(made: Message) -> int:
    return len(encode_record(-1, made[0], made[1], -1))


def fields(envelope: Envelope) -> tuple[object, ...]:
    return (
        envelope.exchange,
        envelope.routing_key,
        envelope.address,
        envelope.properties,
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
    )


def same(found: Message, wanted: Message) -> bool:
    return found[1] == wanted[1] and fields(found[0]) == fields(wanted[0])


class House:
    """A store, what should be in it, and what a restart would be asked for."""

    def __init__(
        self,
        machine: SimFiles | None = None,
        options: MessageStoreOptions = TINY,
        persistent: bool = True,
        sync: SyncFiles = SYNC_INLINE,
        handles_max: int = 4,
    ) -> None:
        self.machine = machine if machine is not None else SimFiles()
        self.handles = HandleCache(self.machine, handles_max)
        # A backup copies the files.
        self.is_held = False
        self.store = MessageStore(
            *(self.machine, FOLDER, self.handles, options, persistent, sync, self.when_durable),
            is_held=lambda: self.is_held,
        )
        self.messages: dict[int, Message] = {}
        self.refs: Counter[int] = Counter()
        self.durable: dict[int, int] = {}
        # What a restart may find instead, while a batch is under way.
        self.maybe: dict[int, int] = {}
        self.waiting: list[Callable[[bool], None]] = []

    def put(self, made: Message) -> int:
        address = self.store.put(made[0], made[1])
        self.messages[address] = made
        self.refs[address] += 1
        return address

    def release(self, address: int) -> None:
        self.store.release(address)
        self.refs[address] -= 1

    def live(self) -> dict[int, int]:
        return {address: count for address, count in self.refs.items() if count > 0}

    def commit(self) -> None:
        """What the journal does with a batch."""
        self.maybe = self.live()
        self.store.flush()
        for file in self.store.current_file_to_sync():
            file.fdatasync()
        self.durable = self.maybe
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(True)

    def when_durable(self, done: Callable[[bool], None]) -> None:
        if self.durable == self.live():
            done(True)
        else:
            self.waiting.append(done)

    def compact(self, bytes_max: int = 1 << 30) -> None:
        while self.store.compact_some(bytes_max):
            pass

    def names(self) -> list[str]:
        return [path.removeprefix(FOLDER + "/") for path in self.machine.contents() if path.startswith(FOLDER)]

    def disk_bytes(self) -> int:
        return sum(len(data) for path, data in self.machine.contents().items() if path.startswith(FOLDER))

    def restarted(self, machine: SimFiles, refs: dict[int, int]) -> tuple[House, list[int]]:
        """The next life; and the addresses that it cannot read."""
        house = House(machine)
        unreadable = house.store.start(dict(refs))
        house.messages = dict(self.messages)
        house.refs = Counter(refs)
        for address in unreadable:
            del house.refs[address]
        house.durable = house.maybe = house.live()
        house.store.check_invariants()
        return house, unreadable

    def is_good(self, address: int) -> bool:
        """Whether a body can be read. Wrong bytes are never allowed."""
        try:
            found = self.store.read(address)
        except BadRecord:
            return False
        assert same(found, self.messages[address]), f"{address:#x} has the bytes of another message"
        return True

    def check_all(self) -> None:
        for address in self.live():
            assert self.is_good(address), f"{address:#x} is gone"
        self.store.check_invariants()


def run_script(house: House, seed: int, steps: int) -> None:
    """Puts, fan-outs, releases, commits and slices of compaction, the same for the same seed."""
    dice = random.Random(seed)
    house.store.start({})
    for step in range(steps):
        made = message(step, dice.choice((0, 1, 40, 80, 499, 500, 620)))
        for _ in range(dice.choice((1, 1, 2))):
            house.put(made)
        if dice.random() < 0.7:
            house.store.end_fanout()
        live = sorted(house.live())
        for _ in range(dice.choice((0, 1, 1, 3))):
            if len(live) > 3:
                address = dice.choice(live)
                house.release(address)
                live = sorted(house.live())
        if dice.random() < 0.5:
            house.commit()
        house.store.compact_some(dice.choice((1, 150, 1000)))
    house.store.end_fanout()
