"""Whether a queue is paused is part of its definition; definitions of before there was such a thing still load."""

from __future__ import annotations

import pytest

from penstock.broker.definitions import definitions
from penstock.broker.definitions.definitions import (
    BadDefinitions,
    Definitions,
    QueueDefinition,
    encode_all,
    encode_change,
)

ID = "5e" * 16


def loaded(*queues: QueueDefinition) -> dict[str, QueueDefinition]:
    found = Definitions()
    found.load(b"".join(encode_all([definitions.vhost_whole("/", ID, [], queues, [])])))
    return found.vhosts["/"].queues


def test_a_paused_queue_is_paused_when_it_is_loaded() -> None:
    queues = loaded(QueueDefinition("q", ID, False, {}, True), QueueDefinition("other", ID, False, {}))
    assert {name: queue.paused for name, queue in queues.items()} == {"q": True, "other": False}


def test_a_queue_that_is_not_paused_is_written_as_before() -> None:
    assert "paused" not in definitions.queue_json(QueueDefinition("q", ID, False, {}))


def test_the_last_change_counts() -> None:
    found = Definitions()
    found.apply(encode_change(definitions.vhost_declared("/", ID)))
    for is_paused in (False, True, False):
        queue = QueueDefinition("q", ID, False, {}, is_paused)
        found.apply(encode_change(definitions.queue_declared("/", queue)))
        assert found.vhosts["/"].queues["q"].paused == is_paused


def test_paused_is_true_or_false() -> None:
    change = definitions.queue_declared("/", QueueDefinition("q", ID, False, {}))
    found = Definitions()
    found.apply(encode_change(definitions.vhost_declared("/", ID)))
    with pytest.raises(BadDefinitions):
        found.apply(encode_change({**change, "paused": "yes"}))
    assert found.vhosts["/"].queues == {}
