"""The generated part of docs/limits.md: what a client may not exceed, what it is told, and every constant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from penstock import limits
from penstock.config import SETTINGS
from penstock.settings.values import to_text

SOURCE: Final = Path(limits.__file__).with_suffix(".py")
SECTION: Final = re.compile(r"# --- (.+?) -+$")
CONSTANT: Final = re.compile(r"([A-Z][A-Z0-9_]*): Final = ")
# What a name ends in, or has in it, says what is counted.
UNITS: Final = (
    ("_BYTES", "bytes"),
    ("_MESSAGES", "messages"),
    ("_MS", "ms"),
    ("_S", "s"),
    ("_ROWS", "rows"),
    ("_CHARS", "characters"),
    ("_SHARE", "share"),
)


class PeerLimit(NamedTuple):
    # What is limited.
    what: str
    # A constant of limits.py or a setting.
    name: str
    # What happens to who goes over it.
    answer: str
    # The file and the test that goes over it.
    test: str


CLIENTS: Final = "tests/server/test_limits_of_clients.py"
EACH: Final = f"{CLIENTS}::test_one_too_many_is_refused_with_its_code_and_the_neighbour_is_served"
FLOOD: Final = f"{CLIENTS}::test_a_flood_is_slowed_and_answered_while_the_neighbour_is_served"
LIMITS: Final = "tests/server/test_limits.py"
BOUNDS: Final = "tests/fuzz/test_bounds.py"
ROWS: Final = (
    PeerLimit(
        "octets of a frame before the login",
        "PRE_AUTH_FRAME_BYTES_MAX",
        "501, the connection ends",
        f"{CLIENTS}::test_a_frame_before_the_login_is_a_small_one",
    ),
    PeerLimit(
        "time from the first octet to connection.open",
        "handshake_s",
        "the connection is cut",
        f"{LIMITS}::test_a_handshake_that_drips_is_cut_off",
    ),
    PeerLimit(
        "connections that have not logged in, altogether; half of them from one address",
        "PRE_AUTH_CONNECTIONS_MAX",
        "the oldest of that address is cut after a second, or the new one at once",
        f"{LIMITS}::test_too_many_clients_in_their_handshake_are_refused_and_others_are_served",
    ),
    PeerLimit(
        "pace of wrong passwords, by user and address",
        "login_refused_delay_s",
        "403, and the next login waits",
        f"{LIMITS}::test_guesses_on_connections_of_their_own_are_slow_and_a_right_password_is_let_in",
    ),
    PeerLimit(
        "connections",
        "connections_max",
        "530 `connection refused: node connection limit (…) is reached`",
        f"{CLIENTS}::test_more_connections_than_the_settings_allow_are_refused",
    ),
    PeerLimit("channels of a connection", "channels_max", "530 `number of channels opened (…) has reached …`", EACH),
    PeerLimit("octets of a frame", "frame_bytes_max", "501, the connection ends", EACH),
    PeerLimit("nesting of tables and arrays", "TABLE_DEPTH_MAX", "502, the connection ends", EACH),
    PeerLimit("fields of a table", "TABLE_ITEMS_MAX", "502 `table with more than 4096 fields`", EACH),
    PeerLimit("octets of a message", "message_bytes_max", "406 at its header, before its body is kept", EACH),
    PeerLimit(
        "unfinished content of a connection",
        "PARTIAL_CONTENT_BYTES_MAX",
        "506, the connection ends",
        f"{LIMITS}::test_unfinished_content_is_limited_over_all_channels_of_a_connection",
    ),
    PeerLimit(
        "content of transactions that are not committed",
        "PARTIAL_CONTENT_BYTES_MAX",
        "506, the connection ends",
        f"{BOUNDS}::test_publishes_that_are_never_committed_are_bounded",
    ),
    PeerLimit(
        "answers that a client does not read",
        "OUTPUT_BYTES_MAX",
        "it is not read until it reads",
        f"{BOUNDS}::test_answers_to_a_client_that_does_not_read_are_bounded_and_come_when_it_does",
    ),
    PeerLimit(
        "routes that a connection is remembered with",
        "PUBLISH_ROUTES_MAX",
        "older ones are forgotten",
        f"{BOUNDS}::test_remembered_routes_are_bounded",
    ),
    PeerLimit(
        "consumers of a channel", "consumers_per_channel_max", "406 `this channel has its … consumers already`", EACH
    ),
    PeerLimit("queues of a consumer (x-multiqueue)", "QUEUES_PER_CONSUMER_MAX", "406", EACH),
    PeerLimit("queues of a vhost", "queues_per_vhost_max", "406 `vhost '…' has its … queues already`", EACH),
    PeerLimit("exchanges of a vhost", "exchanges_per_vhost_max", "406 `vhost '…' has its … exchanges already`", EACH),
    PeerLimit("bindings of a vhost", "bindings_per_vhost_max", "406 `vhost '…' has its … bindings already`", EACH),
    PeerLimit(
        "arguments of a queue, exchange or binding", "ARGUMENTS_BYTES_MAX", "406 `arguments of … are too large`", EACH
    ),
    PeerLimit(
        "definitions of a vhost",
        "DEFINITION_BYTES_PER_VHOST_MAX",
        "406 `cannot declare …`",
        "tests/unit/broker/test_definition_sizes.py::",
    ),
    PeerLimit("words of a topic pattern", "TOPIC_WORDS_MAX", "406", EACH),
    PeerLimit(
        "work of routing one message",
        "ROUTING_STEPS_MAX",
        "406, the message is refused",
        f"{LIMITS}::test_a_message_that_takes_too_long_to_route_is_refused",
    ),
    PeerLimit("time to live", "EXPIRATION_MS_MAX", "406 `invalid expiration …`", EACH),
    PeerLimit("channels opened and closed, over and over", "churn_per_s_max", "it is read more slowly", FLOOD),
    PeerLimit("declarations, deletions, bindings, consumers, over and over", "churn_per_s_max", "the same", FLOOD),
    PeerLimit(
        "commands on the control socket at once",
        "CONTROL_CONNECTIONS_MAX",
        "`busy`",
        "tests/server/test_control_socket.py::",
    ),
    PeerLimit(
        "memory of waiting messages",
        "memory_bytes_max",
        "publishers are blocked (`connection.blocked`), others are served",
        "tests/server/test_memory_alarm.py::",
    ),
    PeerLimit(
        "room on the disk",
        "disk_bytes_min",
        "publishers are blocked, others are served",
        "tests/server/test_durable_messages.py::",
    ),
)


def limits_page() -> str:
    lines = ["| what | limit | over it | test |", "|---|---|---|---|"]
    for row in ROWS:
        file, _, function = row.test.partition("::")
        test = f"`{file.rpartition('/')[2]}`" + (
            f": {function.removeprefix('test_').replace('_', ' ')}" if function else ""
        )
        lines.append(f"| {row.what} | {_shown(row.name)} | {row.answer} | {test} |")
    return "\n".join(["### What a client is told", "", *lines, "", "### Every constant", "", *_constants(), ""])


def _shown(name: str) -> str:
    if name in SETTINGS:
        row = SETTINGS[name]
        default = row.default_text or to_text(row, row.default)
        return f"{default} (setting `{name}`)"
    return f"{value_text(name, getattr(limits, name))} (`{name}`)"


def value_text(name: str, value: float) -> str:
    unit = next((unit for part, unit in UNITS if f"{part}_" in f"{name}_"), "")
    if unit == "bytes" and isinstance(value, int):
        for suffix, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value >= size and value % size == 0:
                return f"{value // size:,} {suffix}"
    return f"{value:,} {unit}".rstrip()


def _constants() -> list[str]:
    """Return tables of all constants, each with the comment above it."""
    lines: list[str] = []
    comment: list[str] = []
    said = ""
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        if found := SECTION.match(line):
            lines += ["", f"**{found[1][0].upper()}{found[1][1:]}**", "", "| constant | value | why |", "|---|---|---|"]
            comment = []
        elif line.startswith("# "):
            comment.append(line[2:])
        elif lines and (found := CONSTANT.match(line)):
            # A constant without a comment belongs to the one above it.
            said = " ".join(comment).replace("|", "\\|") if comment else "″" if said else ""
            lines.append(f"| `{found[1]}` | {value_text(found[1], getattr(limits, found[1]))} | {said} |")
            comment = []
        else:
            comment, said = [], ""
    return lines[1:]
