"""`penstock tls dev`: a CA of one's own, and certificates by it, for developers."""

from __future__ import annotations

import datetime
import ipaddress
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS: Final = 365
# Clocks differ.
EARLY: Final = datetime.timedelta(hours=1)
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
KEY_MODE: Final = 0o600


@click.group()
def tls() -> None:
    """Make certificates for development.

    Exit codes: 0 done; 1 failed, and says why; 2 wrong options.
    """


@tls.command()
@click.argument("folder", default="penstock-tls")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Another name or address of the broker.")
@click.option("--user", default="guest", show_default=True, metavar="NAME", help="The user of the client certificate.")
@click.option("--days", type=click.IntRange(1, 3650), default=DAYS, show_default=True, help="How long they are valid.")
def dev(folder: str, hosts: tuple[str, ...], user: str, days: int) -> None:
    """Make a CA, a certificate for a broker on this machine, and one for a client, in FOLDER.

    They are for development: keep the CA's key to yourself, or delete it. Files that are there already are not
    overwritten. Needs penstock[tls-dev].
    """
    try:
        made = make(Path(folder), [*HOSTS, *hosts], user, days)
    except ImportError:
        click.echo("penstock: this needs cryptography: pip install 'penstock[tls-dev]'", err=True)
        sys.exit(1)
    except FileExistsError as error:
        click.echo(f"penstock: {error.filename} is there already: name another folder, or remove it", err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(f"penstock: cannot write to {folder}: {error.strerror}", err=True)
        sys.exit(1)
    for name in made:
        click.echo(name)
    at = Path(folder)
    click.echo("Serve with:", err=True)
    click.echo(
        f"  penstock serve --tls-port 5671 --tls-cert {at / 'server.pem'} --tls-key {at / 'server.key'}"
        f" --tls-ca {at / 'ca.pem'} --tls-verify-peer",
        err=True,
    )


def make(folder: Path, hosts: list[str], user: str, days: int) -> list[str]:
    """Write the files; return their names."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)

    def name(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    def key() -> EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    def begun(subject: str, issuer: x509.Name, public: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(issuer)
            .public_key(public.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLY)
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    ca_key, ca_name = key(), name("penstock developer CA")
    ca_usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    ca = (
        begun("penstock developer CA", ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(ca_usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    written = [_write_certificate(folder / "ca.pem", ca), _write_key(folder / "ca.key", ca_key)]
    for file, subject, names, usage in (
        ("server", hosts[0], hosts, ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", user, [user], ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        own_key = key()
        alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
        certificate = (
            begun(subject, ca_name, own_key)
            .add_extension(alternatives, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        written += [
            _write_certificate(folder / f"{file}.pem", certificate),
            _write_key(folder / f"{file}.key", own_key),
        ]
    return written


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_certificate(path: Path, certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    with path.open("xb") as file:
        file.write(certificate.public_bytes(Encoding.PEM))
    return str(path)


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> str:
    """Write a key that only its owner can read, from its first byte on."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(path)
