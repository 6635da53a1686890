"""What an AMQP URL says."""

from __future__ import annotations

import pytest

from penstock.client.amqp.address import Address, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://", Address("localhost", 5672)),
        ("amqp://broker", Address("broker", 5672)),
        ("amqp://broker/", Address("broker", 5672)),
        ("AMQP://broker:1234/%2F", Address("broker", 1234)),
        ("amqps://broker", Address("broker", 5671, tls=True)),
        ("amqp://[::1]:99/a", Address("::1", 99, vhost="a")),
        ("amqp://me@broker", Address("broker", 5672, user="me")),
        ("amqp://:@broker", Address("broker", 5672, user="", password="")),
        ("amqp://a%40b:%2F%3A%23%20@broker/v%2Fw%C3%BC", Address("broker", 5672, False, "a@b", "/:# ", "v/wü")),
        ("amqp://broker?heartbeat=7&timeout=2.5", Address("broker", 5672, heartbeat_s=7, timeout_s=2.5)),
        (
            "amqps://broker/?cacertfile=/a%20b&certfile=c&keyfile=d",
            Address("broker", 5671, tls=True, cacertfile="/a b", certfile="c", keyfile="d"),
        ),
    ],
)
def test_a_url_is_read(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://broker", "amqp://"),
        ("amqp://u:hunter2@broker:port/", "port"),
        ("amqp://u:hunter2@broker:70000/", "port"),
        ("amqp://u:hunter2#@broker/", "%23"),
        ("amqp://u:hunter2@broker/?colour=red", "no parameter 'colour'"),
        ("amqp://u:hunter2@broker/?heartbeat=often", "heartbeat"),
        ("amqp://u:hunter2@broker/?heartbeat=-1", "heartbeat"),
        ("amqp://u:hunter2@broker/?timeout=0", "timeout"),
        ("amqp://u:hunter2@broker/?timeout=nan", "timeout"),
        ("amqp://u:hunter2@broker/" + "v" * 256, "vhost"),
        ("amqp://" + "u" * 256 + ":hunter2@broker/", "user name"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_the_password(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        parse_address(url)
    assert "hunter2" not in str(refusal.value)


def test_an_address_does_not_show_its_password() -> None:
    address = parse_address("amqp://me:hunter2@broker:1/")
    assert "hunter2" not in repr(address)
    assert str(address) == "broker:1"
