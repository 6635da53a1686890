"""The source's options: any case, nothing ignored, limits on what comes from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline.source.options import (
    OptionError,
    Position,
    SourceOptions,
    read_options,
    refuse_batch_options,
    refuse_stream_options,
)


def options(**given: str) -> SourceOptions:
    return read_options({"source": "/data", **given})


def test_what_is_not_said_has_a_default() -> None:
    assert options() == SourceOptions(source="/data")


def test_names_are_compared_in_lower_case() -> None:
    found = read_options({"SOURCE": "/data", "maxRecordsPerTrigger": "5", "STARTINGOFFSETS": "latest"})
    assert (found.records_max, found.starting) == (5, Position("latest"))


def test_a_folder_is_the_same_for_workers_with_another_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_options({"source": "data"}).source == str(tmp_path / "data")
    for url in ("http://host:1/data", "file:///data"):
        assert read_options({"source": url}).source == url


def test_load_with_a_path_is_the_source() -> None:
    assert read_options({"path": "/data"}).source == "/data"
    with pytest.raises(OptionError, match="given twice"):
        read_options({"path": "/data", "source": "/data"})


@pytest.mark.parametrize("view", ["events", "runs", "messages", "postgres"])
def test_an_unknown_option_is_named_with_those_that_there_are(view: str) -> None:
    place = {"url": "postgresql://h/d"} if view == "postgres" else {"source": "/data"}
    assert read_options({"view": view, **place}).view == view
    with pytest.raises(OptionError, match=rf"the view {view} has no option 'offset'; .*startingOffsets"):
        read_options({"view": view, **place, "offset": "1"})


def test_an_option_of_another_view_is_refused() -> None:
    with pytest.raises(OptionError, match="the view events has no option 'url'"):
        options(url="postgresql://h/d")
    with pytest.raises(OptionError, match="the view postgres has no option 'reader'"):
        read_options({"view": "postgres", "url": "postgresql://h/d", "reader": "r"})


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position("earliest")),
        ("LATEST", Position("latest")),
        ("0", Position(number=0)),
        ("9223372036854775807", Position(number=2**63 - 1)),
        ("9999999999999999999", Position(number=2**63 - 1)),
        ("1970-01-01T00:00:01", Position(us=1_000_000)),
        ("1970-01-01T00:00:01Z", Position(us=1_000_000)),
        ("1970-01-01 01:00:00.000001+01:00", Position(us=1)),
        ("1969-12-31T23:59:59.999999Z", Position(us=-1)),
        ("2026-01-31", Position(us=1_769_817_600_000_000)),
    ],
)
def test_a_position_is_a_word_a_number_or_a_time(text: str, position: Position) -> None:
    assert options(startingoffsets=text).starting == position


@pytest.mark.parametrize("text", ["", "first", "-1", "1.5", "99999999999999999999", "yesterday", "2026-13-01"])
def test_a_position_that_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets is"):
        options(startingoffsets=text)


def test_a_transaction_has_no_time() -> None:
    place = {"view": "postgres", "url": "postgresql://h/d"}
    assert read_options({**place, "startingoffsets": "17"}).starting == Position(number=17)
    with pytest.raises(OptionError, match="transaction id"):
        read_options({**place, "startingoffsets": "2026-01-01"})


def test_kinds_are_a_list_with_commas() -> None:
    assert options(kinds="published, Acked").kinds == {"published", "acked"}
    with pytest.raises(OptionError, match="there is no 'sent'; the kinds are acked,"):
        options(kinds="published,sent")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxRecordsPerTrigger", "0"),
        ("maxRecordsPerTrigger", "many"),
        ("maxBytesPerTrigger", "-5"),
        ("maxBytesPerTrigger", "9223372036854775808"),
        ("partitionBytes", "1023"),
        ("failOnDataLoss", "yes"),
        ("bodies", "1"),
    ],
)
def test_values_have_limits(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is '{value}'"):
        options(**{name.lower(): value})


def test_a_source_is_needed() -> None:
    with pytest.raises(OptionError, match="source is missing"):
        read_options({})
    with pytest.raises(OptionError, match="needs the option url"):
        read_options({"view": "postgres"})
    with pytest.raises(OptionError, match="there is no view 'lives'; the views are events, runs"):
        options(view="lives")


def test_the_password_comes_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_USER", "reader")
    monkeypatch.setenv("PENSTOCK_PASSWORD", "hidden")
    found = options()
    assert (found.user, found.password) == ("reader", "hidden")
    assert "hidden" not in repr(found)
    assert options(user="other", password="own").password == "own"


def test_a_batch_has_no_cursor_and_a_stream_no_end() -> None:
    with pytest.raises(OptionError, match="reader is for streams"):
        refuse_stream_options(options(reader="r"))
    with pytest.raises(OptionError, match="for streams"):
        refuse_stream_options(options(maxbytespertrigger="5"))
    with pytest.raises(OptionError, match="endingOffsets is for batches"):
        refuse_batch_options(options(endingoffsets="7"))
    with pytest.raises(OptionError, match="pushFilters is for batches"):
        refuse_batch_options(options(pushfilters="true"))
