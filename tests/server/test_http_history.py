"""History over HTTP, as a stranger sees it: who is let in, what is refused, and what the broker itself answers."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from penstock.broker.access.permission import Permission
from penstock.clock import ManualClock
from penstock.config import Config, UserConfig
from penstock.errors import StartupError
from penstock.history.endpoint import Access
from penstock.history.http_log import HttpLog
from penstock.journal.format.rows import FORGET, GONE_KINDS, PUBLISHED
from penstock.server.connection.login_guard import LoginGuard
from penstock.server.http import http_uvicorn
from penstock.server.http.http_answers import BrokerAnswers, is_loopback
from penstock.testing import Broker
from tests.history.naive_reader import events_of
from tests.history.small_broker import PERSISTENT, basic, channel_of, http_broker, http_port, publish, wait_for_all
from tests.interop.deadline import wait_until
from tests.server.brokers import LOOPS, check_health

GUEST = {"Authorization": basic("guest", "guest")}
HISTORY = "/api/history"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """For questions that change nothing, or undo what they change."""
    with http_broker(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running
        check_health(running)


@pytest.fixture(params=sorted(LOOPS))
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    config = Config(login_refused_delay_s=0.0, http_port=0)
    with LOOPS[request.param](config, data_dir=tmp_path / "data") as running:
        yield running
        check_health(running)


@pytest.fixture
def log(own_broker: Broker) -> Iterator[HttpLog]:
    with contextlib.closing(HttpLog(f"http://127.0.0.1:{http_port(own_broker)}", "guest", "guest")) as opened:
        yield opened


class Answered:
    """An answer, read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    broker: Broker,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answered:
    connection = http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (GUEST if headers is None else headers).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Answered(connection.getresponse())
    finally:
        connection.close()


def raw(broker: Broker, data: bytes) -> bytes:
    """What comes back for bytes that may be no request."""
    with socket.create_connection(("127.0.0.1", http_port(broker)), 20) as client:
        found = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            while part := client.recv(65536):
                found += part
        return found


def data_dir(broker: Broker) -> Path:
    return Path(broker.call(lambda server: server.config.data_dir or ""))


def segment(broker: Broker) -> int:
    return int(ask(broker, HISTORY).json["segments"][0]["number"])


# --- who is let in --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic Z3Vlc3Q=",
        "Bearer Z3Vlc3Q6Z3Vlc3Q=",
        basic("guest", ""),
        basic("guest", "wrong"),
        basic("nobody", "guest"),
        basic("", ""),
        basic("guest\0", "guest"),
        "Basic " + "A" * 10_000,
        "Basic //79/Q==",
    ],
)
def test_who_is_not_known_is_asked_for_a_password(broker: Broker, given: str | None) -> None:
    for path in (HISTORY, HISTORY + "/segments/1", HISTORY + "/readers", "/", "/elsewhere", HISTORY + "/counters"):
        answer = ask(broker, path, headers={} if given is None else {"Authorization": given})
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        assert "error" in answer.json
    answer = ask(broker, HISTORY + "/readers/x", "PUT", b'{"lsn": 1}', {})
    assert answer.status == 401
    assert ask(broker, HISTORY + "/readers").json == []


def test_a_user_without_all_rights_in_every_vhost_is_forbidden(tmp_path: Path) -> None:
    users = [UserConfig("ann", "a"), UserConfig("bob", "b")]
    with http_broker(tmp_path / "data", users=users, vhosts=["/", "other"]) as broker:
        ann = {"Authorization": basic("ann", "a")}
        assert ask(broker, HISTORY, headers=ann).status == 200
        for less in (Permission(read="^x"), Permission(write=""), Permission(configure="a|.*b")):
            broker.call(lambda server, less=less: server.broker.users.set_permission("ann", "other", less))  # type: ignore[misc]
            answer = ask(broker, HISTORY, headers=ann)
            assert answer.status == 403
            assert "error" in answer.json
        assert ask(broker, HISTORY, headers={"Authorization": basic("bob", "b")}).status == 200


def test_guest_is_let_in_from_this_machine_alone(broker: Broker) -> None:
    answers = broker.call(
        lambda server: BrokerAnswers(server.broker, LoginGuard(ManualClock(), 0.0), server.password_checks)
    )

    def access(peer: str) -> Access:
        return asyncio.run(answers.access("guest", b"guest", peer))

    assert access("127.0.0.1") is Access.GRANTED
    assert access("::1") is Access.GRANTED
    assert access("::ffff:127.0.0.1") is Access.GRANTED
    for peer in ("192.0.2.1", "2001:db8::1", "", "fe80::1%eth0", "localhost", "127.0.0.1, 192.0.2.1"):
        assert access(peer) is Access.UNKNOWN
    assert not is_loopback("::ffff:192.0.2.1")


def test_headers_of_a_proxy_change_nothing(broker: Broker) -> None:
    headers = {**GUEST, "X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
    assert ask(broker, HISTORY, headers=headers).status == 200


# --- routes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/history/",
        "/API/history",
        "//api/history",
        "/api/history/segments",
        "/api/history/segments/1/index/",
        "/api/history/segments/1/other",
        "/api/history/bodies/1/2",
        "/api/history/readers/a/b",
        "/api/history/../history",
        "/api/history/%2e%2e/history",
        "/api%2Fhistory",
    ],
)
def test_a_path_that_leads_nowhere_is_not_found(broker: Broker, path: str) -> None:
    answer = ask(broker, path)
    assert answer.status == 404
    assert "gone" not in answer.json


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "", "GET"),
        ("HEAD", "", "GET"),
        ("DELETE", "/segments/1", "GET"),
        ("PUT", "/readers", "GET"),
        ("GET", "/readers/x", "PUT, DELETE"),
        ("OPTIONS", "/counters", "GET"),
        ("PATCH", "/readers/x", "PUT, DELETE"),
    ],
)
def test_a_method_that_is_not_for_a_path_is_refused(broker: Broker, method: str, path: str, allowed: str) -> None:
    answer = ask(broker, HISTORY + path, method)
    assert answer.status == 405
    assert answer.headers["Allow"] == allowed


NO_NUMBERS = ["-1", "+1", "1.0", "1e3", "0x1", "1_0", "", "%20", "%D9%A1", "%00", "9" * 19, "9" * 40, "1%0A", "a"]


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_a_number_that_is_none_is_refused(broker: Broker, number: str) -> None:
    for path in (
        f"/segments/{number}/index",
        f"/bodies/{number}/1/1",
        f"/bodies/1/{number}/1",
        f"/bodies/1/1/{number}",
    ):
        assert ask(broker, HISTORY + path).status == 400, path
    assert ask(broker, f"{HISTORY}/segments/{number}", headers={**GUEST, "Range": "bytes=0-1"}).status == 400


def test_a_segment_that_is_gone_says_so(broker: Broker) -> None:
    for number in (0, 77, 2**63 - 1):
        for path, headers in ((f"/segments/{number}/index", {}), (f"/segments/{number}", {"Range": "bytes=0-1"})):
            answer = ask(broker, HISTORY + path, headers={**GUEST, **headers})
            assert answer.status == 404
            assert answer.json["gone"] is True


@pytest.mark.parametrize(
    ("asked_for", "status"),
    [
        (None, 400),
        ("", 400),
        ("bytes", 400),
        ("bytes=", 400),
        ("bytes=-5", 400),
        ("bytes=5-4", 400),
        ("bytes=0-1,3-4", 400),
        ("lines=0-1", 400),
        ("bytes=a-b", 400),
        ("bytes=0-8388608", 400),
        ("bytes=0-99999999999999999999", 400),
        ("bytes=9223372036854775807-", 400),
        ("bytes=0-0", 206),
        ("bytes=0-8388607", 206),
        ("bytes=10-", 206),
        ("bytes=99999999-99999999", 416),
        ("bytes=9000000000000000000-9000000000000000001", 416),
        ("bytes=9223372036854775806-9223372036854775807", 416),
    ],
)
def test_one_range_of_bytes_is_answered(broker: Broker, asked_for: str | None, status: int) -> None:
    number = segment(broker)
    headers = GUEST if asked_for is None else {**GUEST, "Range": asked_for}
    answer = ask(broker, f"{HISTORY}/segments/{number}", headers=headers)
    assert answer.status == status
    if status == 206:
        first, last = answer.headers["Content-Range"].removeprefix("bytes ").removesuffix("/*").split("-")
        data = (data_dir(broker) / "journal" / f"{number:08d}.pnj").read_bytes()
        assert answer.body == data[int(first) : int(last) + 1]
        assert answer.headers["Content-Type"] == "application/octet-stream"


# --- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"1",
        b"nul",
        b'{"lsn": true}',
        b'{"lsn": -1}',
        b'{"lsn": 1.5}',
        b'{"lsn": "1"}',
        b'{"lsn": 9223372036854775808}',
        b'{"lsn": NaN}',
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"lsn": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_position_that_is_none_is_refused(broker: Broker, body: bytes) -> None:
    assert ask(broker, HISTORY + "/readers/x", "PUT", body).status == 400
    assert ask(broker, HISTORY + "/readers").json == []


def test_a_body_that_is_too_large_is_refused(broker: Broker) -> None:
    assert ask(broker, HISTORY + "/readers/x", "PUT", b" " * 65_537).status == 413
    assert ask(broker, HISTORY + "/readers/x", "PUT", b" " * 65_000 + b'{"lsn": 1}').status == 204
    assert ask(broker, HISTORY + "/readers/x", "DELETE").status == 204


@pytest.mark.parametrize("name", ["..", "../../x", "a/b", "%", "☃", "<script>", "'; drop", "a\\b", "C:x", "con", "."])
def test_any_printable_name_is_a_reader_and_never_a_path(broker: Broker, name: str) -> None:
    path = f"{HISTORY}/readers/{quote(name, safe='')}"
    assert ask(broker, path, "PUT", b'{"lsn": 0}').status == 204
    assert [reader["name"] for reader in ask(broker, HISTORY + "/readers").json] == [name]
    files = [path.name for path in (data_dir(broker) / "readers").iterdir()]
    assert sorted(len(name) for name in files) == [len("log-id"), 32 + len(".json")]
    assert ask(broker, path, "DELETE").status == 204
    assert ask(broker, path, "DELETE").status == 404


@pytest.mark.parametrize("name", ["%00", "%0A", "%ff", "", "%C2%85", "%ED%A0%80", "x" * 129])
def test_a_name_that_cannot_be_is_refused(broker: Broker, name: str) -> None:
    assert ask(broker, f"{HISTORY}/readers/{name}", "PUT", b'{"lsn": 0}').status == 400
    assert ask(broker, HISTORY + "/readers").json == []


# --- what the broker itself answers ---------------------------------------------------------------


def folded(log: HttpLog, lsn: int) -> dict[int, int]:
    """Messages in each queue number, from the events below a position alone."""
    held: dict[int, set[int]] = {}
    for at, queue_no, kind, seq in events_of(log):
        if at >= lsn:
            break
        if kind == PUBLISHED:
            held.setdefault(queue_no, set()).add(seq)
        elif kind in GONE_KINDS:
            held.setdefault(queue_no, set()).discard(seq)
        elif kind == FORGET:
            held.pop(queue_no, None)
    return {queue_no: len(seqs) for queue_no, seqs in held.items()}


def test_the_counters_are_the_fold_of_the_events_below_their_position(own_broker: Broker, log: HttpLog) -> None:
    broker = own_broker
    chance = random.Random(7)
    with channel_of(broker) as channel:
        channel.queue_declare("plain", durable=True)
        channel.queue_declare("levels", durable=True, arguments={"x-max-priority": 3})
        channel.queue_declare("short", durable=True, arguments={"x-max-length": 5})
        channel.queue_declare("deleted", durable=True)
        channel.queue_declare("transient", durable=False)
        queues = ["plain", "levels", "short", "transient", "deleted"]
        tags: list[int] = []
        for step in range(300):
            queue = chance.choice(queues)
            mode = 2 if chance.random() < 0.8 else 1
            what = chance.random()
            if what < 0.6:
                properties = pika.BasicProperties(delivery_mode=mode, priority=chance.randrange(4))
                channel.basic_publish("", queue, b"x" * chance.choice([10, 5000]), properties)
            elif what < 0.75:
                channel.basic_get(queue, auto_ack=True)
            elif what < 0.9:
                method = channel.basic_get(queue)[0]
                if method is not None:
                    tags.append(method.delivery_tag)
            elif tags:
                tag = tags.pop(chance.randrange(len(tags)))
                chance.choice([channel.basic_ack, channel.basic_nack])(tag)
            if step == 200:
                channel.queue_delete("deleted")
                queues.remove("deleted")
            if step % 100 == 99:
                counters = log.counters()
                wait_until(lambda at=counters["lsn"]: log.state().end_lsn >= at, "what the counters say is in the log")
                counted = {entry["queue_no"]: entry["persistent_count"] for entry in counters["queues"]}
                real = folded(log, counters["lsn"])
                assert {number: count for number, count in counted.items() if count} == {
                    number: count for number, count in real.items() if count
                }
        names = Counter(entry["queue"] for entry in log.counters()["queues"])
        assert names == {"plain": 1, "levels": 4, "short": 1}
        [plain] = [entry for entry in log.counters()["queues"] if entry["queue"] == "plain"]
        assert plain["ready"] == broker.queue_depth("plain")
        assert plain["vhost"] == "/"


def test_messages_come_in_pages_with_what_they_are(own_broker: Broker, log: HttpLog) -> None:
    broker = own_broker
    with channel_of(broker) as channel:
        channel.queue_declare("a b/ü", durable=True)
        for number in range(25):
            properties = pika.BasicProperties(delivery_mode=2 - number % 2, priority=number, expiration="3600000")
            channel.basic_publish("", "a b/ü", bytes([number]) * number, properties)
        channel.basic_get("a b/ü")
        found: list[dict[str, Any]] = []
        position: int | None = 0
        pages = 0
        while position is not None:
            page, position = log.messages("/", "a b/ü", position, 10)
            found += page
            pages += 1
        assert pages == 3
        assert [message["seq"] for message in found] == list(range(25))
        assert [message["body"] for message in found] == [bytes([number]) * number for number in range(25)]
        assert [message["state"] for message in found] == ["unacked"] + ["ready"] * 24
        assert {message["routing_key"] for message in found} == {"a b/ü"}
        assert [message["persistent"] for message in found] == [number % 2 == 0 for number in range(25)]
        assert [message["priority"] for message in found] == list(range(25))
        assert all(message["expires"] > 1e12 and message["properties"] for message in found)
        assert [message["size"] for message in found] == list(range(25))
        assert broker.queue_depth("a b/ü") == 24


def test_a_page_is_bounded_in_bytes_and_has_a_message_at_least(own_broker: Broker, log: HttpLog) -> None:
    broker = own_broker
    with channel_of(broker) as channel:
        channel.queue_declare("large", durable=True)
        publish(channel, "large", [b"x" * 1_000_000] * 8 + [b"y" * 6_000_000])
        sizes = []
        position: int | None = 0
        while position is not None:
            page, position = log.messages("/", "large", position)
            sizes.append(sum(len(message["body"]) for message in page))
        assert sum(sizes) == 14_000_000
        # The last page may be empty: only then it is known that nothing follows.
        assert [size for size in sizes if size] == [3_000_000, 3_000_000, 2_000_000, 6_000_000]
        channel.queue_delete("large")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?vhost=/", 400),
        ("?queue=nobody", 404),
        ("?queue=q&vhost=nobody", 404),
        ("?queue=q&count=0", 400),
        ("?queue=q&count=1001", 400),
        ("?queue=q&count=-1", 400),
        ("?queue=q&from=x", 400),
        ("?queue=q&from=9223372036854775808", 400),
        ("?queue=q&queue=q", 400),
        ("?queue=q&other=1", 400),
        ("?queue", 400),
        ("?queue=%ff", 400),
        ("?" + "&".join(f"a{number}=1" for number in range(50)), 400),
        ("?queue=q", 200),
        ("?queue=q&from=9223372036854775807&count=1000", 200),
        ("?queue=%00", 404),
    ],
)
def test_a_question_for_messages_is_checked(broker: Broker, query: str, status: int) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)
    answer = ask(broker, f"{HISTORY}/messages{query}")
    assert answer.status == status
    assert ("error" in answer.json) == (status != 200)


def test_a_broker_in_memory_has_messages_and_no_history() -> None:
    with Broker(Config(login_refused_delay_s=0.0, http_port=0)) as broker:
        with channel_of(broker) as channel:
            channel.queue_declare("q")
            channel.basic_publish("", "q", b"here")
            assert len(ask(broker, f"{HISTORY}/messages?queue=q").json["messages"]) == 1
        answer = ask(broker, HISTORY)
        assert answer.status == 404
        assert "--data-dir" in answer.json["error"]
        assert ask(broker, HISTORY + "/counters").json == {"lsn": 0, "queues": []}


# --- what goes wrong ------------------------------------------------------------------------------


def test_an_error_of_the_disk_shows_no_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with http_broker(tmp_path / "data") as broker:
        assert ask(broker, HISTORY).status == 200
        shutil.move(tmp_path / "data", tmp_path / "elsewhere")
        for path in ("", "/readers", "/segments/1/index"):
            answer = ask(broker, HISTORY + path)
            assert answer.status in (404, 500)
            assert str(tmp_path) not in answer.body.decode()
            assert "data" not in answer.json["error"]
        assert ask(broker, HISTORY + "/readers/x", "PUT", b'{"lsn": 1}').status == 500
        shutil.move(tmp_path / "elsewhere", tmp_path / "data")
        assert ask(broker, HISTORY).status == 200
    assert any(record.levelno == logging.ERROR for record in caplog.records if record.name == "penstock.history")


def test_bytes_that_are_no_request_do_no_harm(
    own_broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = own_broker
    # Half a request is waited for.
    monkeypatch.setattr(http_uvicorn, "WAIT_S", 0.05)
    chance = random.Random(11)
    whole = (
        b"GET /api/history/segments/1 HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\nRange: bytes=0-10\r\n"
        b"Connection: close\r\n\r\n" % GUEST["Authorization"].encode()
    )
    assert b"206" in raw(broker, whole)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            what = chance.randrange(3)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                del data[at : at + chance.randrange(10)]
            else:
                data[at:at] = chance.choice([b"\r\n", b"\0", b"%00", b"..", b"\xff" * 20, b"9" * 30, b" ", b"bytes="])
        answer = raw(broker, bytes(data))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
        assert not answer.startswith(b"HTTP/1.1 500")
    raw(broker, b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n")
    raw(broker, b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n")
    raw(broker, b"")
    assert ask(broker, HISTORY).status == 200
    assert not [record for record in caplog.records if record.name == "penstock.history" and record.exc_info]


def test_a_body_that_goes_bad_behind_its_answer_is_cut_off_without_a_word(
    own_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", http_port(own_broker)), 20) as client:
        client.sendall(b"PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += client.recv(4096)
        client.sendall(b"this is no chunk\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert ask(own_broker, HISTORY).status == 200
    assert not [record for record in caplog.records if record.exc_info]


def test_a_websocket_is_not_spoken(broker: Broker) -> None:
    headers = {**GUEST, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    assert ask(broker, HISTORY, headers={**headers, "Sec-WebSocket-Key": "x"}).status == 200


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_a_connection_that_never_asks_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_uvicorn, "WAIT_S", 0.2)
    with http_broker(tmp_path / "data") as broker:
        address = ("127.0.0.1", http_port(broker))
        with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
            slow.sendall(b"GET / HT")
            wait_until(lambda: is_closed(silent), "the silent connection is cut")
            wait_until(lambda: is_closed(slow), "the slow connection is cut")
        assert ask(broker, HISTORY).status == 200


def test_connections_beyond_what_an_address_may_have_are_refused(tmp_path: Path) -> None:
    # So few descriptors leave four connections to HTTP, three of them to one address.
    with http_broker(tmp_path / "data", descriptors_max=64) as broker:
        address = ("127.0.0.1", http_port(broker))
        first = [socket.create_connection(address) for _ in range(3)]
        for client in first:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(20).startswith(b"HTTP/1.1 401")
        with socket.create_connection(address) as surplus:
            surplus.settimeout(60)
            assert surplus.recv(100).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        for client in first:
            client.close()
        wait_until(lambda: _status_or_none(broker) == 200, "there is room again")


def _status_or_none(broker: Broker) -> int | None:
    try:
        return ask(broker, HISTORY).status
    except (ConnectionError, http.client.HTTPException):
        return None


def test_the_broker_stops_with_connections_open(own_broker: Broker) -> None:
    broker = own_broker
    address = ("127.0.0.1", http_port(broker))
    with socket.create_connection(address) as idle, socket.create_connection(address) as half:
        half.sendall(b"PUT /api/history/readers/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n")
        half.sendall(b"Authorization: %b\r\n\r\n{" % GUEST["Authorization"].encode())
        assert ask(broker, HISTORY).status == 200
        broker.stop()
        assert is_closed(idle)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    broker.start()


def test_others_are_served_while_history_is_read(own_broker: Broker, log: HttpLog) -> None:
    broker = own_broker
    with channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", [b"x" * 1000] * 50)
        wait_for_all(broker, log)
        assert len(events_of(log)) == log.state().end_lsn
        channel.basic_publish("", "q", b"still here", PERSISTENT)


# --- starting -------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = http_broker(tmp_path / "data", http_port=taken.getsockname()[1])
        with pytest.raises(StartupError, match="--http-port"):
            broker.start()
    with http_broker(tmp_path / "data") as again:
        assert ask(again, HISTORY).status == 200


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1", "a" * 300])
def test_a_host_that_is_not_ours_is_said_so(tmp_path: Path, host: str) -> None:
    with pytest.raises(StartupError, match="--http-host"):
        http_broker(tmp_path / "data", http_host=host).start()


def test_without_uvicorn_the_broker_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "penstock.server.http.http_uvicorn")
    with pytest.raises(StartupError, match=r"pip install 'penstock\[http\]'"):
        http_broker(tmp_path / "data").start()


def test_history_is_not_served_unless_asked_for(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        assert broker.call(lambda server: server.http_port) is None


def test_the_command_serves_history_and_still_hears_signals(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "serve", "--json", "--port", "0", "--http-port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = json.loads(process.stdout.readline())
            log = HttpLog(f"http://127.0.0.1:{ready['http_port']}", "guest", "guest")
            assert len(log.state().log_id) == 32
            log.close()
            os.kill(process.pid, signal.SIGTERM)
            said = process.stderr.read().decode()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert "guest" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("given", ["", "Authorization: Basic Z3Vlc3Q6d3Jvbmc=\r\n"])
def test_requests_without_a_password_wait_and_those_with_one_do_not(given: str, tmp_path: Path) -> None:
    """A flood of them takes little of the loop: each connection has one under way."""
    request = f"GET {HISTORY} HTTP/1.1\r\nHost: x\r\n{given}\r\n".encode()
    config = Config(login_refused_delay_s=3600.0, http_port=0)
    with Broker(config, data_dir=tmp_path / "data") as broker, contextlib.ExitStack() as open_sockets:
        flood = [
            open_sockets.enter_context(socket.create_connection(("127.0.0.1", http_port(broker)), 20)) for _ in range(3)
        ]
        for each in flood:
            each.sendall(request * 50)
        assert ask(broker, HISTORY, headers=GUEST).status == 200
        for each in flood:
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)
