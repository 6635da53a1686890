"""The checksum of everything on disk: CRC-32 as zlib has it, from the fastest code that is installed.

ISA-L (extra `isal`) uses the processor's carry-less multiplication: the same numbers, many times as fast as zlib
(`python -m benches.checksum`). Files that were written with one are read with the other.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
