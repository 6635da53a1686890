"""The TLS context of new connections, made from the settings; SIGHUP makes another one from the files as they are then.

Connections that are open keep the context that they began with. A context that cannot be made, because a file is
missing or a key does not belong to its certificate, is an error in the log, and the old one stays.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final

from penstock.config import Config
from penstock.errors import StartupError

log = logging.getLogger("penstock.tls")

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    def __init__(self, config: Config) -> None:
        """Raises StartupError with what to do."""
        self.current = make_context(config)

    def reload(self, config: Config) -> None:
        """Read the files again; new connections get what is in them."""
        try:
            self.current = make_context(config)
        except StartupError as error:
            log.error("TLS goes on with what it had: %s", error)
        else:
            log.info("TLS certificates were read again")


def make_context(config: Config) -> ssl.SSLContext:
    if config.tls_cert is None or config.tls_key is None:
        raise StartupError("TLS needs a certificate and its key: give --tls-cert FILE and --tls-key FILE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[config.tls_version_min]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"the TLS certificate {config.tls_cert} or its key {config.tls_key} cannot be used: {_why(error)}"
        ) from error
    if config.tls_ciphers is not None:
        try:
            context.set_ciphers(config.tls_ciphers)
        except ssl.SSLError as error:
            raise StartupError(f"tls_ciphers is '{config.tls_ciphers}'; OpenSSL knows no such ciphers") from error
    if config.tls_verify_peer:
        _verify_peers(context, config)
    return context


def _verify_peers(context: ssl.SSLContext, config: Config) -> None:
    if config.tls_ca is None:
        raise StartupError("client certificates are verified against a CA: give --tls-ca FILE")
    try:
        context.load_verify_locations(config.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(f"the certificates of the CA in {config.tls_ca} cannot be used: {_why(error)}") from error
    context.verify_mode = ssl.CERT_REQUIRED if config.tls_fail_if_no_peer_cert else ssl.CERT_OPTIONAL


def _why(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)


def _no_password() -> str:
    """Without this, OpenSSL would ask on the terminal."""
    raise StartupError("the TLS key is encrypted: give the broker a key without a password, in a file of its own")
