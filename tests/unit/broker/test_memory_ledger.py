"""The ledger of memory: few are asked at a time, and what grows is seen first."""

from __future__ import annotations

from penstock.broker.memory.memory_ledger import BYTES_PER_LOOK, LOOKS_MIN, MemoryLedger


class Holder:
    def __init__(self, size: int = 0, weight: int = 1) -> None:
        self.size = size
        self.weight = weight
        self.asked = 0

    def ram_bytes(self) -> int:
        self.asked += 1
        return self.size

    def look_weight(self) -> int:
        return self.weight


def ledger_of(holders: list[Holder], looks_max: int) -> MemoryLedger:
    ledger = MemoryLedger(looks_max)
    for holder in holders:
        ledger.add(holder)
    return ledger


def test_a_few_holders_are_added_up_at_each_look() -> None:
    holders = [Holder(size) for size in (1, 20, 300)]
    ledger = ledger_of(holders, 10)
    ledger.look()
    assert ledger.total_bytes == 321
    holders[1].size = 0
    ledger.look()
    assert ledger.total_bytes == 301
    assert [holder.asked for holder in holders] == [2, 2, 2]
    assert ledger.largest(1) == [holders[2]]


def test_a_look_over_many_asks_some_of_them_and_the_next_look_the_next_ones() -> None:
    holders = [Holder(1) for _ in range(1000)]
    ledger = ledger_of(holders, 100)
    for done in range(100, 1001, 100):
        assert len(ledger.look()) == 100
        assert ledger.total_bytes == done
    assert {holder.asked for holder in holders} == {1}


def test_what_was_touched_is_seen_at_the_next_look() -> None:
    holders = [Holder() for _ in range(1000)]
    ledger = ledger_of(holders, 10)
    ledger.look()
    holders[5].size = 7
    ledger.touch([holders[5], Holder(1)])
    ledger.look()
    assert ledger.total_bytes == 7


def test_what_is_costly_to_ask_takes_the_place_of_others() -> None:
    holders = [Holder(1, 50) for _ in range(10)]
    assert len(ledger_of(holders, 100).look()) == 2


def test_what_is_gone_does_not_count_and_is_not_asked() -> None:
    holders = [Holder(1) for _ in range(4)]
    ledger = ledger_of(holders, 10)
    ledger.look()
    ledger.touch(holders)
    ledger.remove(holders[0])
    ledger.look()
    assert ledger.total_bytes == 3
    assert holders[0].asked == 1


def test_the_more_has_arrived_the_more_are_asked() -> None:
    ledger = ledger_of([Holder(1) for _ in range(3000)], 1000)
    asked = [len(ledger.look(arrived_bytes)) for arrived_bytes in (0, 100 * BYTES_PER_LOOK, 1 << 40)]
    assert asked == [LOOKS_MIN, LOOKS_MIN + 100, 1000]


def test_what_was_touched_first_is_seen_first() -> None:
    holders = [Holder(1) for _ in range(30)]
    ledger = ledger_of(holders, 10)
    for start in range(0, 30, 10):
        ledger.touch(holders[start : start + 10])
    ledger.look()
    assert [holder.asked for holder in holders] == [1] * 10 + [0] * 20
