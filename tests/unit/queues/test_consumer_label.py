"""What history calls a consumer."""

from __future__ import annotations

import json

import pytest

from penstock.queues.consumers.consumer_label import consumer_label


def test_a_label_says_tag_connection_and_channel() -> None:
    label = consumer_label("täg", "127.0.0.1:5000 -> 127.0.0.1:5672", 3)
    assert json.loads(label) == {"consumer": "täg", "connection": "127.0.0.1:5000 -> 127.0.0.1:5672", "channel": 3}


@pytest.mark.parametrize("character", ["a", "ä", "漢", "\x00", '"', "\udcff", "\U0001f600"])
def test_a_label_is_short_json_whatever_a_client_chose(character: str) -> None:
    label = consumer_label(character * 255, character * 100_000, 65_535)
    assert len(label) <= 1024
    found = json.loads(label.decode())
    assert len(found["consumer"]) > 50
    assert len(found["connection"]) > 50


def test_a_tag_of_bytes_that_are_no_text_is_shown_as_far_as_it_is_one() -> None:
    assert json.loads(consumer_label("a\udcff\udcc3b", "", 1))["consumer"] == "a\ufffd\ufffdb"
