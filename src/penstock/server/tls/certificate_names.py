"""The user that a verified client certificate names."""

from __future__ import annotations

from typing import Any, Final

COMMON_NAME: Final = "common_name"
DISTINGUISHED_NAME: Final = "distinguished_name"
# Of the subject alternative names: how the settings call a kind, and how Python's ssl does.
ALTERNATIVE_NAMES: Final = {
    "san_dns": "DNS",
    "san_email": "email",
    "san_uri": "URI",
}
LOGIN_FROM: Final = (COMMON_NAME, DISTINGUISHED_NAME, *ALTERNATIVE_NAMES)
# How RFC 4514 abbreviates what subjects consist of.
SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
}


def user_of(certificate: dict[str, Any] | None, login_from: str) -> str:
    """Return the name in a certificate as `SSLSocket.getpeercert` gives it; empty where there is none.

    The first name of the kind counts. A name with a NUL or another control character is none: it could be cut
    off elsewhere, and be another one there.
    """
    if not certificate:
        return ""
    subject = [pair for names in certificate.get("subject", ()) for pair in names]
    if login_from == COMMON_NAME:
        found = [value for key, value in subject if key == "commonName"]
    elif login_from == DISTINGUISHED_NAME:
        found = [",".join([f"{SHORT.get(key, key)}={value}" for key, value in reversed(subject)])]
    else:
        kind = ALTERNATIVE_NAMES[login_from]
        found = [value for key, value in certificate.get("subjectAltName", ()) if key == kind]
    name = str(found[0]) if found else ""
    return name if name.isprintable() else ""
