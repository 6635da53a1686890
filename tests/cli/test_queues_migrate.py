"""`penstock queues migrate`: what it shows, what it does to a queue with clients, and what it says when it cannot."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import main as penstock
from tests.features.stage import Stage, declare, drain, on_stage, persistent, publish, ready, take, wait_for_ready
from tests.interop.pika_inbox import Inbox

PAGE = Path(__file__).parents[2] / "docs" / "migrate.md"


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Stage]:
    with on_stage(tmp_path / "data") as stage:
        yield stage


def migrate(stage: Stage, *words: str) -> Result:
    folder = stage.look(lambda server: server.broker.config.data_dir)
    return CliRunner().invoke(penstock, ["queues", "migrate", *words, "--data-dir", str(folder)])


def test_the_commands_of_the_page_do_what_it_says(durable: Stage) -> None:
    channel = durable.channel()
    declare(channel, "orders")
    publish(channel, "orders", b"0", b"1", b"2")
    lines = PAGE.read_text().splitlines()
    commands = [shlex.split(line)[3:] for line in lines if line.startswith("    penstock queues migrate ")]
    assert len(commands) == 4
    for words in commands:
        result = migrate(durable, *words)
        assert result.exit_code == 0, result.output
        if "--dry-run" in words:
            shown = [line[4:] for line in lines if line.startswith("    ") and "penstock" not in line]
            assert result.output.splitlines() == shown
    last = json.loads(result.output)
    assert last["changes"] == [{"name": "x-message-ttl", "before": 60000, "after": None}]
    declare(channel, "orders", x_max_priority=5, x_dead_letter_exchange="late")
    assert drain(channel, "orders") == [b"0", b"1", b"2"]


def test_a_consumer_goes_on_and_acknowledges_what_it_had(durable: Stage) -> None:
    channel = durable.channel()
    declare(channel, "q")
    channel.queue_bind("q", "amq.fanout")
    channel.basic_qos(prefetch_count=2)
    inbox = Inbox()
    for number in range(6):
        channel.basic_publish("", "q", b"%d" % number, persistent(priority=number))
    channel.basic_consume("q", inbox)
    inbox.wait_for(channel, 2)
    result = migrate(durable, "q", "--set", "x-max-priority=9", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["messages_unacknowledged"] == 2
    channel.basic_publish("amq.fanout", "", b"top", persistent(priority=9))
    channel.basic_ack(inbox.tags[0])
    channel.basic_nack(inbox.tags[1], requeue=True)
    inbox.wait_for(channel, 4)
    for count in range(3, 8):
        channel.basic_ack(inbox.tags[count - 1])
        inbox.wait_for(channel, min(count + 2, 8))
    assert inbox.bodies == [b"0", b"1", b"top", b"5", b"4", b"3", b"2", b"1"]
    assert inbox.redelivered == [False] * 7 + [True]
    channel.basic_ack(inbox.tags[-1])
    # The answer comes behind the acknowledgement.
    assert ready(channel, "q") == 0
    durable.stop_and_start()
    channel = durable.channel()
    declare(channel, "q", x_max_priority=9)
    assert ready(channel, "q") == 0


def test_many_messages_are_moved_in_slices_while_others_are_served(durable: Stage) -> None:
    channel = durable.channel(confirms=False)
    declare(channel, "q")
    declare(channel, "other")
    count = 5000
    for number in range(count):
        channel.basic_publish("", "q", b"%d" % number, persistent(priority=number % 3))
    wait_for_ready(channel, "q", count)
    assert migrate(durable, "q", "--set", "x-max-priority=2").exit_code == 0
    publish(channel, "other", b"x")
    assert take(channel, "other")[2] == b"x"
    found = [int(body) for body in drain(channel, "q")]
    assert found == [number for priority in (2, 1, 0) for number in range(count) if number % 3 == priority]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("q", "--set", "durable=false"), 1, "durable cannot be changed in place: declare another queue"),
        (("q", "--set", "x-max-length=-1"), 1, "invalid arg 'x-max-length' for queue 'q' in vhost '/'"),
        (("nowhere", "--set", "x-max-length=1"), 1, "no queue 'nowhere' in vhost '/'"),
        (("q",), 1, "nothing is to be changed"),
        (("q", "--set", "x-max-length"), 2, "'x-max-length' is not KEY=VALUE"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    durable: Stage, words: tuple[str, ...], code: int, text: str
) -> None:
    declare(durable.channel(), "q")
    result = migrate(durable, *words)
    assert (result.exit_code, text in result.output) == (code, True), result.output


def test_what_is_so_already_is_said(durable: Stage) -> None:
    declare(durable.channel(), "q", x_max_length=5)
    result = migrate(durable, "q", "--set", "x-max-length=5")
    assert result.output.splitlines()[-1] == "it is like that already"


def test_without_a_broker_it_says_what_to_do(tmp_path: Path) -> None:
    words = ["queues", "migrate", "q", "--set", "x-max-length=5", "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(penstock, words)
    assert result.exit_code == 1
    assert "start one with `penstock serve`" in result.output
