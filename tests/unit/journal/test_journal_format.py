"""The format as docs/formats/journal.md describes it: read here with nothing but `struct` and `zlib`."""

from __future__ import annotations

import struct
import warnings
import zlib
from array import array
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from journal_house import FOLDER, House, bodies, envelope
from tests.tidy_rules import ROOT

from penstock.journal.format import rows
from penstock.journal.format.encoding import Stamp
from penstock.journal.format.layout import FIRST_BATCH_AT, HEAD_BYTES, HEADER_BYTES, ROW_BYTES
from penstock.journal.options import JournalOptions
from penstock.journal.reading.replay import BatchView, replay
from penstock.message import unlike

HEADER = "<4sHHQqqqqIIIIIIIIIIII"
ROW = "<qiiiiiBBhq"


class PlainBatch:
    """A batch decoded by the letter of the page, without any code of the broker."""

    def __init__(self, data: bytes, pos: int) -> None:
        fields = struct.unpack_from(HEADER, data, pos)
        magic, version, self.flags, salt, own_pos, self.first_lsn, self.durable_lsn, self.wall_us = fields[:8]
        self.prev_crc, self.events, row_count, entries, props_bytes, body_bytes, blocks = fields[8:15]
        meta_crc, heap_crc, self.segment, reserved, self.crc = fields[15:]
        assert (magic, version, own_pos, reserved) == (b"PNJB", 1, pos, 0)
        seed = zlib.crc32(struct.pack("<Q", salt))
        assert zlib.crc32(data[pos : pos + 92], seed) == self.crc
        at = pos + 96
        heap_at = at + 40 * row_count + 8 * entries + 4 * blocks
        assert zlib.crc32(data[at:heap_at], seed) == meta_crc
        self.rows = list(struct.iter_unpack(ROW, data[at : at + 40 * row_count]))
        at += 40 * row_count
        self.props_len = struct.unpack_from(f"<{entries}i", data, at)
        self.body_len = struct.unpack_from(f"<{entries}i", data, at + 4 * entries)
        crcs = struct.unpack_from(f"<{blocks}I", data, at + 8 * entries)
        heap = data[heap_at : heap_at + props_bytes + body_bytes]
        assert blocks == -(-len(heap) // 4096)
        assert zlib.crc32(heap, seed) == heap_crc
        for number, crc in enumerate(crcs):
            before = crcs[number - 1] if number else seed
            assert zlib.crc32(heap[number * 4096 : number * 4096 + 4096], before) == crc
        ends = list(accumulate((*self.props_len, *self.body_len), initial=0))
        pieces = [heap[start:end] for start, end in pairwise(ends)]
        self.props, self.bodies = pieces[:entries], pieces[entries:]
        end = heap_at + len(heap)
        self.end = (end + 7) // 8 * 8
        assert data[end : self.end] == bytes(self.end - end)


def busy_house() -> House:
    house = House(lsn=500, options=JournalOptions(idle_s=1.0))
    house.publish(0, [b"x" * 700 for _ in range(30)])
    house.publish(7, [b"", b"y"], 2)
    house.commit()
    entries = [(envelope(key, bytes([16, 0, number])), bodies(b"m")[0], None) for number, key in enumerate("aab")]
    house.journal.publish(1, 30, unlike(entries), -1)
    house.journal.define(b"{}")
    house.commit()
    house.journal.settle(rows.ACKED, 1, 0, 30, 21_000)
    house.journal.forget_queue(2)
    house.commit()
    house.clock.advance(1)
    house.journal.commit()
    return house


def test_a_segment_read_by_the_letter_of_the_page_equals_what_the_reader_sees() -> None:
    house = busy_house()
    data = house.bytes()
    views: list[tuple[int, PlainBatch]] = []

    def visit(view: BatchView) -> None:
        plain = PlainBatch(data, view.pos)
        assert (plain.first_lsn, plain.durable_lsn, plain.wall_us) == (view.first_lsn, view.durable_lsn, view.wall_us)
        assert (plain.flags, plain.segment, plain.end) == (view.flags, view.segment, view.end)
        assert plain.rows == view.rows
        assert (array("i", plain.props_len), array("i", plain.body_len)) == (view.props_len, view.body_len)
        assert plain.props == [view.props(entry) for entry in range(len(plain.props))]
        assert plain.bodies == [view.body(entry) for entry in range(len(plain.bodies))]
        assert plain.events == sum(row[3] for row in view.rows) == view.next_lsn - view.first_lsn
        views.append((view.pos, plain))

    end = replay(house.files, FOLDER, 0, 0, visit)
    assert [pos for pos, _ in views] == [4160, *[plain.end for _, plain in views[:-1]]]
    assert views[-1][1].end == len(data)
    assert [plain.flags for _, plain in views] == [0, 0, 0, 1]
    assert [plain.prev_crc for _, plain in views] == [0, *[plain.crc for _, plain in views[:-1]]]
    assert views[0][1].first_lsn == 500
    assert end.next_lsn == views[-1][1].first_lsn


def test_the_head_read_by_the_letter_of_the_page() -> None:
    house = busy_house()
    head = house.bytes()[:64]
    magic, version, reserved, _, segment, first_lsn, wall_us, crc = struct.unpack("<4sHHQqqq20xI", head)
    assert (magic, version, reserved, segment, first_lsn) == (b"PNJS", 1, 0, 1, 500)
    assert wall_us == 1_700_000_000_000_000
    assert crc == zlib.crc32(head[:60])
    assert house.bytes()[4096:4160] == head
    assert house.bytes()[64:4096] == bytes(4032)


def test_the_numpy_lines_of_the_page_read_every_published_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numpy")
    house = busy_house()
    (tmp_path / "00000001.pnj").write_bytes(house.bytes())
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/formats/journal.md").read_text(encoding="utf-8")
    lines = page.partition("```python\n")[2].partition("```")[0]
    with warnings.catch_warnings():
        # The page opens its file as pages do.
        warnings.simplefilter("ignore", ResourceWarning)
        exec(lines, {})
    expected = [f"500 {seq_id} {b'x' * 700!r}" for seq_id in range(30)]
    expected += ["500 7 b''", "500 8 b'y'"]
    expected += [f"535 {seq_id} b'm'" for seq_id in (30, 31, 32)]
    assert capsys.readouterr().out.splitlines() == expected


def test_sizes_are_those_of_the_page() -> None:
    assert (HEAD_BYTES, HEADER_BYTES, ROW_BYTES, FIRST_BATCH_AT) == (64, 96, 40, 4160)
    assert struct.calcsize(HEADER) == HEADER_BYTES
    assert struct.calcsize(ROW) == ROW_BYTES


def test_a_batch_of_many_messages_is_four_pieces() -> None:
    house = House()
    for seq_id in range(0, 3000, 3):
        house.publish(seq_id, [b"a", b"b", b"c"], 1 + seq_id % 9)
    pieces, _ = house.journal.encode(Stamp(0, 1, 2, 3, 4, 5, 6, 7))
    assert len(pieces) == 4
    # It can be tried again: what could not be written is the same the next time.
    assert house.journal.encode(Stamp(0, 1, 2, 3, 4, 5, 6, 7))[0] == pieces
