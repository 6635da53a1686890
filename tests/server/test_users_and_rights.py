"""Users, permissions and limits of a running broker: made by penstockctl, felt by clients, there after a crash."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner

from penstock.cli.ctl.broker_control import BrokerControl, Refused
from penstock.cli.ctl.main import penstockctl
from penstock.testing import Broker
from tests.frame_socket import DEADLINE_S

PASSWORD = "canary-Ufo8ahs2-password"
DOCS = Path(__file__).resolve().parents[2] / "docs"


class House:
    """A broker with a data folder, and a hand on its control socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = Broker(data_dir=folder)

    def ask(self, operation: str, **arguments: Any) -> Any:
        with BrokerControl(str(self.folder)) as control:
            return control.ask(operation, arguments)

    def add(self, name: str, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        self.ask("add_user", name=name, password=PASSWORD)
        self.ask("set_permissions", user=name, configure=configure, write=write, read=read)

    def connect(self, user: str = "guest", password: str = PASSWORD, vhost: str = "/") -> pika.BlockingConnection:
        given = pika.PlainCredentials(user, "guest" if user == "guest" else password)
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.broker.port, vhost, given))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "data")
    with made.broker:
        yield made


def refusal(act: Callable[[], object]) -> str:
    """The text with which the broker closes the channel or the connection."""
    with pytest.raises((pika.exceptions.AMQPChannelError, pika.exceptions.AMQPConnectionError)) as caught:
        act()
    return str(caught.value)


def test_a_user_does_what_its_permissions_say_and_open_connections_feel_a_change(house: House) -> None:
    house.add("ann", "^ann", "^(ann|amq.default)", "^ann")
    with house.connect("ann") as connection:
        channel = connection.channel()
        channel.queue_declare("ann.q", durable=True)
        for _ in range(3):
            # Routes are remembered from the second one on.
            channel.basic_publish("", "ann.q", b"x")
        channel.confirm_delivery()
        house.ask("set_permissions", user="ann", configure="", write="", read="")
        text = refusal(lambda: channel.basic_publish("", "ann.q", b"x"))
        assert "access to exchange 'amq.default' in vhost '/' refused for user 'ann'" in text
        text = refusal(lambda: connection.channel().queue_declare("bob.q"))
        assert "access to queue 'bob.q' in vhost '/' refused for user 'ann'" in text


def test_users_and_rights_are_there_after_a_crash_as_soon_as_they_were_answered(house: House) -> None:
    house.add("ann", "^a", "^b", "^c")
    house.ask("set_user_tags", name="ann", tags=["policymaker", "own"])
    house.ask("set_topic_permissions", user="ann", exchange="amq.topic", write="^w", read="^r")
    house.ask("set_user_limits", name="ann", limits={"max-channels": 7})
    house.ask("add_vhost", name="v", description="of ann", tags="x, y")
    house.ask("set_vhost_limits", vhost="v", limits={"max-queues": 3})
    house.ask("add_user", name="gone", password=PASSWORD)
    house.ask("delete_user", name="gone")
    for _ in range(2):
        before = [house.ask(name) for name in ("list_users", "list_vhosts", "list_permissions")]
        house.broker.kill()
        house.broker = Broker(data_dir=house.folder)
        house.broker.start()
        assert [house.ask(name) for name in ("list_users", "list_vhosts", "list_permissions")] == before
    assert house.ask("list_topic_permissions") == [
        {"user": "ann", "exchange": "amq.topic", "write": "^w", "read": "^r"}
    ]
    with house.connect("ann"):
        pass
    house.broker.stop()


def test_a_deleted_user_loses_its_connections(house: House) -> None:
    house.add("ann")
    connection = house.connect("ann")
    house.ask("delete_user", name="ann")
    text = refusal(lambda: connection.process_data_events(time_limit=DEADLINE_S))
    assert "(320, \"CONNECTION_FORCED - broker forced connection closure with reason 'user 'ann' is deleted'\")" in text
    refusal(lambda: house.connect("ann"))


def test_a_deleted_vhost_takes_its_connections_queues_and_folder_along(house: House) -> None:
    house.add("ann")
    house.ask("add_vhost", name="v")
    house.ask("set_permissions", vhost="v", user="ann", configure=".*", write=".*", read=".*")
    connection = house.connect("ann", vhost="v")
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("own", exclusive=True)
    channel.confirm_delivery()
    for body in (b"small", b"x" * 100_000):
        channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
    folders = len(list((house.folder / "vhosts").iterdir()))
    house.ask("delete_vhost", name="v")
    text = refusal(lambda: connection.process_data_events(time_limit=DEADLINE_S))
    assert "vhost 'v' is deleted" in text
    assert len(list((house.folder / "vhosts").iterdir())) == folders - 1
    assert house.ask("list_user_permissions", user="ann") == [
        {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    ]
    # One of that name is another one.
    house.ask("add_vhost", name="v")
    house.ask("set_permissions", vhost="v", user="ann", configure=".*", write=".*", read=".*")
    with house.connect("ann", vhost="v") as again:
        assert "no queue 'q' in vhost 'v'" in refusal(lambda: again.channel().queue_declare("q", passive=True))
    house.broker.kill()
    house.broker = Broker(data_dir=house.folder)
    house.broker.start()
    assert [row["name"] for row in house.ask("list_vhosts")] == ["/", "v"]
    house.broker.stop()


@pytest.mark.parametrize("limit", [1, 0])
def test_connections_of_a_user_are_limited(house: House, limit: int) -> None:
    house.add("ann")
    house.ask("set_user_limits", name="ann", limits={"max-connections": limit})
    open_ones = [house.connect("ann") for _ in range(limit)]
    text = refusal(lambda: house.connect("ann"))
    assert f"Connection refused for user 'ann': user connection limit ({limit}) is reached" in text
    for connection in open_ones:
        connection.close()
    house.ask("clear_user_limits", name="ann")
    house.connect("ann").close()


def test_connections_and_queues_of_a_vhost_and_channels_of_a_user_are_limited(house: House) -> None:
    house.add("ann")
    house.ask("set_vhost_limits", limits={"max-connections": 1, "max-queues": 1})
    house.ask("set_user_limits", name="ann", limits={"max-channels": 1})
    with house.connect("ann") as connection:
        text = refusal(lambda: house.connect("ann"))
        assert "access to vhost '/' refused for user 'ann': connection limit (1) is reached" in text
        channel = connection.channel()
        channel.queue_declare("first")
        channel.queue_declare("first")
        text = refusal(lambda: channel.queue_declare("second"))
        assert "cannot declare queue 'second': queue limit in vhost '/' (1) is reached" in text
    connection = house.connect("ann")
    connection.channel()
    text = refusal(connection.channel)
    assert "number of channels opened for user 'ann' has reached the maximum allowed user limit of (1)" in text


def test_a_changed_password_counts_at_once_and_an_open_connection_can_renew_its_secret(house: House) -> None:
    house.add("ann")
    house.connect("ann").close()
    connection = house.connect("ann")
    house.ask("change_password", name="ann", password="another-one")
    refusal(lambda: house.connect("ann"))
    connection.update_secret("another-one", "rotation")
    text = refusal(lambda: connection.update_secret(PASSWORD, "the old one"))
    assert "New secret was refused by one of the backends" in text
    house.connect("ann", "another-one").close()


def test_a_user_without_a_password_cannot_log_in(house: House) -> None:
    house.add("ann")
    house.ask("clear_password", name="ann")
    for password in (PASSWORD, ""):
        assert "ACCESS_REFUSED" in refusal(lambda password=password: house.connect("ann", password))  # type: ignore[misc]


def test_many_logins_of_one_user_at_once_all_succeed(house: House) -> None:
    house.add("ann")
    failed: list[BaseException] = []

    def log_in() -> None:
        try:
            house.connect("ann").close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=log_in) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert failed == []


def test_publishing_with_a_routing_key_that_is_not_allowed_is_refused_also_in_cc(house: House) -> None:
    house.add("ann")
    house.ask("set_topic_permissions", user="ann", exchange="amq.topic", write="^{username}\\.", read="^all")
    with house.connect("ann") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "ann.x", b"x")
        carbon = pika.BasicProperties(headers={"CC": ["bob.x"]})
        for properties, key in ((None, "bob.x"), (carbon, "ann.x")):
            channel = connection.channel()
            channel.confirm_delivery()
            text = refusal(lambda: channel.basic_publish("amq.topic", key, b"x", properties))  # noqa: B023
            assert "access to topic 'bob.x'" in text
        queue = connection.channel().queue_declare("", exclusive=True).method.queue
        assert "access to topic 'bob'" in refusal(lambda: connection.channel().queue_bind(queue, "amq.topic", "bob"))


def test_only_an_impersonator_publishes_in_another_name(house: House) -> None:
    house.add("ann")
    properties = pika.BasicProperties(user_id="bob")
    with house.connect("ann") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        assert "user_id property set to 'bob'" in refusal(lambda: channel.basic_publish("", "q", b"", properties))
        house.ask("set_user_tags", name="ann", tags=["impersonator"])
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"", properties)


def test_guest_is_gone_when_there_is_another_administrator_also_after_a_restart(house: House) -> None:
    connection = house.connect()
    house.add("ann")
    house.ask("set_user_tags", name="ann", tags=["administrator"])
    assert "user 'guest' is deleted" in refusal(lambda: connection.process_data_events(time_limit=DEADLINE_S))
    house.broker.stop()
    house.broker.start()
    assert [row["user"] for row in house.ask("list_users")] == ["ann"]
    refusal(house.connect)


@pytest.mark.parametrize(
    ("operation", "arguments", "kind"),
    [
        ("add_user", {"name": "guest", "password": "x"}, "exists"),
        ("add_user", {"name": "", "password": "x"}, "bad_request"),
        ("add_user", {"name": "ann", "password": ""}, "bad_request"),
        ("add_user", {"name": "ann", "password_hash": "x"}, "bad_request"),
        ("add_user", {"name": "ann", "password": "x" * 2000}, "bad_request"),
        ("delete_user", {"name": "nobody"}, "not_found"),
        ("change_password", {"name": "nobody", "password": "x"}, "not_found"),
        ("authenticate_user", {"name": "guest", "password": "wrong"}, "not_allowed"),
        ("set_permissions", {"user": "nobody", "configure": "", "write": "", "read": ""}, "not_found"),
        ("set_permissions", {"user": "guest", "configure": "(", "write": "", "read": ""}, "bad_request"),
        ("set_permissions", {"vhost": "no", "user": "guest", "configure": "", "write": "", "read": ""}, "not_found"),
        ("set_topic_permissions", {"user": "guest", "exchange": "x", "write": "[", "read": ""}, "bad_request"),
        ("set_user_limits", {"name": "nobody", "limits": {}}, "not_found"),
        ("set_vhost_limits", {"limits": {"max-channels": 1}}, "bad_request"),
        ("clear_vhost_limits", {"limit": "max"}, "bad_request"),
        ("add_vhost", {"name": "/"}, "exists"),
        ("add_vhost", {"name": "a\nb"}, "bad_request"),
        ("delete_vhost", {"name": "no"}, "not_found"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason_and_changes_nothing(
    house: House, operation: str, arguments: dict[str, Any], kind: str
) -> None:
    before = house.ask("list_users"), house.ask("list_vhosts"), house.ask("list_permissions")
    with pytest.raises(Refused) as caught:
        house.ask(operation, **arguments)
    assert caught.value.kind == kind
    assert (house.ask("list_users"), house.ask("list_vhosts"), house.ask("list_permissions")) == before


def test_a_password_is_nowhere_in_what_is_written(
    house: House, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    house.add("ann")
    house.ask("authenticate_user", name="ann", password=PASSWORD)
    house.connect("ann").close()
    connection = house.connect("ann")
    house.ask("change_password", name="ann", password=PASSWORD + "2")
    for password in (PASSWORD, PASSWORD + "wrong"):
        refusal(lambda password=password: house.connect("ann", password))  # type: ignore[misc]
    connection.update_secret(PASSWORD + "2", "rotation")
    refusal(lambda: connection.update_secret(PASSWORD + "3", "wrong"))
    with pytest.raises(Refused) as caught:
        house.ask("add_user", name="ann", password=PASSWORD)
    house.broker.stop()
    said = caplog.text + "".join(capfd.readouterr()) + str(caught.value)
    written = b"".join(path.read_bytes() for path in house.folder.rglob("*") if path.is_file())
    assert b"argon2id" in written
    assert PASSWORD not in said
    assert PASSWORD.encode() not in written
    house.broker.start()


def test_the_commands_of_the_guide_work(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(house.folder))
    commands = re.findall(r"^    penstockctl (.+)$", (DOCS / "access.md").read_text(), re.MULTILINE)
    assert len(commands) > 15
    for command in commands:
        result = CliRunner().invoke(penstockctl, shlex.split(command))
        assert result.exit_code == 0, f"{command}: {result.output}"
