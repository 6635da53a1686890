"""The heartbeat's timer: when it speaks, and after how much silence it gives up."""

from __future__ import annotations

from fake_loop import FakeLoop

from penstock.server.connection.heartbeat import Heartbeat
from penstock.wire import frames


class Host:
    """The server as a heartbeat knows it."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop


class Peer:
    """A connection as its heartbeat sees it; what is sent is written at once."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.server = Host(self.loop)
        self.peer = "somebody"
        self.heartbeat = Heartbeat(self)
        self.sent_at: list[float] = []
        self.dropped_at: float | None = None
        self.silence_is_ours = False

    def send_raw(self, data: bytes) -> None:
        assert data == frames.HEARTBEAT_FRAME
        self.sent_at.append(self.loop.now_s)
        self.loop.call_soon(self.heartbeat.spoke)

    def may_be_silent(self) -> bool:
        return self.silence_is_ours

    def drop(self) -> None:
        self.dropped_at = self.loop.now_s

    def hear_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.heartbeat.heard()
            self.loop.pass_s(1)


def test_no_interval_means_no_timer() -> None:
    peer = Peer()
    peer.heartbeat.start(0)
    assert peer.loop.timers == []


def test_an_idle_connection_sends_once_in_each_interval() -> None:
    peer = Peer()
    peer.heartbeat.start(10)
    peer.hear_for(60)
    assert peer.sent_at == [5, 15, 25, 35, 45, 55]


def test_a_busy_connection_sends_none() -> None:
    peer = Peer()
    peer.heartbeat.start(10)
    for _ in range(60):
        peer.heartbeat.spoke()
        peer.hear_for(1)
    assert peer.sent_at == []


def test_a_silent_client_is_dropped_after_two_intervals() -> None:
    peer = Peer()
    peer.heartbeat.start(10)
    peer.loop.pass_s(19.9)
    assert peer.dropped_at is None
    peer.loop.pass_s(0.1)
    assert peer.dropped_at == 20
    assert peer.loop.live_timers() == []


def test_one_sign_of_life_in_each_interval_is_enough() -> None:
    peer = Peer()
    peer.heartbeat.start(10)
    for _ in range(10):
        peer.heartbeat.heard()
        peer.loop.pass_s(10)
    assert peer.dropped_at is None


def test_a_client_that_cannot_be_heard_is_not_dropped() -> None:
    peer = Peer()
    peer.silence_is_ours = True
    peer.heartbeat.start(10)
    peer.loop.pass_s(100)
    assert peer.dropped_at is None
    peer.silence_is_ours = False
    peer.loop.pass_s(20)
    assert peer.dropped_at == 120


def test_a_stopped_heartbeat_does_nothing_more() -> None:
    peer = Peer()
    peer.heartbeat.start(10)
    peer.loop.pass_s(5)
    peer.heartbeat.close()
    peer.loop.pass_s(100)
    assert peer.sent_at == [5]
    assert peer.dropped_at is None
