"""pika, aio-pika, py-amqp, kombu and Celery within TLS, with a password and with a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import amqp
import pytest
import trustme
from kombu import Connection

from penstock.config import Config, UserConfig
from penstock.testing import Broker
from tests.interop import celery_app
from tests.interop.test_celery import Worker, close

CA = trustme.CA()


class TlsBroker:
    def __init__(self, folder: Path) -> None:
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        CA.cert_pem.write_to_path(self.ca)
        made = CA.issue_cert("localhost")
        made.private_key_pem.write_to_path(self.key)
        made.cert_chain_pems[0].write_to_path(self.cert)
        self.client_cert, self.client_key = folder / "client.pem", folder / "client.key"
        client = CA.issue_cert("x.example", common_name="ann")
        client.private_key_pem.write_to_path(self.client_key)
        client.cert_chain_pems[0].write_to_path(self.client_cert)
        self.broker = Broker(
            Config(
                tls_port=0,
                tls_cert=str(self.cert),
                tls_key=str(self.key),
                tls_ca=str(self.ca),
                tls_verify_peer=True,
                users=[UserConfig("ann", "secret")],
            )
        )

    @property
    def port(self) -> int:
        return self.broker.call(lambda server: server.tls_port or 0)

    def ssl_of_py_amqp(self, with_certificate: bool) -> dict[str, object]:
        options: dict[str, object] = {
            "ca_certs": str(self.ca),
            "cert_reqs": ssl.CERT_REQUIRED,
            "server_hostname": "localhost",
        }
        if with_certificate:
            options |= {"certfile": str(self.client_cert), "keyfile": str(self.client_key)}
        return options


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsBroker]:
    made = TlsBroker(tmp_path)
    with made.broker:
        yield made


@pytest.mark.parametrize("with_certificate", [False, True])
def test_aio_pika(tls: TlsBroker, with_certificate: bool) -> None:
    async def talk() -> bytes:
        context = ssl.create_default_context(cafile=str(tls.ca))
        auth = ""
        if with_certificate:
            context.load_cert_chain(tls.client_cert, tls.client_key)
            auth = "?auth=external"
        url = f"amqps://ann:secret@localhost:{tls.port}/{auth}"
        async with await aio_pika.connect(url, ssl_context=context) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"x" * 200_000), "q")
            return (await queue.get(no_ack=True)).body

    assert asyncio.run(talk()) == b"x" * 200_000


def test_aio_pika_with_a_ca_that_it_does_not_trust(tls: TlsBroker) -> None:
    async def talk() -> None:
        context = ssl.create_default_context()
        await aio_pika.connect(f"amqps://ann:secret@localhost:{tls.port}/", ssl_context=context)

    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(talk())


@pytest.mark.parametrize("with_certificate", [False, True])
def test_py_amqp(tls: TlsBroker, with_certificate: bool) -> None:
    options = tls.ssl_of_py_amqp(with_certificate)
    # Without a password it can only be the certificate.
    login = {} if with_certificate else {"userid": "ann", "password": "secret"}
    with amqp.Connection(f"localhost:{tls.port}", ssl=options, **login) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish(amqp.Message("text"), routing_key="q")
        assert channel.basic_get("q", no_ack=True).body == "text"


def test_kombu(tls: TlsBroker) -> None:
    url = f"amqp://ann:secret@localhost:{tls.port}//"
    with Connection(url, ssl=tls.ssl_of_py_amqp(False)) as connection, connection.SimpleQueue("q") as queue:
        queue.put({"number": 1})
        message = queue.get(timeout=30)
        assert message.payload == {"number": 1}
        message.ack()


def test_celery(tls: TlsBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(celery_app.CA, str(tls.ca))
    app = celery_app.make_app(f"amqp://ann:secret@localhost:{tls.port}//", "rpc://", "within-tls")
    worker = Worker(app, tmp_path, pool="solo")
    try:
        assert app.send_task("interop.add", (2, 3)).get(timeout=60) == 5
    finally:
        close(app)
        assert worker.stop() == 0, worker.log.read_text()
