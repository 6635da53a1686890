"""Decoders under arbitrary bytes: declared errors only, limits kept, and what was read is written back the same."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import budget
from .samples import SAMPLES
from .targets import TARGETS

# No input that fits into a frame may take longer.
SLOWEST_S = 2.0
EDGES = st.sampled_from([0, 1, 0x7F, 0x80, 0xCE, 0xFF, *b"tbBsuIilfdDSATFVxL"])


@st.composite
def mutated(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """A valid sample after a few edits: an octet changed, octets put in, taken out, or copied from elsewhere."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        edit = draw(st.sampled_from(["change", "insert", "delete", "copy", "cut"]))
        if edit == "change" and at < len(data):
            data[at] = draw(st.one_of(EDGES, st.integers(0, 255)))
        elif edit == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        elif edit == "delete":
            del data[at : at + draw(st.integers(1, 8))]
        elif edit == "copy":
            start = draw(st.integers(0, len(data)))
            data[at:at] = data[start : start + draw(st.integers(1, 30))]
        else:
            del data[at:]
    return bytes(data)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_decoder_refuses_bad_bytes_with_declared_errors_only(name: str) -> None:
    target, samples = TARGETS[name], SAMPLES[name]

    @budget.fuzz_settings(500)
    @given(data=st.one_of(mutated(samples), st.binary(max_size=60)))
    def feed(data: bytes) -> None:
        started = time.process_time()
        target(data)
        assert time.process_time() - started < SLOWEST_S

    for _ in budget.rounds(budget.DECODERS_SHARE):
        feed()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_shortened_sample_is_handled(name: str) -> None:
    target = TARGETS[name]
    for sample in SAMPLES[name]:
        for size in range(len(sample) + 1):
            target(sample[:size])
        assert sample, "an empty sample cannot be shortened"


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_changed_octet_of_a_sample_is_handled(name: str) -> None:
    """All the values at which something could change its meaning, at every position."""
    target = TARGETS[name]
    count = 0
    for sample in SAMPLES[name]:
        for at in range(len(sample)):
            for value in (0, 1, sample[at] ^ 0x01, sample[at] ^ 0x80, 0x7F, 0x80, 0xFF):
                target(sample[:at] + bytes((value,)) + sample[at + 1 :])
                count += 1
    assert count > 0
