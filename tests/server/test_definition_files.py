"""Definitions files at a running broker: at its start, by command, to and from a real RabbitMQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result

from penstock.cli.ctl.main import penstockctl
from penstock.config import Config
from penstock.errors import StartupError
from penstock.testing import Broker
from tests.oracle import RabbitMQ
from tests.unit.broker.test_transfer import FILE


def ctl(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(penstockctl, [*words, "--data-dir", str(folder)])


def written(folder: Path, definitions: dict[str, Any], name: str = "definitions.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(definitions))
    return path


def exported(folder: Path) -> dict[str, Any]:
    result = ctl(folder, "export_definitions", "-", "-q")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def login(broker: Broker, user: str, password: str, vhost: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(broker.host, broker.port, vhost, credentials=pika.PlainCredentials(user, password))
    )


def test_a_file_imported_by_command_is_there_after_a_crash(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = Broker(data_dir=data).start()
    assert ctl(data, "import_definitions", str(written(tmp_path, FILE))).exit_code == 0
    broker.kill()
    with broker, login(broker, "ann", "secret", "shop") as connection:
        assert connection.channel().queue_declare("orders", passive=True).method.message_count == 0
        assert exported(data)["policies"] == FILE["policies"]


def test_a_file_that_is_refused_says_where_and_exits_with_65(tmp_path: Path) -> None:
    file = written(tmp_path, {"queues": [{"name": "q", "vhost": "nowhere"}]})
    with Broker(data_dir=tmp_path / "data"):
        result = ctl(tmp_path / "data", "import_definitions", str(file))
    assert result.exit_code == 65
    assert "queues[0] 'q' is in vhost 'nowhere'" in result.output


@pytest.mark.parametrize(("text", "code"), [("{", 65), ("[]", 65), (None, 64)])
def test_what_is_no_definitions_file_is_refused_before_the_broker_is_asked(
    tmp_path: Path, text: str | None, code: int
) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    assert ctl(tmp_path, "import_definitions", str(file)).exit_code == code


def test_an_exported_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with Broker(data_dir=tmp_path / "data"):
        assert ctl(tmp_path / "data", "export_definitions", str(file)).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["product_name"] == "penstock"


def test_a_broker_loads_definitions_at_its_start_and_passes_over_what_it_has_loaded(tmp_path: Path) -> None:
    file = written(tmp_path, FILE)
    config = Config(load_definitions=str(file), definitions_skip_if_unchanged=True, data_dir=str(tmp_path / "data"))
    broker = Broker(config)
    with broker, login(broker, "ann", "secret", "shop") as connection:
        connection.channel().queue_delete("orders")
    with broker:
        assert broker.call(lambda server: list(server.broker.vhosts["shop"].queues)) == []


def test_a_broker_without_a_disk_loads_definitions_too(tmp_path: Path) -> None:
    with Broker(Config(load_definitions=str(written(tmp_path, FILE)))) as broker:
        assert broker.call(lambda server: list(server.broker.vhosts["shop"].queues)) == ["orders"]


@pytest.mark.parametrize(("text", "complaint"), [("{", "is not JSON"), ('{"cows": []}', "'cows' is not a section")])
def test_a_broker_does_not_start_with_definitions_that_it_cannot_load(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(text)
    with pytest.raises(StartupError, match=complaint):
        Broker(Config(load_definitions=str(file))).start()


@pytest.mark.oracle
def test_definitions_go_from_a_rabbitmq_to_penstock_and_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RabbitMQ() as rabbit, Broker(data_dir=data):
        rabbit.ctl("add_vhost", "shop")
        rabbit.ctl("add_user", "ann", "secret")
        rabbit.ctl("set_user_tags", "ann", "administrator")
        rabbit.ctl("set_permissions", "-p", "shop", "ann", ".*", "^a", "")
        rabbit.ctl("set_topic_permissions", "-p", "shop", "ann", "amq.topic", "^x", "^y")
        rabbit.ctl("set_policy", "-p", "shop", "p", "^orders", '{"max-length":5}', "--apply-to", "queues")
        rabbit.ctl("set_operator_policy", "-p", "shop", "op", "^q", '{"max-length":9}')
        rabbit.ctl("set_vhost_limits", "-p", "shop", '{"max-queues":77}')
        with pika.BlockingConnection(pika.URLParameters(rabbit.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("ex", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
            channel.queue_declare("orders", durable=True, arguments={"x-message-ttl": 60_000, "x-max-priority": 3})
            channel.queue_bind("orders", "ex", "a.#")
        theirs = json.loads(rabbit.ctl("export_definitions", "-", "-q").stdout)
        imported = ctl(data, "import_definitions", str(written(tmp_path, theirs)))
        assert imported.exit_code == 0, imported.output
        ours = exported(data)
        for section in ("users", "permissions", "topic_permissions", "exchanges", "queues", "bindings", "policies"):
            assert by_text(ours[section]) == by_text(theirs[section]), section
        # A user and a queue of penstock's own go the other way, as far as RabbitMQ can take them.
        assert ctl(data, "add_user", "carl", "pass-word").exit_code == 0
        assert ctl(data, "set_permissions", "-p", "shop", "carl", ".*", ".*", ".*").exit_code == 0
        out = tmp_path / "ours.json"
        assert ctl(data, "export_definitions", str(out), "--for-rabbitmq").exit_code == 0
        rabbit.ctl("import_definitions", given=out.read_text())
        again = json.loads(rabbit.ctl("export_definitions", "-", "-q").stdout)
        assert {user["name"] for user in again["users"]} == {"ann", "carl", "guest"}
        for section in ("permissions", "queues", "exchanges", "bindings", "policies"):
            assert by_text(again[section]) == by_text(exported(data)[section]), section


def by_text(entries: list[dict[str, Any]]) -> list[str]:
    """Entries in some order of their own. RabbitMQ does not say that an exchange is not internal."""
    whole = [{"internal": False, **entry} if entry.get("type") == "topic" else entry for entry in entries]
    return sorted(json.dumps(entry, sort_keys=True) for entry in whole)
