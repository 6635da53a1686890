"""Positions in a log: what an option means now, and the offsets that Spark keeps in its checkpoints.

An offset is {"log_id": …, "lsn": n}: everything below n has been read. Spark compares offsets as text, so the keys are
always in this order. The id is that of the data folder: a checkpoint that belongs to another one is refused, because
its LSNs would name other events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.history.log import HistoryError, Log, LogState
from penstock.pipeline.decode.ranges import lsn_at_time
from penstock.pipeline.source.options import EARLIEST, LATEST, Position

Offset = dict[str, Any]


def lsn_of(log: Log, position: Position, option: str) -> int:
    """Return the LSN that a position stands for now. HistoryError when it is behind the end of the log."""
    state = log.state()
    if position.name == EARLIEST:
        return state.first_lsn
    if position.name == LATEST:
        return state.end_lsn
    if position.us is not None:
        return lsn_at_time(log, position.us)
    assert position.number is not None
    if position.number > state.end_lsn:
        raise HistoryError(
            f"{option} is {position.number}, but the log of {log.source} has events {state.first_lsn} to"
            f" {state.end_lsn - 1} only"
        )
    return position.number


def offset_of(state: LogState, lsn: int) -> Offset:
    return {"log_id": state.log_id, "lsn": lsn}


def lsn_in(offset: Mapping[str, Any], state: LogState, source: str) -> int:
    """Return the LSN of an offset from a checkpoint. HistoryError when it is that of another log."""
    lsn = offset.get("lsn")
    if not isinstance(lsn, int):
        raise HistoryError(
            f"the checkpoint has {dict(offset)!r} where the LSN of a log should be: it is another source's"
        )
    log_id = offset.get("log_id")
    if log_id and state.log_id and log_id != state.log_id:
        raise HistoryError(
            f"the checkpoint belongs to another log: it was made for {log_id}, and {source} is {state.log_id}."
            " Give the source it was made with, or begin with a new checkpoint"
        )
    if lsn > state.end_lsn:
        raise HistoryError(
            f"the checkpoint is at LSN {lsn}, but the log of {source} ends at {state.end_lsn}: is it an older copy of"
            " the data folder? Then give back the folder that the checkpoint was made with, or begin with a new"
            " checkpoint. If there was a power cut, nothing is lost: start the broker, and its last events are shown"
        )
    return lsn
