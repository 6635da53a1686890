"""The example of the variable-queue document, state for state.

Messages are numbered 1 to 25 and have that number as their seq_id: one message went before them. With segments of five
seq_ids that puts a boundary before 10, and q3 keeps 5 to 9 when its rear becomes a delta. Each message is published and
committed alone, so that each is a run of its own; transient ones are kept apart by their expiry.

Three of the document's 17 states exist only within a fetch that takes the last message of q3. `Within` sees them: it
follows the code of the zones line by line while that fetch runs. The document counts the fetched message as gone from
the beginning; the zones keep it until what follows was read, so that an error loses nothing. So `Within` leaves it out.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

import pytest

from penstock.backing.zones import zones
from tests.builds import interpreted_only
from tests.contract.variable_house import VariableHouse, no_paging, plain_options

FAR_AWAY_MS = 1 << 50
State = tuple[list[int], list[int], list[int], list[int], list[int]]


def between(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


class Example:
    """The calls of the example."""

    def __init__(self, evenly: bool, persistent: bool) -> None:
        self.house = VariableHouse(plain_options(slots=5), no_paging())
        self._evenly = evenly
        self.house.persistent = persistent
        self.house.numbered(0, 0)
        self.house.drain()
        self.delivered: list[int] = []

    def publish(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            self.house.publish(b"%d" % number, expiry_ms=FAR_AWAY_MS + number)
            self.house.commit()
        self.house.check()

    def push_alphas(self, quota: int) -> None:
        """Evict as the document does, half from each end, the larger half from q1; or as the queue does."""
        if not self._evenly:
            self.house.push_alphas(quota)
            return
        zones = self.house.zones()
        from_q1 = min((quota + 1) // 2, len(zones["q1"]))
        from_q4 = min(quota - from_q1, len(zones["q4"]))
        self.house.queue.zones.push_alphas_to_betas(min(quota - from_q4, len(zones["q1"])), from_q4)
        self.house.check()

    def fetch(self, count: int) -> None:
        self.delivered += [int(payload) for _, payload, _ in self.house.fetched(count)]

    def state(self) -> State:
        """q4, q3, q2, q1, delta, as the document has them."""
        zones = self.house.zones()
        return zones["q4"], zones["q3"], zones["q2"], zones["q1"], zones["delta"]


class Within:
    """The different states that a fetch goes through from the moment in which the last message of q3 leaves."""

    def __init__(self, example: Example, fetched: int) -> None:
        self.states: list[State] = []
        self._example = example
        self._fetched = fetched
        self._is_leaving = False

    def __enter__(self) -> Within:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != zones.__file__:
            return None
        if frame.f_code.co_name in ("deltas_to_betas", "_after_q3"):
            self._is_leaving = True
        return self._line(frame, event, argument)

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._is_leaving:
            q4, q3, q2, q1, delta = self._example.state()
            state = (self._without(q4), self._without(q3), q2, q1, delta)
            if not self.states or self.states[-1] != state:
                self.states.append(state)
        return self._line

    def _without(self, zone: list[int]) -> list[int]:
        return [number for number in zone if number != self._fetched]


def one_after_another(wanted: list[State], seen: list[State]) -> bool:
    """Whether all that is wanted was seen, in this order."""
    left = iter(seen)
    return all(state in left for state in wanted)


@interpreted_only("it follows the code line by line")
@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_every_state_of_the_example_is_reproduced_when_both_ends_are_evicted_evenly(persistent: bool) -> None:
    """Quotas 3, 6 and 7, half from the front of q1, half from the rear of q4."""
    example = Example(True, persistent)
    house = example.house
    example.publish(1, 9)
    assert example.state() == (between(1, 9), [], [], [], [])
    example.publish(10, 10)
    assert example.state() == (between(1, 10), [], [], [], [])
    example.push_alphas(3)
    assert example.state() == (between(1, 7), between(8, 10), [], [], [])
    example.publish(11, 15)
    assert example.state() == (between(1, 7), between(8, 10), [], between(11, 15), [])
    example.push_alphas(6)
    assert example.state() == (between(1, 4), between(5, 13), [], [14, 15], [])
    house.push_betas(4)
    assert example.state() == (between(1, 4), between(5, 9), [], [14, 15], between(10, 13))
    example.publish(16, 20)
    assert example.state() == (between(1, 4), between(5, 9), [], between(14, 20), between(10, 13))
    example.push_alphas(7)
    assert example.state() == ([1], between(2, 9), between(14, 17), between(18, 20), between(10, 13))
    example.fetch(3)
    assert example.state() == ([], between(4, 9), between(14, 17), between(18, 20), between(10, 13))
    example.fetch(5)
    assert example.state() == ([], [9], between(14, 17), between(18, 20), between(10, 13))
    with Within(example, 9) as within:
        example.fetch(1)
    emptied = ([], [], between(14, 17), between(18, 20), between(10, 13))
    read_back = ([], between(10, 13), between(14, 17), between(18, 20), [])
    joined = ([], between(10, 17), [], between(18, 20), [])
    assert within.states[0] == emptied
    assert one_after_another([emptied, read_back, joined], within.states), within.states
    assert example.state() == joined
    example.publish(21, 25)
    assert example.state() == ([], between(10, 17), [], between(18, 25), [])
    example.fetch(7)
    with Within(example, 17) as within:
        example.fetch(1)
    emptied, moved = ([], [], [], between(18, 25), []), (between(18, 25), [], [], [], [])
    assert within.states[0] == emptied
    assert example.state() == within.states[-1] == moved
    example.fetch(1)
    assert example.state() == (between(19, 25), [], [], [], [])
    example.fetch(7)
    assert example.state() == ([], [], [], [], [])
    assert example.delivered == between(1, 25)


def test_the_boundary_of_the_segment_and_not_the_quota_makes_ten_to_thirteen_the_delta() -> None:
    """A larger quota takes no more from q3, since 5 to 9 are the segment of q3's first message."""
    example = Example(True, persistent=True)
    example.publish(1, 10)
    example.push_alphas(3)
    example.publish(11, 15)
    example.push_alphas(6)
    example.house.push_betas(100)
    assert example.state() == (between(1, 4), between(5, 9), [], [14, 15], between(10, 13))


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_the_same_calls_with_the_tail_evicted_first_go_through_other_states_to_the_same_order(persistent: bool) -> None:
    example = Example(False, persistent)
    house = example.house
    example.publish(1, 10)
    example.push_alphas(3)
    assert example.state() == (between(1, 7), between(8, 10), [], [], [])
    example.publish(11, 15)
    example.push_alphas(6)
    assert example.state() == (between(1, 6), between(7, 15), [], [], [])
    house.push_betas(4)
    assert example.state() == (between(1, 6), between(7, 11), [], [], between(12, 15))
    example.publish(16, 20)
    example.push_alphas(7)
    assert example.state() == (between(1, 4), between(5, 11), between(16, 20), [], between(12, 15))
    example.fetch(9)
    assert example.state() == ([], [10, 11], between(16, 20), [], between(12, 15))
    example.publish(21, 25)
    assert example.state() == ([], [10, 11], between(16, 20), between(21, 25), between(12, 15))
    example.fetch(9)
    assert example.state() == ([], [19, 20], [], between(21, 25), [])
    example.fetch(7)
    assert example.state() == ([], [], [], [], [])
    assert example.delivered == between(1, 25)


@pytest.mark.parametrize("evenly", [True, False], ids=["evenly", "tail-first"])
def test_evicting_everything_in_the_middle_of_the_example_changes_no_order(evenly: bool) -> None:
    example = Example(evenly, persistent=True)
    for first in (1, 6, 11, 16, 21):
        example.publish(first, first + 4)
        example.push_alphas(100)
        example.house.push_betas(100)
        example.fetch(2)
    example.fetch(15)
    assert example.delivered == between(1, 25)
