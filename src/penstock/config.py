"""What a broker is started with. Filled from flags and the environment by the command line, or by a test directly."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock import limits
from penstock.errors import StartupError

# The specification's frame-min-size: any client may send a frame of this size.
FRAME_BYTES_LEAST = 4_096
# Where Linux tells a container how much memory it may use: cgroup v2, then v1.
CONTAINER_LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# RabbitMQ's rule for its well-known default user, whatever password it was given.
GUEST = "guest"
# When a persistent message counts as safe: synced to disk, written to the system, or at once.
CONFIRM_SYNC = ("fsync", "os", "none")


@dataclass
class UserConfig:
    """A user with full permissions in every vhost."""

    name: str
    password: str
    # May only log in from this machine.
    loopback_only: bool = False


def user_from_outside(name: str, password: str) -> UserConfig:
    """Return a user that was named in an option or a variable."""
    return UserConfig(name, password, loopback_only=name == GUEST)


@dataclass
class Config:
    """Settings of one broker."""

    host: str = "127.0.0.1"
    # 0 lets the system choose.
    port: int = 5672
    vhosts: list[str] = field(default_factory=lambda: ["/"])
    users: list[UserConfig] = field(default_factory=lambda: [UserConfig("guest", "guest", loopback_only=True)])
    channels_max: int = limits.CHANNELS_MAX
    frame_bytes_max: int = limits.FRAME_BYTES_MAX
    heartbeat_s: int = limits.HEARTBEAT_S
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    handshake_s: float = limits.HANDSHAKE_S
    login_refused_delay_s: float = limits.LOGIN_REFUSED_DELAY_S
    # Descriptors that the broker may use; 0 = as many as the process may have.
    descriptors_max: int = 0
    # Bytes of waiting messages at which publishers are blocked.
    memory_bytes_max: int = 0
    # Where everything durable is kept; None = in memory, nothing is.
    data_dir: str | None = None
    confirm_sync: str = "fsync"
    # Free bytes on the disk of the data folder below which publishers are blocked; 0 = by the size of the disk.
    disk_bytes_min: int = 0
    # Journal segments that no message needs any more are kept as history up to this size and this age.
    history_bytes_max: int = 1024**3
    history_hours_max: float = 7 * 24.0
    # Beyond that, what named readers of history have not read is kept up to this size; 0 = they hold nothing.
    readers_bytes_max: int = 10 * 1024**3
    # Where history is served over HTTP: None = nowhere; 0 lets the system choose. Without a host: where AMQP is.
    http_port: int | None = None
    http_host: str | None = None
    # The database of queues in PostgreSQL: a URL, or "embedded" for one in the data folder; None = there are none.
    postgres_url: str | None = None
    postgres_schema: str = "penstock"
    # Names of queues that are there without having said so (*, ? and [] as in a shell).
    postgres_queues: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The upper ends are those of the fields on the wire.
        _check_range("port", self.port, 0, 65_535)
        _check_range("channels_max", self.channels_max, 1, 65_535)
        _check_range("frame_bytes_max", self.frame_bytes_max, FRAME_BYTES_LEAST, 2**32 - 1)
        _check_range("heartbeat_s", self.heartbeat_s, 0, 65_535)
        if self.history_bytes_max < 0 or self.history_hours_max < 0:
            raise StartupError("history cannot be kept for less than nothing")
        if self.readers_bytes_max < 0:
            raise StartupError(f"readers_bytes_max is {self.readers_bytes_max}; it must be 0 or more")
        if self.http_port is not None:
            _check_range("http_port", self.http_port, 0, 65_535)
        if self.confirm_sync not in CONFIRM_SYNC:
            raise StartupError(f"confirm_sync is '{self.confirm_sync}'; it must be one of {', '.join(CONFIRM_SYNC)}")
        if self.postgres_queues and self.postgres_url is None:
            raise StartupError("queues are to be in PostgreSQL, and nobody says where it is: give --postgres URL")
        if not self.users or not self.vhosts:
            raise StartupError("a broker needs at least one user and one vhost")
        if "" in self.vhosts:
            raise StartupError("a vhost has no name: give --vhost NAME (or PENSTOCK_DEFAULT_VHOST)")
        if self.memory_bytes_max <= 0:
            self.memory_bytes_max = default_memory_bytes()


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise StartupError(f"{name} is {value}; it must be between {least} and {most}")


def default_memory_bytes(container_limit_files: Iterable[str] = CONTAINER_LIMIT_FILES) -> int:
    """A share of the memory of the machine, or of the container; 1 GiB where the system does not say what it has."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1024**3
    for path in container_limit_files:
        total = min(total, _limit_in(path) or total)
    return int(total * limits.MEMORY_SHARE)


def _limit_in(path: str) -> int:
    """0 when there is no such file or no limit in it ("max")."""
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def default_data_dir(env: Mapping[str, str], platform: str = sys.platform) -> str:
    """Return the folder that this system gives a user's programs for their data."""
    home = Path(env.get("HOME") or Path.home())
    if platform == "win32":
        base = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    return str(base / "penstock")


def config_from_environment(env: Mapping[str, str]) -> Config:
    """PENSTOCK_* first, then the variables that RabbitMQ's images and testcontainers use."""

    def first(*names: str) -> tuple[str, str]:
        for name in names:
            if env.get(name):
                return name, env[name]
        return "", ""

    config = Config()
    _, host = first("PENSTOCK_HOST")
    if host:
        config.host = host
    variable, port = first("PENSTOCK_PORT", "RABBITMQ_NODE_PORT")
    if port:
        if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
            raise StartupError(f"{variable} is '{port}'; it must be a port number")
        config.port = int(port)
    _, name = first("PENSTOCK_DEFAULT_USER", "RABBITMQ_DEFAULT_USER")
    _, password = first("PENSTOCK_DEFAULT_PASS", "RABBITMQ_DEFAULT_PASS")
    if name or password:
        config.users = [user_from_outside(name or GUEST, password or "guest")]
    _, vhost = first("PENSTOCK_DEFAULT_VHOST", "RABBITMQ_DEFAULT_VHOST")
    if vhost:
        config.vhosts = [vhost]
    _, data_dir = first("PENSTOCK_DATA_DIR")
    if data_dir:
        config.data_dir = data_dir
    _, postgres_url = first("PENSTOCK_POSTGRES_URL")
    if postgres_url:
        config.postgres_url = postgres_url
    _, confirm_sync = first("PENSTOCK_CONFIRM_SYNC")
    if confirm_sync:
        if confirm_sync not in CONFIRM_SYNC:
            raise StartupError(
                f"PENSTOCK_CONFIRM_SYNC is '{confirm_sync}'; it must be one of {', '.join(CONFIRM_SYNC)}"
            )
        config.confirm_sync = confirm_sync
    return config
