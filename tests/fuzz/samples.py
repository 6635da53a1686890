"""Valid input for each decoder, as a start for mutations."""

from __future__ import annotations

from penstock.fields import Table
from penstock.wire import methods
from penstock.wire.methods import Method
from penstock.wire.properties import Properties, encode_properties
from penstock.wire.tables import encode_table

from .client_frames import encode_all, publish

TABLE: Table = {
    "bool": ("t", True),
    "byte": ("b", -1),
    "octet": ("B", 200),
    "short": ("s", -2),
    "word": ("u", 60_000),
    "int": ("I", -3),
    "unsigned": ("i", 2**32 - 1),
    "long": ("l", -(2**63)),
    "float": ("f", 1.5),
    "double": ("d", 2.5),
    "decimal": ("D", (2, -314)),
    "text": ("S", b"text"),
    "binary": ("x", b"\x00\xff"),
    "time": ("T", 1_700_000_000),
    "void": ("V", None),
    "array": ("A", [("I", 1), ("A", [("V", None)]), ("F", {"k": ("S", b"v")})]),
    "table": ("F", {"inner": ("F", {"innermost": ("t", False)})}),
}
SMALL_TABLE: Table = {"x-match": ("S", b"all"), "n": ("I", 1)}

PROPERTIES = [
    Properties(),
    Properties(content_type="text/plain", headers=TABLE, delivery_mode=2, priority=9, timestamp=1),
    Properties(correlation_id="c", reply_to="r", expiration="60000", message_id="m", type="t", user_id="guest"),
    Properties(headers={"CC": ("A", [("S", b"a"), ("S", b"b")]), "BCC": ("A", [("S", b"c")])}),
    Properties(app_id="a", cluster_id="c", content_encoding="utf-8", expiration="-1"),
]

# One of each kind that has arguments worth breaking.
METHODS: list[Method] = [
    methods.ConnectionStartOk(SMALL_TABLE, "PLAIN", b"\x00guest\x00guest"),
    methods.ConnectionTuneOk(2047, 131_072, 60),
    methods.ConnectionOpen("/"),
    methods.ConnectionClose(200, "bye", 0, 0),
    methods.ConnectionUpdateSecret(b"secret", "why"),
    methods.ChannelOpen(),
    methods.ChannelClose(200, "bye", 0, 0),
    methods.ChannelFlow(True),
    methods.ExchangeDeclare("x", "topic", arguments=SMALL_TABLE),
    methods.ExchangeBind("a", "b", "key", arguments=SMALL_TABLE),
    methods.QueueDeclare("q", arguments=SMALL_TABLE),
    methods.QueueBind("q", "x", "key", arguments=SMALL_TABLE),
    methods.QueueUnbind("q", "x", "key", SMALL_TABLE),
    methods.QueueDelete("q"),
    methods.BasicQos(0, 10, True),
    methods.BasicConsume("q", "tag", arguments=SMALL_TABLE),
    methods.BasicPublish("x", "key", True),
    methods.BasicDeliver("tag", 1, False, "x", "key"),
    methods.BasicReturn(312, "NO_ROUTE", "x", "key"),
    methods.BasicGetOk(1, False, "x", "key", 5),
    methods.BasicAck(1, True),
    methods.BasicNack(1, True, True),
    methods.ConfirmSelect(),
    methods.TxCommit(),
]

PROPERTY_BYTES = [encode_properties(each) for each in PROPERTIES]
AMQPLAIN = encode_table({"LOGIN": ("S", b"guest"), "PASSWORD": ("S", b"guest")})[4:]
MIXED = encode_all(
    publish(1, "x", "key", b"one")
    + publish(1, "x", "key", b"two", Properties(message_id="m", priority=3))
    + publish(1, "x", "key", b"three", Properties(content_type="t", delivery_mode=2, timestamp=1, app_id="a"))
    + publish(1, "x", "key", b"four", Properties(content_encoding="e", correlation_id="c", type="t", cluster_id="c"))
    + publish(1, "x", "key", b"five", Properties(user_id="u"))
)
RUN = b"prefix" + b"body\xce"

TOML = b"""
port = 5673
memory_bytes_max = "2 GiB"
vhosts = ["/", "a"]
checkpoint_s = 1.5
in_memory = true
compatibility = "strict"
[[users]]
name = "ann"
password = "secret"
"""
RABBITMQ_CONF = b"""
# comment
listeners.tcp.default = 127.0.0.1:5672
vm_memory_high_watermark.relative = 0.4
disk_free_limit.absolute = 50MB
default_pass = 'a # b'
default_user = $(SET)
log.console.level = debug
loopback_users.guest = false
deprecated_features.permit.global_qos = true
cluster_name = x
"""

SAMPLES: dict[str, list[bytes]] = {
    "method": [each.encode() for each in METHODS],
    "table": [encode_table({}), encode_table(SMALL_TABLE), encode_table(TABLE)],
    "properties": PROPERTY_BYTES,
    "content": PROPERTY_BYTES,
    "sasl_scram": [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO\x00c=biws,r=rOprNGfwEbeRWgbNEkqO,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"y,,n=a=2Cb=3Dc,r=x,ext=1\x00c=eSws,r=x,p=AAAA",
    ],
    "sasl_plain": [b"\x00guest\x00guest", b"authzid\x00user\x00password"],
    "sasl_amqplain": [AMQPLAIN],
    "scan_mixed": [MIXED],
    "scan_run": [bytes((5, 3)) + RUN * 3],
    "settings_toml": [TOML],
    "settings_rabbitmq_conf": [RABBITMQ_CONF],
    "settings_value": [
        bytes([number]) + text for number in range(0, 50, 3) for text in (b"5", b"2 GiB", b"none", b"a,b")
    ],
}
