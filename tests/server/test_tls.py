"""AMQP within TLS, with real certificates: versions, wrong and expired ones, clients that are slow or hang up."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
import trustme
from click.testing import CliRunner
from pamqp import commands

from penstock.broker.access.password import configured_password
from penstock.broker.access.permission import Permission
from penstock.cli.main import main as penstock
from penstock.config import Config, UserConfig
from penstock.errors import StartupError
from penstock.server.tls.certificate_names import user_of
from penstock.server.tls.contexts import make_context
from penstock.testing import Broker
from tests.frame_socket import DEADLINE_S, PROTOCOL_HEADER, ConnectionEnded
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import LOOPS, connection_count

OTHER_CA = trustme.CA()
CA = trustme.CA()
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Certificates:
    """Files of a broker's certificate and of its CA."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        CA.cert_pem.write_to_path(self.ca)
        self.renew()

    def renew(self, name: str = "localhost", **options: Any) -> trustme.LeafCert:
        made = CA.issue_cert(name, "127.0.0.1", **options)
        made.private_key_pem.write_to_path(self.key)
        for number, blob in enumerate(made.cert_chain_pems):
            blob.write_to_path(self.cert, append=number > 0)
        return made

    def settings(self, **settings: Any) -> dict[str, Any]:
        files = {"tls_cert": str(self.cert), "tls_key": str(self.key), "tls_ca": str(self.ca)}
        return {"tls_port": 0, "login_refused_delay_s": 0.0, **files, **settings}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


StartTls = Callable[..., Broker]


@pytest.fixture(params=sorted(LOOPS))
def start_tls(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[StartTls]:
    """A factory of brokers with TLS, on asyncio's loop and on uvloop."""
    with contextlib.ExitStack() as running:

        def start(**settings: Any) -> Broker:
            return running.enter_context(LOOPS[request.param](Config(**certificates.settings(**settings))))

        yield start


def tls_port(broker: Broker) -> int:
    port = broker.call(lambda server: server.tls_port)
    assert port is not None
    return port


def trusting(ca: trustme.CA = CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def connect(
    broker: Broker, context: ssl.SSLContext | None = None, credentials: Any = None, host: str = "localhost"
) -> pika.BlockingConnection:
    options = pika.SSLOptions(context or trusting(), host)
    given = credentials or pika.PlainCredentials("guest", "guest")
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", tls_port(broker), credentials=given, ssl_options=options)
    )


def tls_client(broker: Broker, context: ssl.SSLContext | None = None) -> Client:
    """The client of the frame-by-frame tests, within TLS."""
    client = Client("127.0.0.1", tls_port(broker))
    client.socket = (context or trusting()).wrap_socket(client.socket, server_hostname="localhost")
    return client


def test_messages_go_there_and_back_within_tls(start_tls: StartTls) -> None:
    with connect(start_tls()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        bodies = [b"small", b"x" * 3_000_000, b""]
        for body in bodies:
            channel.basic_publish("", "q", body)
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in bodies] == bodies


def test_many_messages_to_a_slow_reader_arrive_in_order(start_tls: StartTls) -> None:
    with connect(start_tls()) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for number in range(3000):
            channel.basic_publish("", "q", number.to_bytes(4, "big") * 500)
        seen = []
        for _, _, body in channel.consume("q", auto_ack=True):
            seen.append(int.from_bytes(body[:4], "big"))
            if len(seen) == 3000:
                break
        assert seen == list(range(3000))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_todays_versions_are_spoken(start_tls: StartTls, version: ssl.TLSVersion) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    with tls_client(start_tls(), context) as client:
        client.handshake()
        assert client.socket.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]


@pytest.mark.parametrize("least", ["1.2", "1.3"])
def test_older_versions_are_refused(start_tls: StartTls, least: str) -> None:
    broker = start_tls(tls_version_min=least)
    context = trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        # Python warns of the versions that are tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1 if least == "1.2" else ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)), tls_client(broker, context):
        pass
    wait_until(lambda: connection_count(broker) == 0, "the connection is forgotten")


def test_a_cipher_that_the_settings_leave_out_is_refused(start_tls: StartTls) -> None:
    broker = start_tls(tls_ciphers="ECDHE+AESGCM")
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+CHACHA20")
    with pytest.raises((ssl.SSLError, ConnectionError)), tls_client(broker, context):
        pass
    context.set_ciphers("ECDHE+AESGCM")
    with tls_client(broker, context) as client:
        client.handshake()
        assert "GCM" in client.socket.cipher()[0]


def test_a_client_that_does_not_trust_the_ca_hangs_up_and_leaves_nothing(start_tls: StartTls) -> None:
    broker = start_tls()
    with pytest.raises(ssl.SSLCertVerificationError), tls_client(broker, trusting(OTHER_CA)):
        pass
    wait_until(lambda: connection_count(broker) == 0, "the connection is forgotten")
    connect(broker).close()


CLIENTS = {
    "none": lambda: None,
    "good": lambda: CA.issue_cert("x.example", common_name="ann"),
    "of another CA": lambda: OTHER_CA.issue_cert("x.example", common_name="ann"),
    "expired": lambda: CA.issue_cert("x.example", common_name="ann", not_before=PAST, not_after=PAST),
    "of an unknown user": lambda: CA.issue_cert("x.example", common_name="nobody"),
}


@pytest.mark.parametrize(
    ("certificate", "is_required", "expected"),
    [
        ("none", False, "password"),
        ("none", True, "no handshake"),
        ("good", False, "external"),
        ("good", True, "external"),
        ("of another CA", False, "no handshake"),
        ("of another CA", True, "no handshake"),
        ("expired", True, "no handshake"),
        ("of an unknown user", True, "refused"),
    ],
)
def test_client_certificates_are_verified_and_name_their_user(
    start_tls: StartTls, certificate: str, is_required: bool, expected: str
) -> None:
    broker = start_tls(tls_verify_peer=True, tls_fail_if_no_peer_cert=is_required)
    broker.call(lambda server: server.broker.users.add("ann", None))
    broker.call(lambda server: server.broker.users.set_permission("ann", "/", Permission()))
    context = trusting(certificate=CLIENTS[certificate]())
    external = pika.credentials.ExternalCredentials()
    if expected == "no handshake":
        with pytest.raises((OSError, ConnectionEnded, AssertionError)), tls_client(broker, context) as client:
            # With TLS 1.3 the client learns of it when it reads.
            client.handshake()
    elif expected == "refused":
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, context, external)
    else:
        credentials = external if expected == "external" else None
        with connect(broker, context, credentials) as connection:
            connection.channel().queue_declare("q")
        names = broker.call(lambda server: [row.user.name for row in server.connections if row.opened])
        assert set(names) <= {"ann" if expected == "external" else "guest"}
    wait_until(lambda: connection_count(broker) == 0, "the connection is forgotten")


def test_external_is_offered_only_to_clients_with_a_certificate(start_tls: StartTls) -> None:
    broker = start_tls(tls_verify_peer=True)
    for certificate, is_offered in ((None, False), (CA.issue_cert("x.example", common_name="ann"), True)):
        with tls_client(broker, trusting(certificate=certificate)) as client:
            client.socket.sendall(PROTOCOL_HEADER)
            start = client.expect(commands.Connection.Start)
            assert ("EXTERNAL" in start.mechanisms.split()) is is_offered


def test_a_handshake_that_never_ends_is_cut_and_counts_as_one_that_has_not_logged_in(start_tls: StartTls) -> None:
    broker = start_tls(handshake_s=1.0)
    with contextlib.ExitStack() as open_ones:
        hello = b"\x16\x03\x01\x02\x00\x01\x00"
        for said in (b"", hello, b"GET / HTTP/1.1\r\n"):
            raw = open_ones.enter_context(socket.create_connection(("127.0.0.1", tls_port(broker)), DEADLINE_S))
            raw.sendall(said)
            # The end comes from the broker; what it says before is an alert, or nothing.
            while raw.recv(1000):
                pass
    wait_until(lambda: connection_count(broker) == 0, "the connections are forgotten")
    connect(broker).close()


def test_silent_handshakes_are_limited_by_address(start_tls: StartTls) -> None:
    broker = start_tls(descriptors_max=400)
    limit = broker.call(lambda server: server.budget.handshakes_per_address)
    with contextlib.ExitStack() as open_ones:
        for _ in range(limit + 20):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", tls_port(broker)), DEADLINE_S))
        wait_until(lambda: 0 < connection_count(broker) <= limit, "the limit holds")
    wait_until(lambda: connection_count(broker) == 0, "the connections are forgotten")


def test_a_client_that_logs_in_slower_than_the_handshake_may_take_is_cut(start_tls: StartTls) -> None:
    broker = start_tls(handshake_s=3.0)
    with tls_client(broker) as client:
        client.socket.sendall(PROTOCOL_HEADER)
        client.expect(commands.Connection.Start)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while client.socket.recv(1000):
                pass
    wait_until(lambda: connection_count(broker) == 0, "the connection is forgotten")


@pytest.mark.parametrize("how", ["close_notify", "half-closed", "reset"])
def test_a_client_that_hangs_up_gives_its_messages_back(start_tls: StartTls, how: str) -> None:
    broker = start_tls()
    with connect(broker) as other:
        channel = other.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        client = tls_client(broker)
        client.handshake()
        client.open_channel(1)
        client.consume(1, "q")
        client.message()
        if how == "close_notify":
            with contextlib.suppress(OSError):
                client.socket.unwrap()
        elif how == "half-closed":
            client.socket.shutdown(socket.SHUT_WR)
        client.drop()
        wait_until(lambda: connection_count(broker) == 1, "the connection is forgotten")
        assert channel.basic_get("q")[2] == b"x"


def test_the_broker_says_why_before_it_closes_within_tls(start_tls: StartTls) -> None:
    broker = start_tls()
    connection = connect(broker)
    broker.call(lambda server: server.broker.users.delete("guest"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="user 'guest' is deleted"):
        connection.process_data_events(time_limit=DEADLINE_S)


def test_a_stop_tells_clients_within_tls(certificates: Certificates) -> None:
    with Broker(Config(**certificates.settings())) as broker:
        connection = connect(broker)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="shutdown"):
        connection.process_data_events(time_limit=DEADLINE_S)


def test_a_renewed_certificate_is_used_after_a_reload_and_open_connections_stay(
    start_tls: StartTls, certificates: Certificates
) -> None:
    broker = start_tls()
    with connect(broker) as connection:
        certificates.renew("renewed.example")
        broker.call(lambda server: server.reload(server.config))
        with pytest.raises(ssl.SSLCertVerificationError), tls_client(broker):
            pass
        with connect(broker, host="renewed.example") as renewed:
            renewed.channel().queue_declare("q")
        connection.channel().queue_declare("q")
        certificates.key.write_text("no key")
        broker.call(lambda server: server.reload(server.config))
        connect(broker, host="renewed.example").close()


def test_http_is_served_within_tls_and_slow_handshakes_are_bounded(certificates: Certificates, tmp_path: Path) -> None:
    settings = certificates.settings(http_port=0, http_tls=True, data_dir=str(tmp_path / "data"), tls_port=None)
    with Broker(Config(**settings)) as broker:
        port = broker.call(lambda server: server.http_port)
        with socket.create_connection(("127.0.0.1", port or 0)):
            request = urllib.request.Request(f"https://localhost:{port}/penstock/v1/history")
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=DEADLINE_S, context=trusting())
            assert caught.value.code in (401, 404)
            caught.value.close()
            certificates.renew("renewed.example")
            with pytest.raises(OSError, match=r"."):
                urllib.request.urlopen(f"http://localhost:{port}/", timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_cert": None}, "--tls-cert FILE and --tls-key FILE"),
        ({"tls_cert": "/no/such/file"}, "cannot be used"),
        ({"tls_ciphers": "NOTHING"}, "no such ciphers"),
        ({"tls_verify_peer": True, "tls_ca": None}, "--tls-ca FILE"),
        ({"tls_verify_peer": True, "tls_ca": "/no/such/file"}, "cannot be used"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(
    certificates: Certificates, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(StartupError, match=text):
        make_context(Config(**certificates.settings(**settings)))


def test_a_key_with_a_password_is_refused_without_asking_for_it(certificates: Certificates) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    certificates.key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(StartupError, match="encrypted"):
        make_context(Config(**certificates.settings()))


CERTIFICATE = {
    "subject": ((("organizationName", "Acme"),), (("commonName", "ann"),)),
    "subjectAltName": (("DNS", "web.example"), ("email", "ann@example.org"), ("URI", "spiffe://x/ann")),
}


@pytest.mark.parametrize(
    ("certificate", "login_from", "expected"),
    [
        (CERTIFICATE, "common_name", "ann"),
        (CERTIFICATE, "distinguished_name", "CN=ann,O=Acme"),
        (CERTIFICATE, "san_dns", "web.example"),
        (CERTIFICATE, "san_email", "ann@example.org"),
        (CERTIFICATE, "san_uri", "spiffe://x/ann"),
        ({"subject": ()}, "common_name", ""),
        ({}, "common_name", ""),
        (None, "common_name", ""),
        ({"subject": ((("commonName", "admin\x00.example"),),)}, "common_name", ""),
    ],
)
def test_the_user_is_the_name_that_the_settings_ask_for(certificate: Any, login_from: str, expected: str) -> None:
    assert user_of(certificate, login_from) == expected


def test_certificates_of_penstock_tls_dev_serve_a_broker_and_let_a_client_in(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    result = CliRunner().invoke(penstock, ["tls", "dev", str(folder), "--user", "ops"])
    assert result.exit_code == 0, result.output
    assert (folder / "server.key").stat().st_mode & 0o77 == 0
    again = CliRunner().invoke(penstock, ["tls", "dev", str(folder)])
    assert again.exit_code == 1
    assert "is there already" in again.output
    files = {"tls_cert": str(folder / "server.pem"), "tls_key": str(folder / "server.key")}
    users = [UserConfig("ops", "secret")]
    config = Config(tls_port=0, tls_ca=str(folder / "ca.pem"), tls_verify_peer=True, users=users, **files)
    with Broker(config) as broker:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
        with connect(broker, context, pika.credentials.ExternalCredentials()) as connection:
            connection.channel().queue_declare("q")


def test_a_password_works_within_tls_too(start_tls: StartTls) -> None:
    broker = start_tls()
    broker.call(lambda server: server.broker.users.add("ann", configured_password(b"secret")))
    broker.call(lambda server: server.broker.users.set_permission("ann", "/", Permission()))
    connect(broker, credentials=pika.PlainCredentials("ann", "secret")).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(broker, credentials=pika.PlainCredentials("ann", "wrong"))
