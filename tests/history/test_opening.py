"""How a log is opened by a text, and what somebody is told whose broker cannot be asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.broker.access.permission import Permission
from penstock.config import UserConfig
from penstock.history.http_log import HttpLog
from penstock.history.log import HistoryError
from penstock.history.opening import open_log
from penstock.testing import Broker
from tests.history.small_broker import http_broker, http_port


def url(broker: Broker, login: str = "") -> str:
    return f"http://{login}127.0.0.1:{http_port(broker)}"


def test_a_folder_is_opened_by_its_path_and_by_its_url(broker: Broker, folder: Path) -> None:
    for source in (str(folder), f"file://{folder}", f"file://localhost{folder}"):
        log = open_log(source)
        assert log.source == str(folder)
        assert log.state().log_id
        log.close()


def test_a_log_is_opened_again_by_its_source(broker: Broker, folder: Path) -> None:
    for source in (str(folder), url(broker), url(broker) + "/"):
        log = open_log(source)
        again = open_log(log.source)
        assert again.state().log_id == log.state().log_id
        assert again.source == log.source
        log.close()
        again.close()


@pytest.mark.parametrize("source", ["", "amqp://localhost", "http://", "http://host:99999", "file://elsewhere/x"])
def test_a_source_that_is_none_is_refused(source: str) -> None:
    with pytest.raises(HistoryError):
        open_log(source)


def test_user_and_password_come_from_arguments_url_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [UserConfig("ann", "s3cret/@:"), UserConfig("guest", "guest")]
    with http_broker(tmp_path / "data", users=users) as broker:
        monkeypatch.setenv("PENSTOCK_USER", "nobody")
        monkeypatch.setenv("PENSTOCK_PASSWORD", "wrong")
        logs = [
            open_log(url(broker), "ann", "s3cret/@:"),
            open_log(url(broker, "ann:s3cret%2F%40%3A@")),
            open_log(url(broker, "ann:wrong@"), password="s3cret/@:"),
        ]
        monkeypatch.setenv("PENSTOCK_USER", "ann")
        monkeypatch.setenv("PENSTOCK_PASSWORD", "s3cret/@:")
        logs.append(open_log(url(broker)))
        monkeypatch.delenv("PENSTOCK_USER")
        monkeypatch.delenv("PENSTOCK_PASSWORD")
        logs.append(open_log(url(broker)))
        for log in logs:
            assert log.state().log_id
            assert "s3cret" not in log.source
            assert "ann" not in log.source
            log.close()
        with pytest.raises(HistoryError, match="PENSTOCK_PASSWORD"):
            open_log(url(broker), "ann")


def test_no_error_shows_the_password(broker: Broker) -> None:
    sources = [url(broker, "guest:hunter2@"), "http://guest:hunter2@127.0.0.1:1", "http://guest:hunter2@127.0.0.1:x"]
    for source in sources:
        with pytest.raises(HistoryError) as caught, closing(open_log(source)) as log:
            log.state()
        texts = [str(caught.value), repr(caught.value.__cause__), str(caught.value.__cause__)]
        assert not any("hunter2" in text for text in texts)


def test_a_wrong_password_says_what_to_do(broker: Broker) -> None:
    with closing(open_log(url(broker), "guest", "wrong")) as log:
        with pytest.raises(HistoryError, match="does not know user 'guest'"):
            log.state()
        with pytest.raises(HistoryError, match="does not know user 'guest'"):
            log.set_cursor("archive", 1)


def test_a_user_without_all_rights_is_told_so(broker: Broker) -> None:
    broker.call(lambda server: server.broker.users.set_permission("guest", "/", Permission(write="^x")))
    with pytest.raises(HistoryError, match="may not read the history"), closing(open_log(url(broker))) as log:
        log.state()


def test_a_broker_that_is_not_there_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(HistoryError, match="--http-port"), closing(open_log(f"http://127.0.0.1:{port}")) as log:
        log.state()


def test_a_connection_that_was_closed_meanwhile_is_made_anew(tmp_path: Path) -> None:
    with http_broker(tmp_path / "data") as broker:
        log = open_log(url(broker))
        first = log.state()
        broker._config.http_port = http_port(broker)
        broker.stop()
        broker.start()
        assert log.state().log_id == first.log_id
        log.set_cursor("archive", 1)
        broker.stop()
        broker.start()
        log.set_cursor("archive", 2)
        broker.stop()
        broker.start()
        assert log.forget_reader("archive")
        log.close()


# --- others that answer ---------------------------------------------------------------------------


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[HttpLog]:
    """A log of something that is no broker."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    log = HttpLog(f"http://127.0.0.1:{server.server_address[1]}", "guest", "guest")
    try:
        yield log
    finally:
        log.close()
        server.shutdown()
        thread.join()
        server.server_close()


def sends(status: int, body: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"{}"),
        (200, b"[]"),
        (200, b"null"),
        (200, b'{"segments": [1]}'),
        (200, b"[" * 100_000),
        (404, b"<html>"),
        (302, b""),
        (500, b"\xff"),
        (404, b"[]"),
    ],
)
def test_who_is_no_broker_is_found_out(status: int, body: bytes) -> None:
    with answering(sends(status, body)) as log:
        with pytest.raises(HistoryError, match="--http-port"):
            log.state()
        with pytest.raises(HistoryError):
            log.index(1)


def test_more_bytes_than_were_asked_for_are_not_taken() -> None:
    with answering(sends(206, b"x" * 5000)) as log, pytest.raises(HistoryError):
        log.read(1, 0, 10)


def test_a_broker_with_too_many_connections_is_asked_again() -> None:
    asked = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        if len(asked) < 3:
            sends(503, b"Service Unavailable")(handler)
        else:
            sends(200, b"[]")(handler)

    with answering(answer) as log:
        assert log.readers() == []
    assert asked == ["/api/history/readers"] * 3


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    asked = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        if len(asked) < 3:
            handler.send_response(200)
            handler.send_header("Content-Length", "100")
            handler.end_headers()
            handler.wfile.write(b"[")
            handler.close_connection = True
        else:
            sends(200, b"[]")(handler)

    with answering(answer) as log:
        assert log.readers() == []
    assert len(asked) == 3
