"""The judge itself: a history in which all is well passes, and each kind of anomaly is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.checker import Checker

Line = list[Any]
Files = dict[str, list[Line]]

DRIVER, PUBLISHER, MOVER, CONSUMER, OTHER = "driver", "p0", "mover", "c0", "c1"


def publish(time_s: float, tag: int, queues: list[str], transaction: str = "", mode: int = 2, life: int = 0) -> Line:
    return ["invoke publish", life, time_s, 1, tag, f"p0-1-{tag}", queues, 70 + tag, 0, mode, transaction, ""]


def delivery(time_s: float, tag: int, number: int, redelivered: bool = False, life: int = 0, queue: str = "q") -> Line:
    return ["ok delivery", life, time_s, 1 + life, tag, queue, redelivered, f"p0-1-{number}", 70 + number, 0, 2]


def settle(time_s: float, tag: int, how: str = "ack", multiple: bool = False, life: int = 0) -> Line:
    return ["invoke settle", life, time_s, 1 + life, tag, multiple, how, ""]


def good_history() -> Files:
    """Three confirmed messages and a committed one; the second and third are delivered again after a kill."""
    return {
        DRIVER: [
            ["info start", 0, 0.0, 0.3, [], 0],
            ["info end", 0, 10.0, "kill"],
            ["info start", 1, 11.0, 0.3, ["the last 9 bytes, from 4 on, are a batch that was never completed"], 100],
            ["ok audit", 1, 19.0, "queue", 1, ""],
            ["info end", 1, 20.0, "term"],
        ],
        PUBLISHER: [
            publish(1.0, 1, ["q"]),
            publish(1.1, 2, ["q"]),
            ["ok confirm", 0, 1.2, 1, 2, True],
            publish(5.0, 3, ["q"]),
            ["ok confirm", 0, 5.1, 1, 3, False],
            publish(6.0, 4, ["q"], "tx"),
            publish(6.0, 5, ["q"], "tx"),
            ["invoke commit", 0, 6.1, 1, "tx"],
            ["ok commit", 0, 6.2, 1, "tx"],
            publish(9.9, 6, ["q"]),
            ["info lost", 0, 10.1, 1, "end of the stream"],
        ],
        CONSUMER: [
            delivery(2.0, 1, 1),
            settle(2.1, 1),
            ["ok barrier", 0, 2.2, 1],
            delivery(2.3, 2, 2),
            ["info lost", 0, 10.1, 1, "end of the stream"],
            delivery(12.0, 1, 2, True, life=1),
            delivery(12.1, 2, 3, True, life=1),
            settle(12.2, 2, multiple=True, life=1),
            delivery(12.3, 3, 4, True, life=1),
            delivery(12.4, 4, 5, True, life=1),
            settle(12.5, 3, how="reject", life=1),
            settle(12.6, 4, life=1),
            ["ok barrier", 1, 12.7, 2],
            ["ok closed", 1, 13.0, 2],
        ],
    }


def check(files: Files, folder: Path) -> set[str]:
    """The kinds of anomalies."""
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {kind for kind, _ in Checker(folder).anomalies}


def test_a_history_in_which_all_is_well_has_no_anomaly(tmp_path: Path) -> None:
    assert check(good_history(), tmp_path) == set()


def lose_a_confirmed_message(files: Files) -> None:
    # It was delivered, but nobody has settled it in the end.
    files[CONSUMER] = [line for line in files[CONSUMER] if line != delivery(12.0, 1, 2, True, life=1)]


def lose_a_committed_message(files: Files) -> None:
    files[CONSUMER].remove(delivery(12.4, 4, 5, True, life=1))
    files[CONSUMER].remove(settle(12.6, 4, life=1))


def deliver_what_nobody_published(files: Files) -> None:
    files[CONSUMER].insert(4, delivery(3.0, 3, 99))


def deliver_to_another_queue(files: Files) -> None:
    files[CONSUMER].insert(4, delivery(3.0, 3, 2, queue="other"))


def deliver_what_was_rolled_back(files: Files) -> None:
    files[PUBLISHER] += [publish(7.0, 7, ["q"], "undone"), ["ok rollback", 0, 7.1, 1, "undone"]]
    files[CONSUMER].insert(4, delivery(7.2, 3, 7))


def deliver_other_bytes(files: Files) -> None:
    files[CONSUMER][3][8] += 1


def deliver_twice_as_if_new(files: Files) -> None:
    files[CONSUMER][5][6] = False


def say_redelivered_without_reason(files: Files) -> None:
    files[CONSUMER][0][6] = True


def bring_back_in_the_same_life(files: Files) -> None:
    files[CONSUMER].insert(3, delivery(2.25, 2, 1, True))
    files[CONSUMER][4][4] = 3


def bring_back_although_a_later_publish_was_confirmed(files: Files) -> None:
    files[CONSUMER].insert(5, delivery(11.9, 9, 1, True, life=1))


def bring_back_after_a_clean_stop(files: Files) -> None:
    files[DRIVER].append(["info start", 2, 21.0, 0.3, [], 0])
    files[CONSUMER] += [delivery(22.0, 1, 4, True, life=2), settle(22.1, 1, life=2)]


def change_the_order(files: Files) -> None:
    lines = files[CONSUMER]
    lines[5][7:9], lines[6][7:9] = lines[6][7:9], lines[5][7:9]


def do_half_a_transaction(files: Files) -> None:
    files[PUBLISHER] = [line for line in files[PUBLISHER] if line[0] != "ok commit"]
    files[CONSUMER].remove(delivery(12.4, 4, 5, True, life=1))
    files[CONSUMER].remove(settle(12.6, 4, life=1))


def move_twice(files: Files) -> None:
    files[MOVER] = []
    for number, name in enumerate(("one", "two")):
        tag = 10 + number
        files[MOVER] += [
            delivery(3.0 + number, tag, 2, redelivered=True),
            ["invoke publish", 0, 3.1 + number, 1, tag, f"m-{number}", ["target"], 1, 0, 2, name, "p0-1-2"],
            ["invoke settle", 0, 3.2 + number, 1, tag, False, "ack", name],
            ["invoke commit", 0, 3.3 + number, 1, name],
            ["ok commit", 0, 3.4 + number, 1, name],
        ]
        files.setdefault(OTHER, [])
        files[OTHER] += [
            ["ok delivery", 0, 3.5 + number, 1, number + 1, "target", False, f"m-{number}", 1, 0, 2],
            settle(3.6 + number, number + 1),
        ]


def keep_a_transient_message(files: Files) -> None:
    files[PUBLISHER][3] = publish(5.0, 3, ["q"], mode=1)


def confirm_twice(files: Files) -> None:
    files[PUBLISHER].insert(3, ["ok confirm", 0, 1.3, 1, 1, False])


def confirm_what_was_not_published(files: Files) -> None:
    files[PUBLISHER].insert(0, ["ok confirm", 0, 0.5, 1, 1, True])


def refuse_without_a_full_disk(files: Files) -> None:
    files[PUBLISHER].insert(-1, ["fail confirm", 0, 9.95, 1, 6, False])


def close_without_an_answer(files: Files) -> None:
    files[PUBLISHER][-1] = ["ok closed", 0, 9.99, 1]


def end_a_connection_of_a_broker_that_lives(files: Files) -> None:
    files[PUBLISHER][-1][2] = 9.95


def close_with_an_error(files: Files) -> None:
    files[PUBLISHER][-1][4] = "541 INTERNAL_ERROR"


def lose_a_definition(files: Files) -> None:
    files[DRIVER].insert(-1, ["fail audit", 1, 19.0, "queue", 2, "NOT_FOUND"])


def complain_at_recovery(files: Files) -> None:
    files[DRIVER][2][4] = ["4 bytes at 7 are damaged"]


def send_a_surprise(files: Files) -> None:
    files[CONSUMER].insert(0, ["info surprise", 0, 1.0, 1, "Basic.Cancel"])


@pytest.mark.parametrize(
    ("spoil", "kinds"),
    [
        (lose_a_confirmed_message, {"lost"}),
        (lose_a_committed_message, {"lost", "transaction"}),
        (deliver_what_nobody_published, {"invented"}),
        (deliver_to_another_queue, {"invented"}),
        (deliver_what_was_rolled_back, {"invented"}),
        (deliver_other_bytes, {"wrong bytes"}),
        (deliver_twice_as_if_new, {"duplicate"}),
        (say_redelivered_without_reason, {"unexplained"}),
        (bring_back_in_the_same_life, {"resurrected"}),
        (bring_back_although_a_later_publish_was_confirmed, {"resurrected"}),
        (bring_back_after_a_clean_stop, {"resurrected"}),
        (change_the_order, {"order"}),
        (do_half_a_transaction, {"transaction"}),
        (move_twice, {"resurrected", "transaction"}),
        (keep_a_transient_message, {"transient"}),
        (confirm_twice, {"confirm"}),
        (confirm_what_was_not_published, {"confirm"}),
        (refuse_without_a_full_disk, {"confirm"}),
        (close_without_an_answer, {"confirm"}),
        (end_a_connection_of_a_broker_that_lives, {"connection"}),
        (close_with_an_error, {"connection"}),
        (lose_a_definition, {"definition"}),
        (complain_at_recovery, {"recovery complains"}),
        (send_a_surprise, {"surprise"}),
    ],
)
def test_each_kind_of_anomaly_is_seen(spoil: Callable[[Files], None], kinds: set[str], tmp_path: Path) -> None:
    files = good_history()
    spoil(files)
    assert check(files, tmp_path) == kinds
