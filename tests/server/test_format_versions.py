"""A data folder of an older penstock is upgraded, and files of a newer one are refused and left as they are."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pamqp import commands

from penstock.config import Config
from penstock.disk.checksum import crc32
from penstock.errors import StartupError
from penstock.store.node.checkpoint import HEADER_BYTES
from penstock.store.shared.body_map import FILE_HEAD_BYTES
from penstock.testing import Broker
from tests.server.amqp_client import Client

BODY = b"x" * 10_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a checkpoint, a journal and a body in the shared store."""
    with (
        Broker(Config(login_refused_delay_s=0.0), data_dir=tmp_path) as broker,
        Client("127.0.0.1", broker.port) as client,
    ):
        client.handshake().open_channel(1)
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        client.declare(1, "q", durable=True)
        client.publish(1, "q", BODY, delivery_mode=2)
        client.expect(commands.Basic.Ack)
    return tmp_path


def message_in(folder: Path) -> bytes:
    with (
        Broker(Config(login_refused_delay_s=0.0), data_dir=folder) as broker,
        Client("127.0.0.1", broker.port) as client,
    ):
        client.handshake().open_channel(1)
        client.consume(1, "q")
        return client.message().body


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock" and "audit" not in path.parts
    }


# Where the version is, how many octets it has, and where the checksum of the head is.
FILES = {
    "checkpoint/*.ckpt": (2, HEADER_BYTES - 4),
    "vhosts/*/shared/persistent/*.pms": (4, FILE_HEAD_BYTES - 4),
    "journal/*.pnj": (2, 64 - 4),
}


@pytest.mark.parametrize("pattern", FILES)
def test_a_file_of_a_newer_version_is_refused_by_name_and_nothing_changes(folder: Path, pattern: str) -> None:
    octets, checksum_at = FILES[pattern]
    path = sorted(folder.glob(pattern))[-1]
    data = bytearray(path.read_bytes())
    data[4 : 4 + octets] = (99).to_bytes(octets, "little")
    data[checksum_at : checksum_at + 4] = struct.pack("<I", crc32(bytes(data[:checksum_at])))
    whole = path.read_bytes()
    path.write_bytes(bytes(data))
    before = contents(folder)
    with pytest.raises(StartupError, match=rf"{path.name} has format version 99, and this penstock reads version 1"):
        message_in(folder)
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    path.write_bytes(whole)
    assert message_in(folder) == BODY


def test_a_folder_of_an_older_version_is_upgraded_with_its_messages(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "format").write_text("penstock 1\n")
    assert message_in(folder) == BODY
    assert "the data folder was upgraded from format 1 to 2" in caplog.text
    assert (folder / "format").read_text() == "penstock 2\n"


@pytest.mark.parametrize(
    "text", ["penstock 3\n", "penstock 0\n", "penstock 2", "penstock 99999999999999\n", "", "\xff"]
)
def test_a_folder_of_another_format_is_refused(folder: Path, text: str) -> None:
    (folder / "format").write_text(text)
    before = contents(folder)
    with pytest.raises(StartupError, match="this penstock reads 'penstock 2' and older"):
        message_in(folder)
    assert contents(folder) == before
