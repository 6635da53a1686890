"""The properties of the benches' messages. Those of Celery are what the installed Celery sends, with marks in place of
what differs each time.

`python -m tests.interop.test_bench_loads` writes the files anew.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
from benches.cases import LOADS
from benches.load import build
from celery import Celery

from penstock.message import Entry
from penstock.server.server import Server
from penstock.testing import Broker
from penstock.wire.properties import Properties, decode_properties, encode_properties
from tests.interop.deadline import wait_until

# As long as a UUID; the load generator writes an id over the first 32.
MARK = "@" * 32 + "-end"
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HEADERS_3 = Properties(
    content_type="application/json",
    headers={
        "tenant": ("S", b"acme-gmbh"),
        "attempt": ("I", 1),
        "trace-id": ("S", b"@" * 32),
    },
    delivery_mode=1,
    message_id="@" * 32,
    timestamp=1_700_000_000,
    type="order.created",
)
MODES = {"celery-transient": 1, "celery-persistent": 2}


def has_compiler() -> bool:
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def captured(mode: int) -> bytes:
    """The properties of a task as Celery sends it."""
    with Broker() as broker:
        app = Celery("load", broker=broker.url, backend="rpc://", set_as_current=False)
        task = app.signature("shop.tasks.send_receipt", args=(41_832, "de"), kwargs={"copy": True})
        task.apply_async(delivery_mode=mode)
        app.close()
        wait_until(lambda: broker.queue_depth("celery") == 1, "the task is in its queue")

        def first(server: Server) -> bytes:
            found: list[Entry] = []
            server.broker.vhosts["/"].queues["celery"].backing.fold(lambda _, entry, __: found.append(entry) is None)
            return found[0][0].properties

        return normalised(decode_properties(broker.call(first)))


def normalised(properties: Properties) -> bytes:
    """With marks in place of ids, and without the name of this machine."""
    assert properties.headers is not None
    for name, (code, value) in properties.headers.items():
        if isinstance(value, bytes):
            properties.headers[name] = (code, UUID.sub(MARK, value.decode()).encode())
    properties.headers["origin"] = ("S", b"gen4711@worker-1")
    properties.correlation_id = MARK
    properties.reply_to = "6f9619ff-8b86-3011-b42d-00cf4fc964ff"
    return encode_properties(properties)


@pytest.mark.parametrize("name", list(MODES))
def test_the_load_is_what_celery_sends(name: str) -> None:
    raw = captured(MODES[name])
    headers = decode_properties(raw).headers
    assert headers is not None
    assert len(headers) > 15
    assert raw.count(MARK.encode()) == 3
    assert (LOADS / name).read_bytes() == raw, "python -m tests.interop.test_bench_loads writes it anew"


def test_the_load_with_three_headers_is_what_it_says() -> None:
    assert (LOADS / "headers-3").read_bytes() == encode_properties(HEADERS_3)


@pytest.mark.skipif(not has_compiler(), reason="the load generator needs a C compiler")
@pytest.mark.parametrize("kind", ["", "--durable --persistent"])
def test_a_cycle_of_the_churn_leaves_nothing_behind(kind: str) -> None:
    binary = build()
    with Broker() as broker:
        exchanges = broker.call(lambda server: set(server.broker.vhosts["/"].exchanges))
        command = [str(binary), "--port", str(broker.port), "--churn", "--count", "5", *kind.split()]
        counted = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
        assert (counted["consumed"], counted["errors"]) == (5, 0)
        wait_until(lambda: not broker.call(lambda server: server.broker.vhosts["/"].queues), "the queues are gone")
        assert broker.call(lambda server: set(server.broker.vhosts["/"].exchanges)) == exchanges


if __name__ == "__main__":
    LOADS.mkdir(exist_ok=True)
    (LOADS / "headers-3").write_bytes(encode_properties(HEADERS_3))
    for file, delivery_mode in MODES.items():
        sys.stdout.write(f"{file}: {(LOADS / file).write_bytes(captured(delivery_mode))} octets\n")
