"""Damage where replay begins: the file may be shorter than it was, and what is behind the checkpoint is missed."""

from __future__ import annotations

import pytest
from node_house import PlainQueue, new_disk, open_node, power_cut, reopen
from tests.disk.sim_files import SimFiles

from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.store.node.checkpoint import checkpoint_numbers, read_header

FIRST = "journal/00000001.pnj"
SECOND = "journal/00000002.pnj"


def two_segments(in_front: bool = True, behind: bool = True) -> SimFiles:
    """A checkpoint in the middle of the first segment; in front of it and behind it are batches. Then a second one."""
    files = new_disk()
    node = open_node(files)
    definitions = [b""]
    node.definitions_source = lambda: [definitions[-1]]
    queue = PlainQueue(node)
    if in_front:
        queue.publish(b"in front of it")
        node.journal.commit(urgent=True)
    node.checkpoint_now()
    if behind:
        node.journal.define(b"behind it")
        node.journal.commit(urgent=True)
    node.journal.roll()
    queue.publish(b"in the second segment")
    node.journal.commit(urgent=True)
    files = power_cut(files)
    assert {FIRST, SECOND} <= set(files.contents())
    return files


def replay_pos(files: SimFiles) -> int:
    header = read_header(files, checkpoint_numbers(files)[-1])
    assert header.replay_segment == 1
    return header.replay_pos


def damage_lines(report: list[str]) -> list[str]:
    return [line for line in report if FIRST in line and "are damaged" in line]


@pytest.mark.parametrize("in_front", [True, False], ids=["batches in front", "nothing in front"])
def test_a_segment_that_ends_in_front_of_the_replay_start_is_named(in_front: bool) -> None:
    intact = two_segments(in_front)
    border = replay_pos(intact)
    assert (border > FIRST_BATCH_AT) == in_front
    assert reopen(intact.copy())[1].changes == [b"behind it"]
    for size in [*range(0, border, 97), border - 1, border, border + 1]:
        files = intact.copy()
        files.truncate_durable(FIRST, size)
        _, recovered = reopen(files)
        assert recovered.changes == []
        assert damage_lines(recovered.report), f"cut to {size} of {border} bytes"


def test_a_segment_that_ends_at_the_replay_start_has_lost_nothing() -> None:
    files = two_segments(behind=False)
    assert len(files.contents()[FIRST]) == replay_pos(files)
    assert reopen(files)[1].report == []


def test_damage_in_front_of_the_replay_start_has_cost_no_events() -> None:
    files = two_segments(behind=False)
    files.flip(FIRST, FIRST_BATCH_AT + 10, 0)
    assert damage_lines(reopen(files)[1].report) == []


def test_rot_at_the_end_of_a_segment_is_named_when_the_next_one_lost_its_head() -> None:
    files = two_segments()
    files.flip(FIRST, len(files.contents()[FIRST]) - 60, 0)
    files.truncate_durable(SECOND, 0)
    _, recovered = reopen(files)
    assert recovered.changes == []
    assert damage_lines(recovered.report)
