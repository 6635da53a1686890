"""Each file of the corpus meets the outcome that the manifest states, whole, byte by byte and through a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from penstock.testing import Broker

from .census import Census, weigh
from .make_corpus import CLEAN, CORPUS, HANG_UP, MANIFEST, cases, manifest
from .server_frames import Said
from .socket_clients import InnocentClient, send_and_hang_up, wait_until
from .socketless import SocketlessServer

EXPECTED: dict[str, list[str]] = {
    name: entry["outcome"] for name, entry in json.loads(MANIFEST.read_text(encoding="utf-8")).items()
}


@pytest.fixture
def bench() -> Iterator[SocketlessServer]:
    with SocketlessServer() as server:
        yield server


def outcome(said: Said, hung_up: bool) -> list[str]:
    """As the manifest words it. A hang-up behind a close is no news."""
    closes = [str(close) for close in said.closes()]
    found = ["protocol header"] if said.protocol_header else []
    found += closes
    if hung_up and not any(close.startswith("connection") for close in closes):
        found.append(HANG_UP)
    return found or [CLEAN]


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_the_corpus_meets_its_outcome(bench: SocketlessServer, name: str, cut: str) -> None:
    before = Census.of(bench.server)
    data = (CORPUS / name).read_bytes()
    # The few large files in pieces of a few bytes, which is no less cruel and much quicker.
    step = len(data) if cut == "whole" else len(data) // 8_000 + 1
    client = bench.connect()
    client.send_chunks([data[at : at + step] for at in range(0, len(data), step)])
    bench.settle()
    # A refused login is said a moment later, by a timer.
    wait_until(lambda: is_decided(bench, name, client.said(), client.is_open), "the outcome is decided")
    said = client.said()
    said.check()
    assert outcome(said, not client.is_open) == EXPECTED[name]
    client.hang_up()
    bench.check_clean()
    assert Census.of(bench.server) == before


def is_decided(bench: SocketlessServer, name: str, said: Said, is_open: bool) -> bool:
    bench.settle()
    return EXPECTED[name] == [CLEAN] or not is_open or bool(said.closes())


def test_the_whole_corpus_leaves_nothing_behind(bench: SocketlessServer) -> None:
    weight = weigh(bench.server)
    for name in EXPECTED:
        client = bench.connect()
        client.send((CORPUS / name).read_bytes())
        bench.settle()
        client.hang_up()
    assert weigh(bench.server) == weight
    assert not bench.complaints.broken_lines


def test_the_corpus_through_sockets_leaves_an_innocent_client_undisturbed() -> None:
    with Broker() as broker, InnocentClient(broker.port) as innocent:
        innocent.check_service()
        for name, expected in EXPECTED.items():
            said = send_and_hang_up(broker.port, [(CORPUS / name).read_bytes()])
            stated = [each for each in expected if each != HANG_UP] or [CLEAN]
            # A login is refused a moment later, and the client has hung up by then.
            assert outcome(said, hung_up=False) == stated or "403" in stated[0], name
            innocent.check_service()
        wait_until(lambda: broker.call(Census.of).connections == 1, "only the innocent is left")
        assert broker.call(lambda server: server.internal_errors) == 0


def test_the_corpus_is_what_the_script_makes() -> None:
    made = cases()
    assert {path.name for path in CORPUS.glob("*.bin")} == set(made)
    assert MANIFEST.read_text(encoding="utf-8") == manifest()
    for name, case in made.items():
        assert (CORPUS / name).read_bytes() == case.data, name
