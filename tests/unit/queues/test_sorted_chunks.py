"""The sorted container: what a sorted list would say, with chunks so small that each boundary is crossed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.selection.sorted_chunks import SortedChunks

KEYS = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "add all", "remove", "remove"]), KEYS), max_size=80)


@given(steps=STEPS, chunk_max=st.integers(2, 5))
def test_it_is_a_sorted_set(steps: list[tuple[str, int]], chunk_max: int) -> None:
    chunks = SortedChunks(chunk_max)
    model: set[int] = set()
    for verb, key in steps:
        if verb == "add":
            chunks.add(key)
            model.add(key)
        elif verb == "add all":
            chunks.add_all(list(range(key, key + 7)))
            model.update(range(key, key + 7))
        else:
            assert chunks.remove(key) == (key in model)
            model.discard(key)
        chunks.check_invariants()
        assert chunks.listed() == sorted(model)
        assert len(chunks) == len(model)
        assert (key in chunks) == (key in model)
        assert chunks.first() == min(model, default=None)
        assert chunks.last() == max(model, default=None)
        assert chunks.after(key) == min([other for other in model if other > key], default=None)
        for count in (0, 1, chunk_max, 40):
            assert chunks.listed_from(key, count) == sorted(other for other in model if other >= key)[:count]


def test_nothing_is_left_when_it_is_cleared() -> None:
    chunks = SortedChunks(2)
    for key in range(9):
        chunks.add(key)
    chunks.clear()
    chunks.check_invariants()
    assert chunks.listed() == []
    assert chunks.first() is None
    chunks.add(4)
    assert chunks.listed() == [4]
