"""What a broker is started with. `settings/` fills it from flags, variables and files; a test fills it directly.

A field that is made by `setting(…)` is a row of the table of settings: it has a key in penstock.toml, a variable, a
place in `penstock serve --help` and in docs/configuration.md without further code. After a change here, run
`.venv/bin/python tools/settings_pages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock import limits
from penstock.errors import StartupError
from penstock.machine import default_memory_bytes
from penstock.setting import INTEGER, MIB, TEXT, USERS, by_name, setting, settings_of

# The specification's frame-min-size: any client may send a frame of this size.
FRAME_BYTES_LEAST: Final = 4_096
# The default user.
GUEST: Final = "guest"
# When a persistent message counts as safe: synced to disk, written to the system, or at once.
CONFIRM_SYNC: Final = ("fsync", "os", "none")
# Which RabbitMQ penstock behaves like where versions differ.
LENIENT: Final = "lenient"
STRICT: Final = "strict"
# What RabbitMQ 4.3 refuses and 3.13 permits, under RabbitMQ's names.
TRANSIENT_QUEUES: Final = "transient_nonexcl_queues"
GLOBAL_QOS: Final = "global_qos"
DEPRECATED: Final = (TRANSIENT_QUEUES, GLOBAL_QOS)
# RabbitMQ 4's smallest frame_max; the specification's is half of it.
STRICT_FRAME_BYTES_MIN: Final = 8_192
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")


@dataclass
class UserConfig:
    """A user with full permissions in every vhost."""

    name: str
    password: str
    # Made by us because the configuration names no user. It goes when another administrator comes.
    is_default: bool = False


@dataclass
class Config:
    """Settings of one broker."""

    # --- listeners ------------------------------------------------------------------------------------

    host: str = setting(
        "127.0.0.1",
        "listeners",
        "Address to listen on.",
        "A broker that was just installed is not reachable from other machines.",
        flag="--host",
        rabbitmq_variables=("RABBITMQ_NODE_IP_ADDRESS",),
    )
    port: int = setting(
        5672,
        "listeners",
        "Port; 0 = any free one.",
        "AMQP's registered port, which every client tries first.",
        least=0,
        most=65_535,
        flag="--port",
        rabbitmq_variables=("RABBITMQ_NODE_PORT",),
    )
    http_port: int | None = setting(
        None,
        "listeners",
        "Serve history over HTTP on this port; 0 = any free one. Needs penstock[http].",
        "Readers on other machines do not see the data folder.",
        kind=INTEGER,
        is_optional=True,
        least=0,
        most=65_535,
        flag="--http-port",
        default_text="not served",
    )
    http_host: str | None = setting(
        None,
        "listeners",
        "Address for HTTP.",
        "History can be served to another network than AMQP.",
        kind=TEXT,
        is_optional=True,
        flag="--http-host",
        default_text="that of --host",
    )

    # --- TLS ------------------------------------------------------------------------------------------

    tls_port: int | None = setting(
        None,
        "TLS",
        "Serve AMQP within TLS on this port, usually 5671; 0 = any free one.",
        "It needs a certificate, which every installation has of its own.",
        kind=INTEGER,
        is_optional=True,
        least=0,
        most=65_535,
        flag="--tls-port",
        default_text="no TLS",
        rabbitmq_keys=("listeners.ssl.default",),
    )
    tls_cert: str | None = setting(
        None,
        "TLS",
        "The certificate, with those between it and its CA, as PEM.",
        "`penstock tls dev` makes one for developers. SIGHUP reads the file again.",
        kind=TEXT,
        is_optional=True,
        flag="--tls-cert",
        metavar="FILE",
        is_reloaded=True,
        default_text="none",
        rabbitmq_keys=("ssl_options.certfile",),
    )
    tls_key: str | None = setting(
        None,
        "TLS",
        "The certificate's private key, as PEM, not encrypted.",
        "A broker starts without anybody at a terminal. Let nobody else read the file.",
        kind=TEXT,
        is_optional=True,
        flag="--tls-key",
        metavar="FILE",
        is_reloaded=True,
        default_text="none",
        rabbitmq_keys=("ssl_options.keyfile",),
    )
    tls_ca: str | None = setting(
        None,
        "TLS",
        "The certificates of the CAs that client certificates may come from, as PEM.",
        "Clients are verified against these alone, not against those that the machine trusts.",
        kind=TEXT,
        is_optional=True,
        flag="--tls-ca",
        metavar="FILE",
        is_reloaded=True,
        default_text="none",
        rabbitmq_keys=("ssl_options.cacertfile",),
    )
    tls_verify_peer: bool = setting(
        False,
        "TLS",
        "Ask clients for a certificate, and verify it.",
        "With one a client can log in without a password (EXTERNAL).",
        flag="--tls-verify-peer",
        is_reloaded=True,
    )
    tls_fail_if_no_peer_cert: bool = setting(
        False,
        "TLS",
        "Refuse clients without a certificate.",
        "Only with tls_verify_peer. Others log in with a password.",
        flag="--tls-fail-if-no-peer-cert",
        is_reloaded=True,
        rabbitmq_keys=("ssl_options.fail_if_no_peer_cert",),
    )
    tls_login_from: str = setting(
        "common_name",
        "TLS",
        "Which name in a client certificate is the user's, for EXTERNAL.",
        "Most CAs put the name of a service there, or into its alternative names.",
        choices=("common_name", "distinguished_name", "san_dns", "san_email", "san_uri"),
    )
    tls_version_min: str = setting(
        "1.2",
        "TLS",
        "The oldest version of TLS that clients may use.",
        "Older ones are broken. Some clients of today have no 1.3.",
        choices=("1.2", "1.3"),
        is_reloaded=True,
    )
    tls_ciphers: str | None = setting(
        None,
        "TLS",
        "Ciphers for TLS 1.2, as OpenSSL names them.",
        "OpenSSL's own choice is good; some rules ask for less.",
        kind=TEXT,
        is_optional=True,
        is_reloaded=True,
        default_text="OpenSSL's",
    )
    http_tls: bool = setting(
        False,
        "TLS",
        "Serve HTTP within TLS, with the same certificate.",
        "History has everything that was published.",
        flag="--http-tls",
    )
    allow_clear_text_passwords: bool = setting(
        False,
        "TLS",
        "Let clients on other machines send their passwords without TLS (PLAIN, AMQPLAIN).",
        "Everybody on the way can read them. In a private network, or behind a proxy that has TLS, that may be fine.",
        flag="--allow-clear-text-passwords",
        is_reloaded=True,
    )

    # --- users and vhosts -----------------------------------------------------------------------------

    vhosts: list[str] = setting(
        ["/"],
        "users and vhosts",
        "A virtual host; may be repeated.",
        "Clients name a vhost when they connect; most name this one.",
        flag="--vhost",
        metavar="NAME",
    )
    default_vhost: str | None = setting(
        None,
        "users and vhosts",
        "The only virtual host, as RabbitMQ's images are told it.",
        "Images and testcontainers set one vhost by this name. `vhosts` is for more than one.",
        kind=TEXT,
        is_optional=True,
        default_text="/",
        rabbitmq_variables=("RABBITMQ_DEFAULT_VHOST",),
        rabbitmq_keys=("default_vhost",),
    )
    users: list[UserConfig] = setting(
        [UserConfig(GUEST, "guest", is_default=True)],
        "users and vhosts",
        "A user with full permissions, made at each start; may be repeated. Replaces guest:guest. A user named guest"
        " may only connect from this machine.",
        "A broker that was just installed can be used at once, from this machine alone. The default user leaves when"
        " another administrator is made.",
        kind=USERS,
        flag="--user",
        metavar="NAME:PASSWORD",
        is_secret=True,
        default_text="guest:guest",
    )
    default_user: str | None = setting(
        None,
        "users and vhosts",
        "The name of the only user, as RabbitMQ's images are told it.",
        "Images and testcontainers set one user by this name and default_pass. `users` is for more than one.",
        kind=TEXT,
        is_optional=True,
        default_text=GUEST,
        rabbitmq_variables=("RABBITMQ_DEFAULT_USER",),
        rabbitmq_keys=("default_user",),
    )
    default_pass: str | None = setting(
        None,
        "users and vhosts",
        "The password of default_user.",
        "It belongs into a file that only the broker's user can read, or into the environment: everybody on the machine"
        " can see flags.",
        kind=TEXT,
        is_optional=True,
        is_secret=True,
        default_text=GUEST,
        rabbitmq_variables=("RABBITMQ_DEFAULT_PASS",),
        rabbitmq_keys=("default_pass",),
    )
    loopback_users: list[str] = setting(
        [GUEST],
        "users and vhosts",
        "A user who may only log in from this machine, whatever password it has; may be repeated.",
        "Everybody knows guest's password. This is RabbitMQ's rule, too.",
    )
    login_refused_delay_s: float = setting(
        limits.LOGIN_REFUSED_DELAY_S,
        "users and vhosts",
        "How long the next login of a user from an address waits after a refused one.",
        "Guessing passwords is slow, and a client with a wrong one does not flood the log.",
        unit="s",
        least=0,
        most=3600,
    )

    load_definitions: str | None = setting(
        None,
        "users and vhosts",
        "Import this definitions file, in RabbitMQ's format, at each start.",
        "A broker that is made anew, in a container or for a test, has its users, queues and policies at once.",
        kind=TEXT,
        is_optional=True,
        flag="--load-definitions",
        metavar="FILE",
        default_text="none",
        rabbitmq_keys=("load_definitions", "definitions.local.path"),
    )
    definitions_skip_if_unchanged: bool = setting(
        False,
        "users and vhosts",
        "Pass over the definitions file if the same one was imported last.",
        "What was deleted by hand since then stays deleted.",
        rabbitmq_keys=("definitions.skip_if_unchanged",),
    )

    # --- protocol -------------------------------------------------------------------------------------

    channels_max: int = setting(
        limits.CHANNELS_MAX,
        "protocol",
        "Channels of one connection.",
        "RabbitMQ's default. Clients that need more have lost count of them.",
        least=1,
        most=65_535,
        rabbitmq_keys=("channel_max",),
        is_reloaded=True,
    )
    frame_bytes_max: int = setting(
        limits.FRAME_BYTES_MAX,
        "protocol",
        "The largest frame, in both directions.",
        "RabbitMQ's default, and what every client is tuned for.",
        unit="bytes",
        least=FRAME_BYTES_LEAST,
        most=2**32 - 1,
        rabbitmq_keys=("frame_max",),
        is_reloaded=True,
    )
    heartbeat_s: int = setting(
        limits.HEARTBEAT_S,
        "protocol",
        "The heartbeat that clients are offered; 0 = none.",
        "RabbitMQ's default. A dead peer is noticed after two of them.",
        unit="s",
        least=0,
        most=65_535,
        rabbitmq_keys=("heartbeat",),
        is_reloaded=True,
    )
    handshake_s: float = setting(
        limits.HANDSHAKE_S,
        "protocol",
        "How long a connection may take from its first byte to connection.open.",
        "A client that says nothing holds a descriptor; a login takes milliseconds. RabbitMQ's default.",
        unit="s",
        least=0.05,
        most=3600,
        is_reloaded=True,
    )
    message_bytes_max: int = setting(
        limits.MESSAGE_BYTES_MAX,
        "protocol",
        "The largest message. A larger one closes its channel with 406.",
        "RabbitMQ 3.13's default. It is checked before a byte of the body is kept.",
        unit="bytes",
        least=1,
        most=limits.MESSAGE_BYTES_MAX,
        rabbitmq_keys=("max_message_size",),
    )

    # --- limits ---------------------------------------------------------------------------------------

    connections_max: int = setting(
        limits.CONNECTIONS_MAX,
        "limits",
        "Connections that have logged in.",
        "Each takes a descriptor and some 8 KiB; a process that may open few files has fewer.",
        least=1,
        most=limits.CONNECTIONS_MAX,
        rabbitmq_keys=("connection_max", "max_connections"),
    )
    consumers_per_channel_max: int = setting(
        limits.CONSUMERS_PER_CHANNEL_MAX,
        "limits",
        "Consumers of one channel.",
        "Every change of a channel's credit is told to each of them.",
        least=1,
        most=limits.CONSUMERS_PER_CHANNEL_MAX,
        rabbitmq_keys=("consumer_max_per_channel",),
        is_reloaded=True,
    )
    queues_per_vhost_max: int = setting(
        limits.QUEUES_PER_VHOST_MAX,
        "limits",
        "Queues of one vhost.",
        "They are in memory and in every checkpoint, and a start reads them whole.",
        least=1,
        most=limits.QUEUES_PER_VHOST_MAX,
    )
    exchanges_per_vhost_max: int = setting(
        limits.EXCHANGES_PER_VHOST_MAX,
        "limits",
        "Exchanges of one vhost, with those that are always there.",
        "They are in memory and in every checkpoint, and a start reads them whole.",
        least=10,
        most=limits.EXCHANGES_PER_VHOST_MAX,
    )
    bindings_per_vhost_max: int = setting(
        limits.BINDINGS_PER_VHOST_MAX,
        "limits",
        "Bindings of one vhost.",
        "They are in memory and in every checkpoint, and a start reads them whole.",
        least=1,
        most=limits.BINDINGS_PER_VHOST_MAX,
    )
    churn_per_s_max: int = setting(
        limits.CHURN_PER_S,
        "limits",
        "How often a second one connection may open or close channels, declare, delete, bind, unbind, consume or"
        " cancel, when it goes on and on. A connection that does it more often is read more slowly.",
        "Each of these costs as much as hundreds of messages, and durable ones are written to the journal.",
        least=1,
        most=1_000_000,
    )
    churn_burst: int = setting(
        limits.CHURN_BURST,
        "limits",
        "How many of these a connection may do at once before churn_per_s_max counts.",
        "A program that declares everything it has when it starts is not slowed.",
        least=1,
        most=10_000_000,
    )

    # --- compatibility --------------------------------------------------------------------------------

    compatibility: str = setting(
        LENIENT,
        "compatibility",
        "Behave like RabbitMQ 3.13 (lenient), or refuse what RabbitMQ 4.3 refuses (strict).",
        "Programs that were written for 3.x run as they are. With strict one sees what an upgrade would break:"
        " transient queues that are not exclusive, basic.qos with global, frames smaller than 8192 bytes."
        " `penstockctl list_deprecated_features` says what is used.",
        choices=(LENIENT, STRICT),
        flag="--compatibility",
        is_reloaded=True,
    )
    deprecated_permitted: list[str] = setting(
        [],
        "compatibility",
        f"Features that strict compatibility permits nevertheless: {', '.join(DEPRECATED)}.",
        "RabbitMQ's deprecated_features.permit.NAME = true.",
        default_text="none",
        is_reloaded=True,
    )
    deprecated_denied: list[str] = setting(
        [],
        "compatibility",
        "Features that lenient compatibility refuses nevertheless.",
        "RabbitMQ's deprecated_features.permit.NAME = false.",
        default_text="none",
        is_reloaded=True,
    )

    # --- memory and disk ------------------------------------------------------------------------------

    memory_bytes_max: int = setting(
        0,
        "memory and disk",
        "Block publishers when waiting messages take this much memory.",
        "Python, the system and other programs need the rest.",
        unit="bytes",
        least=1,
        flag="--memory-limit",
        metavar="MIB",
        flag_scale=MIB,
        default_text="40 % of the machine's",
        is_reloaded=True,
    )
    disk_bytes_min: int = setting(
        0,
        "memory and disk",
        "Block publishers when the disk of the data folder has less room than this.",
        "Acks, deletes and checkpoints still need room on a disk that is nearly full.",
        unit="bytes",
        least=1,
        flag="--disk-limit",
        metavar="MIB",
        flag_scale=MIB,
        default_text="512 MiB, or 5 % of a small disk",
        is_reloaded=True,
    )
    descriptors_max: int = setting(
        0,
        "memory and disk",
        "File descriptors that the broker may use.",
        "Connections, files of queues and the HTTP endpoint share them out at the start.",
        least=32,
        default_text="as many as the process may have",
    )

    # --- storage --------------------------------------------------------------------------------------

    data_dir: str | None = setting(
        None,
        "storage",
        "Where durable queues and messages are kept.",
        "One broker at a time can use a folder.",
        kind=TEXT,
        is_optional=True,
        flag="--data-dir",
        metavar="FOLDER",
        default_text="'penstock' in the user's data folder: ~/.local/share on Linux",
    )
    in_memory: bool = setting(
        False,
        "storage",
        "Keep nothing on disk: when the broker stops, all is gone.",
        "For tests and for messages that nobody misses.",
        flag="--in-memory",
    )
    confirm_sync: str = setting(
        "fsync",
        "storage",
        "When a persistent message is confirmed: when it is synced to disk (fsync), when the system has it (os:"
        " survives a crash of the broker, not of the machine), or at once (none).",
        "A confirm is a promise; docs/durability.md says which.",
        choices=CONFIRM_SYNC,
        flag="--confirm-sync",
    )
    queue_ram_messages: int = setting(
        2_048,
        "storage",
        "Messages of one queue that stay in RAM when it pages out.",
        "They are delivered without reading the disk while the next ones are read ahead: a few milliseconds of"
        " deliveries. A queue that holds few large messages in RAM is governed by memory_bytes_max instead.",
        least=16,
        most=10_000_000,
    )
    queue_ram_slack_messages: int = setting(
        8_192,
        "storage",
        "How many messages more a queue may hold in RAM before it begins to page out.",
        "A burst of this size that is consumed soon is never read back from the disk.",
        least=0,
        most=10_000_000,
    )
    embed_bytes_below: int = setting(
        4_096,
        "storage",
        "Smaller bodies are written into the journal for each queue; others once into the store that queues share.",
        "RabbitMQ's default. A small body costs less to copy than to look up; a large one in a fan-out is written"
        " once.",
        unit="bytes",
        least=0,
        most=MIB,
        rabbitmq_keys=("queue_index_embed_msgs_below",),
    )
    checkpoint_s: float = setting(
        60.0,
        "storage",
        "A checkpoint is written after so long, if anything has changed.",
        "A start reads the journal behind the newest checkpoint, and history goes after a checkpoint.",
        unit="s",
        least=1,
        most=3600,
    )
    checkpoint_bytes: int = setting(
        512 * MIB,
        "storage",
        "A checkpoint is written after so many bytes of journal.",
        "A start after a crash reads at most about this much: some seconds.",
        unit="bytes",
        least=64 * MIB,
        most=2**40,
    )
    sync_window_s: float = setting(
        0.01,
        "storage",
        "How long messages and acks that no client waits for are gathered before they are synced.",
        "A crash takes at most this much of what nobody was promised; longer windows sync less often.",
        unit="s",
        least=0.001,
        most=1,
    )

    # --- history --------------------------------------------------------------------------------------

    history_bytes_max: int = setting(
        1024 * MIB,
        "history",
        "Keep this much of the journal as history when no message needs it any more.",
        "The pipeline and `penstock history` read it; an old journal otherwise only takes room.",
        unit="bytes",
        least=0,
        flag="--history-limit",
        metavar="MIB",
        flag_scale=MIB,
        is_reloaded=True,
    )
    history_hours_max: float = setting(
        7 * 24.0,
        "history",
        "Keep history for this long at most.",
        "A week: who asks what happened to a message seldom asks later.",
        unit="hours",
        least=0,
        flag="--history-hours",
        metavar="HOURS",
        is_reloaded=True,
    )
    readers_bytes_max: int = setting(
        10 * 1024 * MIB,
        "history",
        "Keep this much more of it, and longer, for named readers that have not read it yet; see `penstock history"
        " readers`.",
        "A reader that is away for a weekend finds everything; one that never comes back does not fill the disk.",
        unit="bytes",
        least=0,
        flag="--readers-limit",
        metavar="MIB",
        flag_scale=MIB,
    )

    # --- PostgreSQL -----------------------------------------------------------------------------------

    postgres_url: str | None = setting(
        None,
        "PostgreSQL",
        "A PostgreSQL for queues that are declared with x-backing=postgres: its URL, or 'embedded' for one of the"
        " broker's own in the data folder. The schema is made if it is not there.",
        "Several brokers, and programs without a broker, can share such queues.",
        kind=TEXT,
        is_optional=True,
        is_secret=True,
        flag="--postgres",
        metavar="URL|embedded",
        default_text="there are none",
    )
    postgres_schema: str = setting(
        "penstock",
        "PostgreSQL",
        "The schema of these queues.",
        "Several brokers can have queues of their own in one database.",
        flag="--postgres-schema",
        metavar="NAME",
    )
    postgres_queues: list[str] = setting(
        [],
        "PostgreSQL",
        "Durable queues with such names are in PostgreSQL without having said so; may be repeated. *, ? and [] as in a"
        " shell.",
        "Programs that cannot be changed declare their queues without arguments.",
        flag="--postgres-queues",
        metavar="PATTERN",
        default_text="none",
    )

    # --- pipeline -------------------------------------------------------------------------------------

    pipeline: bool = setting(
        False,
        "pipeline",
        "Archive every message's life to a lake beside the broker, refine it and write a report. Needs"
        " penstock[pipeline].",
        "Spark needs memory and a Java: it is for those who ask.",
        flag="--pipeline",
    )
    lake: str | None = setting(
        None,
        "pipeline",
        "Where the lake of --pipeline is.",
        "It grows with what is archived, and may need another disk.",
        kind=TEXT,
        is_optional=True,
        flag="--lake",
        metavar="FOLDER",
        default_text="the data folder's name + '-lake'",
    )

    # --- log ------------------------------------------------------------------------------------------

    log_level: str = setting(
        "info",
        "log",
        "The least important lines that are logged.",
        "What an operator wants to see and nothing per message.",
        choices=LOG_LEVELS,
        flag="--log-level",
        is_reloaded=True,
    )
    log_format: str = setting(
        "text",
        "log",
        "How a line is written: as text for people, or as one JSON object for programs.",
        "Programs that collect logs need not guess where a name ends.",
        choices=LOG_FORMATS,
        flag="--log-format",
    )
    log_file: str | None = setting(
        None,
        "log",
        "Write the log to this file; when it is moved away, a new one is begun.",
        "Under systemd and in containers stderr is collected; elsewhere a file is rotated by logrotate.",
        kind=TEXT,
        is_optional=True,
        flag="--log-file",
        metavar="FILE",
        default_text="stderr",
    )

    # --- stop -----------------------------------------------------------------------------------------

    drain_s: float = setting(
        2.0,
        "stop",
        "How long a stop waits for clients to acknowledge what they have and for confirms that are on their way.",
        "A message that is acknowledged in this time is not delivered again after the start. Without such messages a"
        " stop does not wait.",
        unit="s",
        least=0,
        most=3600,
        flag="--drain",
        metavar="SECONDS",
        is_reloaded=True,
    )

    def __post_init__(self) -> None:
        for row in SETTINGS.values():
            value = getattr(self, row.name)
            if value != row.default:
                row.check(value, row.name)
        if self.in_memory:
            self.data_dir = None
        for name in (*self.deprecated_permitted, *self.deprecated_denied):
            if name not in DEPRECATED:
                raise StartupError(f"{name!a} is no deprecated feature; there are {', '.join(DEPRECATED)}")
        if self.postgres_queues and self.postgres_url is None:
            raise StartupError("queues are to be in PostgreSQL, and nobody says where it is: give --postgres URL")
        if self.tls_fail_if_no_peer_cert and not self.tls_verify_peer:
            raise StartupError("clients without a certificate can be refused only with --tls-verify-peer")
        if not self.users or not self.vhosts:
            raise StartupError("a broker needs at least one user and one vhost")
        if "" in self.vhosts:
            raise StartupError("a vhost has no name: give --vhost NAME (or PENSTOCK_DEFAULT_VHOST)")
        if self.memory_bytes_max <= 0:
            self.memory_bytes_max = default_memory_bytes()


SETTINGS: Final = by_name(settings_of(Config))
