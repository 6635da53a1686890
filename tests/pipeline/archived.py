"""What the tests of the archive job share: journals of whole lives, and what a log has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from penstock.history.opening import open_log
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from tests.pipeline.written_journal import WrittenJournal

# Published, delivered, acked.
EVENTS_OF_A_LIFE = 3


def written(folder: Path, messages: int = 30) -> WrittenJournal:
    """A journal of messages that are published, delivered and acked."""
    folder.mkdir()
    journal = WrittenJournal(folder)
    more(journal, messages)
    return journal


def more(journal: WrittenJournal, messages: int) -> None:
    for number in range(messages):
        seq = journal.publish("orders", b"body %d" % number)
        journal.settle("delivered", "orders", seq)
        journal.settle("acked", "orders", seq)
        journal.commit()
    journal.mark()


def lsns_of(source: Path) -> list[int]:
    """Positions of all events of a log, read without Spark. Between them are rows that are no events: names, marks."""
    request = Request(view="events", columns=("lsn",), bodies=False)
    with closing(open_log(str(source))) as log:
        state = log.state()
        parts = plan(log, state.first_lsn, state.end_lsn, 2**40, request)
        return [lsn for part in parts for batch in read_range(log, part, request) for lsn in batch["lsn"].to_pylist()]


def cursor_of(source: Path, reader: str = "archive") -> int:
    """-1 when there is no such reader."""
    with closing(open_log(str(source))) as log:
        return next((each.lsn for each in log.readers() if each.name == reader), -1)


def end_lsn(source: Path) -> int:
    with closing(open_log(str(source))) as log:
        return log.state().end_lsn
