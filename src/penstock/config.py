"""What a broker is started with. Filled from flags and the environment by the command line, or by a test directly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock import limits
from penstock.errors import StartupError


@dataclass
class UserConfig:
    """A user with full permissions in every vhost."""

    name: str
    password: str
    # May only log in from this machine.
    loopback_only: bool = False


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
    # Bytes of waiting messages at which publishers are blocked.
    memory_bytes_max: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise StartupError(f"port {self.port} is not between 0 and 65535")
        if self.memory_bytes_max <= 0:
            self.memory_bytes_max = default_memory_bytes()


def default_memory_bytes() -> int:
    """A share of the machine's memory; 1 GiB where the system does not say how much it has."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1024**3
    return int(total * limits.MEMORY_SHARE)


def config_from_environment(env: Mapping[str, str]) -> Config:
    """PENSTOCK_* first, then the variables that RabbitMQ's images and testcontainers use."""

    def first(*names: str) -> str | None:
        for name in names:
            if env.get(name):
                return env[name]
        return None

    config = Config()
    host = first("PENSTOCK_HOST")
    if host:
        config.host = host
    port = first("PENSTOCK_PORT", "RABBITMQ_NODE_PORT")
    if port:
        if not port.isdigit() or int(port) > 65535:
            raise StartupError(f"PENSTOCK_PORT or RABBITMQ_NODE_PORT is '{port}'; it must be a port number")
        config.port = int(port)
    name = first("PENSTOCK_DEFAULT_USER", "RABBITMQ_DEFAULT_USER")
    password = first("PENSTOCK_DEFAULT_PASS", "RABBITMQ_DEFAULT_PASS")
    if name or password:
        user = name or "guest"
        config.users = [UserConfig(user, password or "guest", loopback_only=user == "guest")]
    vhost = first("PENSTOCK_DEFAULT_VHOST", "RABBITMQ_DEFAULT_VHOST")
    if vhost:
        config.vhosts = [vhost]
    return config
