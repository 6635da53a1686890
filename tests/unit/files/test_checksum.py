"""The checksum is that of zlib, whoever computes it: files go from one machine to another."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.disk.checksum import crc32

# As on a machine without ISA-L.
WITHOUT_ISAL = """
import sys
sys.modules["isal"] = sys.modules["isal.isal_zlib"] = None
from penstock.disk.checksum import crc32
import zlib
assert crc32 is zlib.crc32
print(crc32(b"penstock", 7))
"""


@given(st.binary(max_size=5_000), st.integers(0, 2**32 - 1), st.integers(0, 64))
def test_it_is_zlibs_for_any_bytes_start_and_alignment(data: bytes, start: int, skipped: int) -> None:
    assert crc32(memoryview(data)[skipped:], start) == zlib.crc32(data[skipped:], start)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 1024, 65_535, 65_536, 5_000_000])
def test_it_is_zlibs_at_the_sizes_where_fast_code_changes_its_way(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert crc32(data[:size]) == zlib.crc32(data[:size])
    assert crc32(data[size // 3 : size], crc32(data[: size // 3])) == zlib.crc32(data[:size])


def test_the_fast_one_is_used_where_it_is_installed() -> None:
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal has no wheel for this machine")
    assert crc32 is isal_zlib.crc32


def test_without_it_zlib_does_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ISAL], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == zlib.crc32(b"penstock", 7)
