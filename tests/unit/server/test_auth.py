"""SASL responses: the well-formed ones, and those on which brokers have crashed or opened their doors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from penstock.broker.access.password import configured_password
from penstock.broker.access.users import Users
from penstock.fields import Field, Table
from penstock.server.connection.auth import MECHANISMS, RESPONSE_BYTES_MAX, BadResponse, read_response
from penstock.wire.tables import encode_table


def amqplain(table: Table) -> bytes:
    """A field table without its length, as AMQPLAIN has it."""
    return encode_table(table)[4:]


def text(value: bytes) -> Field:
    return ("S", value)


def test_plain_is_a_user_and_a_password() -> None:
    assert read_response("PLAIN", b"\x00guest\x00secret") == ("guest", b"secret")


def test_amqplain_is_a_table_in_any_order_with_anything_besides() -> None:
    response = amqplain({"PASSWORD": text(b"secret"), "OTHER": ("I", 5), "LOGIN": text(b"guest")})
    assert read_response("AMQPLAIN", response) == ("guest", b"secret")


def test_names_and_passwords_may_have_any_characters_but_nul() -> None:
    assert read_response("PLAIN", "\x00Jürgen\x00pässwörd".encode()) == ("Jürgen", "pässwörd".encode())
    assert read_response("PLAIN", b"\x00guest\x00\xff\xfe") == ("guest", b"\xff\xfe")


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"guest", id="no NUL"),
        pytest.param(b"guest guest", id="no NUL but two words"),
        pytest.param(b"\x00", id="one NUL"),
        pytest.param(b"\x00guest", id="password missing"),
        pytest.param(b"guest\x00guest", id="first NUL missing"),
        pytest.param(b"\x00guest\x00secret\x00", id="three NULs"),
        pytest.param(b"\x00guest\x00\x00secret", id="NUL in the password"),
        pytest.param(b"\x00\x00\x00", id="only NULs"),
        pytest.param(b"admin\x00guest\x00secret", id="on behalf of somebody else"),
        pytest.param(b"\x00\xff\xfe\x00secret", id="name not UTF-8"),
        pytest.param(b"\x00guest\x00" + b"x" * RESPONSE_BYTES_MAX, id="endless password"),
    ],
)
def test_a_malformed_plain_response_is_refused(response: bytes) -> None:
    with pytest.raises(BadResponse):
        read_response("PLAIN", response)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(b"", id="empty"),
        pytest.param(amqplain({"LOGIN": text(b"guest")}), id="password missing"),
        pytest.param(amqplain({"PASSWORD": text(b"guest")}), id="login missing"),
        pytest.param(amqplain({"login": text(b"guest"), "password": text(b"guest")}), id="small letters"),
        pytest.param(amqplain({"LOGIN": ("I", 1), "PASSWORD": text(b"guest")}), id="login no string"),
        pytest.param(amqplain({"LOGIN": text(b"guest"), "PASSWORD": ("V", None)}), id="password void"),
        pytest.param(amqplain({"LOGIN": text(b"guest"), "PASSWORD": ("t", True)}), id="password true"),
        pytest.param(amqplain({"LOGIN": text(b"\xff"), "PASSWORD": text(b"guest")}), id="name not UTF-8"),
        pytest.param(encode_table({"LOGIN": text(b"a"), "PASSWORD": text(b"b")}), id="with its length"),
        pytest.param(amqplain({"LOGIN": text(b"a"), "PASSWORD": text(b"b")})[:-1], id="cut short"),
        pytest.param(b"\x00guest\x00guest", id="a response of PLAIN"),
        pytest.param(b"\x05LOGINS\xff\xff\xff\xffx", id="a length of 4 GiB"),
        pytest.param(b"\x01aA" + b"\x00\x00\x00\xf0A" * 40, id="nested arrays"),
    ],
)
def test_a_malformed_amqplain_response_is_refused(response: bytes) -> None:
    with pytest.raises(BadResponse):
        read_response("AMQPLAIN", response)


@settings(deadline=None, max_examples=examples(200))
@given(st.sampled_from(MECHANISMS), st.binary(max_size=60))
def test_no_response_gets_anything_but_a_name_and_a_password_or_a_refusal(mechanism: str, response: bytes) -> None:
    try:
        name, password = read_response(mechanism, response)
    except BadResponse:
        return
    assert name.encode() in response
    assert password in response


def test_an_empty_or_missing_name_or_password_logs_nobody_in() -> None:
    users = Users()
    users.add("guest", configured_password(b"guest"))
    users.add("blank", configured_password(b""))
    attempts = [b"\x00\x00", b"\x00guest\x00", b"\x00blank\x00", b"\x00\x00guest"]
    assert [users.authenticate(*read_response("PLAIN", attempt)) for attempt in attempts] == [None] * 4
    empty = amqplain({"LOGIN": text(b"blank"), "PASSWORD": text(b"")})
    assert users.authenticate(*read_response("AMQPLAIN", empty)) is None
