"""Where settings come from: penstock.toml, rabbitmq.conf, the environment, flags; and which of them counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import SETTINGS, Config, UserConfig
from penstock.errors import StartupError
from penstock.machine import default_memory_bytes
from penstock.settings.places import config_file, default_places
from penstock.settings.rabbitmq_conf import read_lines
from penstock.settings.rabbitmq_keys import read_keys
from penstock.settings.resolve import resolve
from penstock.settings.toml_file import read_toml
from penstock.settings.values import from_text, to_text

NOWHERE = {"HOME": "/nobody", "XDG_CONFIG_HOME": "/nobody"}


def from_conf(text: str, **env: str) -> tuple[dict[str, Any], list[str]]:
    warnings: list[str] = []
    return read_keys(read_lines(text, "r.conf", env), warnings), warnings


# --- penstock.toml --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("port = 5673", {"port": 5673}),
        ('memory_bytes_max = "2 GiB"', {"memory_bytes_max": 2**31}),
        ("memory_bytes_max = 1000", {"memory_bytes_max": 1000}),
        ("checkpoint_s = 30", {"checkpoint_s": 30.0}),
        ('checkpoint_s = "2 min"', {"checkpoint_s": 120.0}),
        ('sync_window_s = "5ms"', {"sync_window_s": 0.005}),
        ('history_hours_max = "2 days"', {"history_hours_max": 48.0}),
        ('vhosts = ["/", "a"]', {"vhosts": ["/", "a"]}),
        ("in_memory = true", {"in_memory": True}),
        ('[[users]]\nname = "a"\npassword = "b"', {"users": [UserConfig("a", "b")]}),
    ],
)
def test_a_file_gives_settings(text: str, values: dict[str, Any]) -> None:
    assert read_toml(text, "p.toml") == values


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", "p.toml: there is no setting 'prot'; did you mean port?"),
        ("memory_limit_max = 1", "did you mean memory_bytes_max?"),
        ("[limits]\nport = 1", "settings stand at the top of the file, without [tables]"),
        ("port = 70000", "p.toml: port is 70000; it must be between 0 and 65535"),
        ('port = "5672"', "p.toml: port is '5672'; it must be a port number"),
        ("port = true", "p.toml: port is True; it must be a port number"),
        ("port = 1.5", "it must be a port number"),
        ("checkpoint_s = nan", "it must be a number of seconds"),
        ("checkpoint_s = inf", "it must be a number of seconds"),
        ('checkpoint_s = "2 parsecs"', "it must be a number of seconds"),
        ('memory_bytes_max = "1.5"', "it must be a whole number"),
        ('vhosts = "a"', "it must be a list of texts"),
        ("vhosts = [1]", "it must be a list of texts"),
        ('users = ["a:b"]', "each needs a name and a password"),
        ('[[users]]\nname = "a"', "each needs a name and a password"),
        ('confirm_sync = "maybe"', "it must be one of fsync, os, none"),
        ("port = ", "p.toml is not TOML"),
        ("port = 1\nport = 2", "p.toml is not TOML"),
        ("a = " + "[" * 5000, "p.toml is not TOML"),
        ("# " + "x" * 2**20, "it is not a file of settings"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(StartupError) as refused:
        read_toml(text, "p.toml")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_password_of_a_wrong_type_is_not_shown() -> None:
    with pytest.raises(StartupError) as refused:
        read_toml("default_pass = 12345678", "p.toml")
    assert "12345678" not in str(refused.value)


def test_the_file_is_the_named_one_or_the_users_or_the_machines(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert config_file(None, env) is None
    own = tmp_path / "xdg/penstock/penstock.toml"
    own.parent.mkdir(parents=True)
    own.write_text("port = 1")
    assert config_file(None, env) == str(own)
    assert config_file(None, {**env, "PENSTOCK_CONFIG": "/c"}) == "/c"
    assert config_file("/f", {**env, "PENSTOCK_CONFIG": "/c"}) == "/f"
    assert default_places({"HOME": "/u"}, "linux") == [
        "/u/.config/penstock/penstock.toml",
        "/etc/penstock/penstock.toml",
    ]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "not UTF-8"])
def test_a_named_file_that_cannot_be_read_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "p.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StartupError, match=r"cannot read .*p\.toml"):
        resolve(NOWHERE, config_path=str(path))


# --- which counts ----------------------------------------------------------------------------------------


def test_flags_win_over_variables_over_files(tmp_path: Path) -> None:
    toml, conf = tmp_path / "p.toml", tmp_path / "r.conf"
    conf.write_text("heartbeat = 11\nframe_max = 5000\nchannel_max = 5\ndefault_vhost = one\nlisteners.tcp.1 = 5671")
    toml.write_text("heartbeat_s = 22\nframe_bytes_max = 6000\nport = 1")
    env = {**NOWHERE, "PENSTOCK_HEARTBEAT_S": "33", "PENSTOCK_PORT": "2", "RABBITMQ_NODE_PORT": "3"}
    resolved = resolve(env, {"port": 4}, ["history_hours_max=1"], str(toml), [str(conf)])
    config = resolved.config()
    assert (config.heartbeat_s, resolved.source("heartbeat_s")) == (33, "PENSTOCK_HEARTBEAT_S")
    assert (config.frame_bytes_max, resolved.source("frame_bytes_max")) == (6000, str(toml))
    assert (config.channels_max, resolved.source("channels_max")) == (5, str(conf))
    assert (config.port, resolved.source("port")) == (4, "--port")
    assert (config.history_hours_max, resolved.source("history_hours_max")) == (1.0, "--set")
    assert (config.vhosts, resolved.source("vhosts")) == (["one"], str(conf))
    assert resolved.source("lake") == "default"
    assert resolved.files == [str(conf), str(toml)]


def test_a_list_and_the_setting_that_stands_for_it_agree() -> None:
    env = {**NOWHERE, "PENSTOCK_DEFAULT_USER": "ann", "PENSTOCK_DEFAULT_PASS": "x", "PENSTOCK_VHOSTS": "a,b"}
    assert resolve(env).config().users == [UserConfig("ann", "x")]
    assert resolve(env, {"users": [UserConfig("bob", "y")]}).config().users == [UserConfig("bob", "y")]
    assert resolve({**env, "RABBITMQ_DEFAULT_VHOST": "c"}).config().vhosts == ["a", "b"]


@pytest.mark.parametrize(
    ("pair", "complaint"),
    [
        ("checkpoint_s", "has no value"),
        ("chekpoint_s=1", "did you mean checkpoint_s?"),
        ("checkpoint_s=0", "--set checkpoint_s is 0.0; it must be between 1 and 3600"),
        ("in_memory=perhaps", "it must be true or false"),
    ],
)
def test_a_wrong_pair_is_refused(pair: str, complaint: str) -> None:
    with pytest.raises(StartupError) as refused:
        resolve(NOWHERE, pairs=[pair])
    assert complaint in str(refused.value)


def test_an_optional_setting_can_be_switched_off_again() -> None:
    assert resolve({**NOWHERE, "PENSTOCK_HTTP_PORT": "1"}, pairs=["http_port=none"]).config().http_port is None


def test_variables_that_mean_nothing_are_named_without_their_value() -> None:
    env = {**NOWHERE, "RABBITMQ_SERVER_START_ARGS": "s3cret", "PENSTOCK_PROT": "s3cret", "PENSTOCK_URL": "amqp://x"}
    warnings = resolve(env).warnings
    assert warnings == [
        "PENSTOCK_PROT is no setting; did you mean PENSTOCK_PORT?",
        "RABBITMQ_SERVER_START_ARGS means nothing to penstock and is passed over",
    ]


# --- rabbitmq.conf ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("# heartbeat = 1\n\n  # x", {}),
        ("heartbeat = 30", {"heartbeat_s": 30}),
        ("heartbeat=30 # seconds", {"heartbeat_s": 30}),
        ("heartbeat = 0", {"heartbeat_s": 0}),
        ("channel_max = 0", {"channels_max": 65_535}),
        ("frame_max = 0", {"frame_bytes_max": 2**32 - 1}),
        ("max_message_size = 1000", {"message_bytes_max": 1000}),
        ("handshake_timeout = 2500", {"handshake_s": 2.5}),
        ("queue_index_embed_msgs_below = 4kb", {"embed_bytes_below": 4000}),
        ("vm_memory_high_watermark.absolute = 2GB", {"memory_bytes_max": 2 * 10**9}),
        ("disk_free_limit.absolute = 50mb", {"disk_bytes_min": 50 * 10**6}),
        ("listeners.tcp.default = 5673", {"host": "0.0.0.0", "port": 5673}),
        ("listeners.tcp.local = 127.0.0.1:5673", {"host": "127.0.0.1", "port": 5673}),
        ("listeners.tcp.local_v6 = ::1:5673", {"host": "::1", "port": 5673}),
        ("default_user = ann\ndefault_pass = 'a # b'", {"default_user": "ann", "default_pass": "a # b"}),
        ("default_pass = $(SECRET)", {"default_pass": "$(OTHER)"}),
        ("default_user_tags.administrator = true", {}),
        ("log.console.level = debug", {"log_level": "debug"}),
        ("log.console.formatter = json", {"log_format": "json"}),
        ("loopback_users.guest = false", {"loopback_users": []}),
        ("loopback_users = none", {"loopback_users": []}),
        ("loopback_users.ann = true", {"loopback_users": ["guest", "ann"]}),
        ("deprecated_features.permit.global_qos = true", {"deprecated_permitted": ["global_qos"]}),
        ("deprecated_features.permit.global_qos = false", {"deprecated_denied": ["global_qos"]}),
    ],
)
def test_keys_of_rabbitmq_conf_are_settings(text: str, values: dict[str, Any]) -> None:
    assert from_conf(text, SECRET="$(OTHER)") == (values, [])


def test_a_share_of_the_memory_is_one_of_this_machine() -> None:
    values, _ = from_conf("vm_memory_high_watermark.relative = 0.4\ndisk_free_limit.relative = 0.2")
    assert values["memory_bytes_max"] == pytest.approx(default_memory_bytes(), rel=0.01)
    assert values["disk_bytes_min"] == pytest.approx(default_memory_bytes() / 2, rel=0.01)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("cluster_formation.node_type = disc", "r.conf, line 1: cluster_formation.node_type means nothing to penstock"),
        (
            "\nhartbeat = 1",
            "r.conf, line 2: hartbeat means nothing to penstock and is passed over; did you mean heartbeat?",
        ),
        ("listeners.tcp.1 = 1\nlisteners.tcp.2 = 2", "penstock has one AMQP listener; listeners.tcp.2 is passed over"),
        ("log.file.level = critical", "penstock logs error and above"),
        ("log.file.formatter = fancy", "can be plaintext or json here"),
        ("deprecated_features.permit.ram_node_type = true", "penstock has no feature ram_node_type"),
        ("default_user_tags.monitoring = true", "the default user is an administrator"),
    ],
)
def test_other_keys_are_warned_about_by_name(text: str, warning: str) -> None:
    (found,) = from_conf(text)[1]
    assert warning in found


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("heartbeat", "r.conf, line 1 is not of the form `key = value`"),
        ("= 1", "is not of the form"),
        ("heart beat = 1", "is not of the form"),
        ("heartbeat = often", "r.conf, line 1: heartbeat is 'often'; it must be a number of seconds"),
        ("heartbeat = 70000", "it must be between 0 and 65535"),
        ("default_pass = 'x", "a quoted value does not end in a quote"),
        ("default_pass = encrypted:abc", "penstock cannot decrypt default_pass"),
        ("default_pass = $(NOT_SET)", "names the variable NOT_SET, which is not set"),
        ("listeners.tcp.default = amqp", "it must be a port number"),
        ("vm_memory_high_watermark.relative = nan", "it must be a share of the memory"),
        ("vm_memory_high_watermark.relative = 0", "it must be a share of the memory"),
        ("log.console.level = loud", "it must be one of"),
        ("loopback_users.guest = maybe", "it must be true or false"),
        ("deprecated_features.permit.global_qos = maybe", "it must be true or false"),
        ("[{rabbit, []}].", "r.conf is in Erlang's old format"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(text: str, complaint: str) -> None:
    with pytest.raises(StartupError) as refused:
        from_conf(text)
    assert complaint in str(refused.value)


def test_rabbitmqs_variables_name_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "10-a.conf").write_text("heartbeat = 1\nchannel_max = 7")
    (folder / "20-b.conf").write_text("heartbeat = 2")
    (folder / "notes.txt").write_text("not read")
    (tmp_path / "one.conf").write_text("heartbeat = 3\nmax_message_size = 9")
    env = {**NOWHERE, "RABBITMQ_CONFIG_FILE": str(tmp_path / "one"), "RABBITMQ_CONFIG_FILES": str(folder)}
    config = resolve(env).config()
    assert (config.heartbeat_s, config.channels_max, config.message_bytes_max) == (2, 7, 9)


# --- values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("memory_bytes_max", 2**31, "2 GiB"),
        ("memory_bytes_max", 1000, "1000"),
        ("checkpoint_s", 1.5, "1.5 s"),
        ("heartbeat_s", 60, "60 s"),
        ("in_memory", True, "true"),
        ("http_port", None, "none"),
        ("vhosts", ["a", "b"], "a, b"),
        ("default_pass", "s3cret", "********"),
        ("users", [UserConfig("ann", "s3cret")], "ann:********"),
        ("postgres_url", "postgresql://u:s3cret@h/db", "********"),
    ],
)
def test_a_value_is_shown_as_people_write_it_and_secrets_are_not(name: str, value: object, text: str) -> None:
    assert to_text(SETTINGS[name], value) == text


def test_what_is_shown_is_understood_again() -> None:
    config = Config()
    for row in SETTINGS.values():
        if row.default and not row.is_secret and not row.default_text:
            assert from_text(row, to_text(row, getattr(config, row.name)), row.name) == row.default
