"""What a replay is made of, without Spark: slices, addresses, properties, state, arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.jobs.replay import options_of, replay
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.publishing.planning import preview
from penstock.pipeline.publishing.replayed import Destination, replayed_batch, replayed_properties
from penstock.pipeline.publishing.resuming import ReplayState, Resuming, check_name
from penstock.pipeline.publishing.selection import Selection, SelectionError, check_selection
from penstock.pipeline.publishing.slices import BUCKETS_MAX, bucket_width, slices_of
from penstock.wire.properties import Properties, decode_properties, encode_properties


@given(
    lsns=st.sets(st.integers(0, 20_000), min_size=1, max_size=200),
    rows_wanted=st.integers(1, 50),
    offset=st.sampled_from([0, 10**12]),
)
def test_each_position_is_in_one_slice_and_slices_are_not_larger_than_asked(
    lsns: set[int], rows_wanted: int, offset: int
) -> None:
    chosen = sorted(lsn + offset for lsn in lsns)
    first, last = chosen[0], chosen[-1]
    width = bucket_width(first, last)
    assert (last - first) // width < BUCKETS_MAX
    counts: dict[int, int] = {}
    for lsn in chosen:
        counts[(lsn - first) // width] = counts.get((lsn - first) // width, 0) + 1
    slices = slices_of(counts.items(), first, width, rows_wanted)
    found = [[lsn for lsn in chosen if one.from_lsn <= lsn < one.to_lsn] for one in slices]
    assert [lsn for part in found for lsn in part] == chosen
    assert [len(part) for part in found] == [one.rows for one in slices]
    assert all(one.rows <= max(rows_wanted, max(counts.values())) for one in slices)
    assert all(before.to_lsn <= after.from_lsn for before, after in pairwise(slices))


@pytest.mark.parametrize(
    ("destination", "address"),
    [
        (Destination(), ("", "orders")),
        (Destination(queue="target"), ("", "target")),
        (Destination(exchange="x"), ("x", "key")),
        (Destination(exchange="x", routing_key="k"), ("x", "k")),
        (Destination(exchange="x", routing_key=""), ("x", "")),
        (Destination(original=True), ("topic", "key")),
    ],
    ids=str,
)
def test_a_message_goes_where_it_is_told(destination: Destination, address: tuple[str, str]) -> None:
    assert destination.address("orders", "topic", "key") == address


def test_two_destinations_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one"):
        Destination(queue="a", original=True)
    with pytest.raises(ValueError, match="a routing key goes with an exchange"):
        Destination(routing_key="k")


def test_a_replayed_message_begins_a_new_life_and_says_where_it_comes_from() -> None:
    old = Properties(
        content_type="text/plain",
        delivery_mode=1,
        expiration="10",
        user_id="ada",
        headers={"a": ("I", 5), "x-death": ("A", []), "CC": ("A", []), "x-delivery-count": ("l", 2)},
    )
    new = decode_properties(replayed_properties(encode_properties(old), "n", 7, "orders", "guest"))
    assert new.headers == {
        "a": ("I", 5),
        "x-penstock-replayed": ("S", b"n"),
        "x-penstock-replayed-lsn": ("l", 7),
        "x-penstock-replayed-queue": ("S", b"orders"),
    }
    assert (new.content_type, new.delivery_mode, new.expiration, new.user_id) == ("text/plain", 1, None, None)
    kept = decode_properties(replayed_properties(encode_properties(old), "n", 7, None, "ada"))
    assert kept.user_id == "ada"
    assert decode_properties(replayed_properties(None, "n", 7, None, "ada")).message_id is None


def test_a_batch_of_events_becomes_a_batch_for_the_sink() -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {"lsn": 3, "queue": "q", "exchange": "e", "routing_key": "k", "properties": b"\x00\x00", "body": b"1"},
            {"lsn": 9, "queue": None, "exchange": None, "routing_key": None, "properties": None, "body": b""},
        ]
    )
    rows = replayed_batch(batch, "n", Destination(original=True), "guest").to_pylist()
    assert [(row["exchange"], row["routing_key"], row["dedup_key"], row["body"]) for row in rows] == [
        ("e", "k", "replay/n/3", b"1"),
        ("", "", "replay/n/9", b""),
    ]


def test_a_name_remembers_how_far_it_came_and_what_for(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    name = "../../etc/\u00e4 name"
    assert Resuming(lake, name, "this").load() == ReplayState()
    Resuming(lake, name, "this").save(5, 9, done=False)
    assert Resuming(lake, name, "this").load() == ReplayState(5, 9, False)
    assert Resuming(lake, "other", "this").load() == ReplayState()
    [file] = (lake.own / "replays").iterdir()
    assert file.suffix == ".json"
    with pytest.raises(SelectionError, match="choose another name"):
        Resuming(lake, name, "that").load()


@pytest.mark.parametrize("name", ["", "n" * 129, "a\nb"])
def test_a_name_that_nobody_can_read_is_refused(name: str) -> None:
    with pytest.raises(SelectionError, match="printable"):
        check_name(name)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(SelectionError, match="time zone"):
        check_selection(Selection(since=datetime(2026, 1, 1)))  # noqa: DTZ001


def test_arguments_become_options() -> None:
    text = (
        "--broker amqp://h --lake l --queue q --from 2026-01-31T08:00:00 --to 2026-01-31T08:00:00+02:00 --header a=b=c"
    )
    text += " --outcome dead-lettered --reason expired --to-exchange x --to-routing-key k --rate-limit 5 --ordered"
    options = options_of(replay.make_context("replay", text.split()).params)
    assert options.selection == Selection(
        queue="q",
        since=datetime(2026, 1, 31, 8, tzinfo=UTC),
        until=datetime(2026, 1, 31, 8, tzinfo=timezone(timedelta(hours=2))),
        headers=(("a", "b=c"),),
        outcomes=("dead-lettered",),
        reasons=("expired",),
    )
    assert options.destination == Destination(exchange="x", routing_key="k")
    assert (options.rate_limit, options.ordered, options.dry_run, options.slice_rows) == (5.0, True, False, 50_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--from yesterday", "'yesterday' is no time"),
        ("--header colour", "NAME=VALUE"),
        ("--to-queue q --to-original", "choose one"),
    ],
)
def test_arguments_that_make_no_sense_are_said(text: str, words: str) -> None:
    with pytest.raises(SelectionError, match=words):
        options_of(replay.make_context("replay", ["--broker", "amqp://h", *text.split()]).params)


def test_bodies_are_shown_without_what_a_terminal_would_do() -> None:
    assert preview(b"a\x1b[31m\n\xff", 8) == "a\\x1b[31m\\n\\xff"
    assert preview(b"x" * 80, 81) == "x" * 80 + "…"
    assert preview(None, 9) == "(gone)"
