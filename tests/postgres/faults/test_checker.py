"""The checker of the fault runs sees what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres.faults.checker import Leftovers, problems_of
from tests.postgres.faults.ledger import Ledger


class Course:
    """A small round: messages of publisher p on queue q, and what became of them."""

    def __init__(self) -> None:
        self.ledger = Ledger("r")
        self.left = Leftovers()

    def put(self, outcome: str = "acknowledged") -> bytes:
        payload = self.ledger.new("p", "q", 3)
        if outcome != "unknown":
            self.ledger.settle([payload], outcome)  # type: ignore[arg-type]
        return payload

    def got(self, payload: bytes, queue: str = "q", is_sure: bool = True, is_finalized: bool = True) -> None:
        self.ledger.got("c", queue, payload, is_sure)
        if is_finalized:
            self.left.history.append((queue, payload.split(b"|")[0].decode(), 1))

    def problems(self, is_gentle: bool = True) -> str:
        return "\n".join(problems_of(self.ledger, self.left, is_gentle, ["q"]))


@pytest.fixture
def course() -> Course:
    made = Course()
    made.got(made.put())
    return made


def test_a_round_without_problems_has_none(course: Course) -> None:
    course.put("rolled back")
    course.put("unknown")
    course.got(course.put("unknown"))
    assert course.problems() == ""


def test_an_acknowledged_message_that_nobody_got_is_lost(course: Course) -> None:
    course.put()
    assert course.problems() == "lost: r.p.2.3"


def test_one_that_was_finalized_and_that_nobody_got_is_seen(course: Course) -> None:
    course.put("unknown")
    course.left.history.append(("q", "r.p.2.3", 1))
    assert course.problems() == "finalized and never received: r.p.2.3"


@pytest.mark.parametrize(("is_sure", "words"), [(True, "rolled back and delivered: r.p.2.3"), (False, "")])
def test_what_was_rolled_back_must_not_come_out(course: Course, is_sure: bool, words: str) -> None:
    course.got(course.put("rolled back"), is_sure=is_sure, is_finalized=is_sure)
    assert course.problems() == words


def test_what_nobody_has_put_is_seen(course: Course) -> None:
    course.got(b"r.p.9.3|xxx")
    assert course.problems() == "never put: r.p.9.3"


def test_a_payload_that_is_not_whole_is_seen(course: Course) -> None:
    course.got(course.put()[:-1])
    assert "a payload that nobody put" in course.problems()


def test_a_message_of_another_queue_is_seen(course: Course) -> None:
    course.got(course.put(), queue="twin")
    assert "was put into 'q' and came out of 'twin'" in course.problems()


def test_one_that_came_twice_is_seen_where_nobody_was_killed(course: Course) -> None:
    course.got(course.put())
    course.ledger.got("c", "q", b"r.p.2.3|xxx")
    assert course.problems() == "received more than once, and nobody was killed: r.p.2.3"
    assert course.problems(is_gentle=False) == ""


def test_one_that_was_finalized_twice_is_seen_in_any_case(course: Course) -> None:
    course.left.history.append(("q", "r.p.1.3", 1))
    assert course.problems(is_gentle=False) == "finalized more than once: r.p.1.3"


def test_two_in_the_wrong_order_are_seen(course: Course) -> None:
    second, third = course.put(), course.put()
    course.got(third)
    course.got(second)
    assert course.problems() == "out of order in 'q': r.p.3.3, then r.p.2.3"


def test_what_is_left_behind_is_seen(course: Course) -> None:
    course.left.messages = [("q", "r.p.1.3")]
    course.left.counts_before = [("q", 1)]
    course.left.counts_after = [("q", 0)]
    course.left.participants = ["penstock consumer 4 q"]
    assert course.problems().splitlines() == [
        "not drained: r.p.1.3 in q",
        "the counts were wrong: [('q', 1)] should be [('q', 0)]",
        "participants of the dead remain: penstock consumer 4 q",
    ]


def test_the_log_of_a_process_is_read_up_to_where_it_was_torn(course: Course, tmp_path: Path) -> None:
    log = tmp_path / "log"
    payload = course.put()
    log.write_bytes(b"got\tq\t" + payload + b"\nfailed\t\tOh no\ngot\tq\tr.p")
    course.ledger.read_log("process", log)
    course.left.history.append(("q", "r.p.2.3", 1))
    assert course.problems() == "process: Oh no"
