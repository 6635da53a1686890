"""Properties looked at all at once say what they say one by one, whatever octets they are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fields import Field, Table
from penstock.message import FRAME_END, unlike
from penstock.pipeline.decode import decoded
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.properties.header_octets import HeaderOctets
from penstock.pipeline.decode.properties.properties import headers_of, read_facts
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from penstock.wire.properties import Properties, encode_properties
from penstock.wire.tables import encode_table
from tests.pipeline.decode.journals import JournalFolder, envelope

COLUMNS = ("message_id", "correlation_id", "content_type", "headers", "problem")

texts = st.one_of(st.none(), st.text(max_size=10), st.just("\udcff"))
simple: st.SearchStrategy[Field] = st.one_of(
    st.tuples(st.just("S"), st.binary(max_size=12)),
    st.tuples(st.just("S"), st.text(max_size=6).map(str.encode)),
    st.tuples(st.just("x"), st.binary(max_size=5)),
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.just("b"), st.integers(-128, 127)),
    st.tuples(st.just("B"), st.integers(0, 255)),
    st.tuples(st.just("s"), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just("u"), st.integers(0, 2**16 - 1)),
    st.tuples(st.just("I"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("i"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("l"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("d"), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1))),
    st.tuples(st.just("T"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("V"), st.none()),
)
names = st.text(max_size=8)
fields: st.SearchStrategy[Field] = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(st.just("A"), st.lists(inner, max_size=3)),
        st.tuples(st.just("F"), st.dictionaries(names, inner, max_size=3)),
    ),
    max_leaves=4,
)
tables: st.SearchStrategy[Table] = st.dictionaries(names, fields, max_size=5)
well_formed = st.builds(
    Properties,
    content_type=texts,
    content_encoding=texts,
    headers=st.one_of(st.none(), tables),
    delivery_mode=st.one_of(st.none(), st.integers(0, 255)),
    priority=st.one_of(st.none(), st.integers(0, 255)),
    correlation_id=texts,
    reply_to=texts,
    expiration=texts,
    message_id=texts,
    timestamp=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    type=texts,
    user_id=texts,
    app_id=texts,
    cluster_id=texts,
).map(encode_properties)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Well-formed octets of which one is another, or some are missing or too many."""
    octets = bytearray(draw(well_formed))
    at = draw(st.integers(0, len(octets) - 1))
    how = draw(st.sampled_from(["change", "cut", "add", "insert"]))
    if how == "change":
        octets[at] = draw(st.integers(0, 255))
    elif how == "cut":
        del octets[at:]
    elif how == "add":
        octets += draw(st.binary(min_size=1, max_size=3))
    else:
        octets[at:at] = draw(st.binary(min_size=1, max_size=2))
    return bytes(octets)


any_octets = st.one_of(well_formed, spoiled(), st.binary(max_size=20))


@given(octets=st.lists(any_octets, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_all_at_once_is_the_same_as_one_by_one(octets: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded, "FEW_ENTRIES", 0)
        house = JournalFolder(Path(folder))
        # Two different ones, so that the run does not share them.
        house.journal.publish(
            1, 0, unlike([(envelope(each), FRAME_END, None) for each in (b"\0\0", b"\0\0\0", *octets)]), -1
        )
        house.finish()
        log = house.log()
        rows = []
        for part in plan(log, 0, log.state().end_lsn):
            for batch in read_range(log, part, Request(columns=COLUMNS)):
                batch.validate(full=True)
                rows += batch.to_pylist()
        log.close()
    assert [tuple(row.values()) for row in rows[2:]] == [tuple(read_facts(each)) for each in octets]


@given(table=tables)
@settings(max_examples=200, deadline=None)
def test_the_short_way_to_headers_says_what_the_long_way_says(table: Table) -> None:
    flat = HeaderOctets().flat_headers(encode_table(table)[4:])
    if flat is not None:
        assert [(name.decode(), value.decode()) for name, value in zip(*flat, strict=True)] == headers_of(table)
    else:
        # It gives up on octets that are not UTF-8 only.
        assert any("base64" in value for _, value in headers_of(table))


def test_values_that_are_remembered_are_bounded() -> None:
    octets = HeaderOctets()
    for number in range(2500):
        (_, values) = octets.flat_headers(encode_table({"n": ("d", number / 2)})[4:]) or ([], [])
        assert values == [b"%.1f" % (number / 2)]
    assert len(octets) <= 1000
