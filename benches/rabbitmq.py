"""rabbitmq-server as a broker under test: a node of its own, as it is installed, with default settings."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from benches.brokers import Broker, BrokerError, free_port

# Debian's /usr/sbin/rabbitmq-server writes to the system's log folder; the script behind it does not.
RABBITMQ_SCRIPTS: Final = ("/usr/lib/rabbitmq/bin/rabbitmq-server",)


class RabbitMQ(Broker):
    name = "RabbitMQ"

    def __init__(self, memory_limit_bytes: int | None = None, nice: int | None = None) -> None:
        super().__init__(memory_limit_bytes, nice)
        self._epmd: subprocess.Popen[bytes] | None = None
        # RabbitMQ's files must belong to whom it runs as, and it refuses to run as root.
        self._user: pwd.struct_passwd | None = None

    @classmethod
    def script(cls) -> str | None:
        """Where rabbitmq-server is installed, or None."""
        for path in RABBITMQ_SCRIPTS:
            if os.access(path, os.X_OK):
                return path
        return shutil.which("rabbitmq-server")

    @classmethod
    def version(cls) -> str:
        # .../rabbitmq_server-3.10.8/sbin/rabbitmq-server
        return Path(cls.script() or "").resolve().parent.parent.name.removeprefix("rabbitmq_server-") or "unknown"

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        script = self.script()
        assert script is not None, "RabbitMQ is started only where script() found it"
        if os.geteuid() == 0:
            try:
                self._user = pwd.getpwnam("rabbitmq")
            except KeyError:
                raise BrokerError("RabbitMQ does not run as root, and there is no user rabbitmq") from None
        environment = self._environment()
        self._write_configuration()
        self._start_epmd(environment)
        return self._popen([script], environment, log)

    def _popen(self, command: list[str], environment: dict[str, str], log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # The same after a restart: the node's data is kept under its name.
            "RABBITMQ_NODENAME": f"{folder.name}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        }

    def _write_configuration(self) -> None:
        lines = [f"listeners.tcp.default = 127.0.0.1:{self.port}", "log.file.level = warning"]
        if self.memory_limit_bytes is not None:
            lines.append(f"vm_memory_high_watermark.absolute = {self.memory_limit_bytes}")
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "rabbitmq-env.conf").touch()
        (self.folder / "enabled_plugins").write_text("[].\n")
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _start_epmd(self, environment: dict[str, str]) -> None:
        """Erlang's name server, which the node would otherwise start as a daemon and leave behind."""
        epmd = shutil.which("epmd")
        if epmd is None:
            raise BrokerError("epmd, a part of Erlang, is not installed")
        self._epmd = self._popen([epmd], environment, subprocess.DEVNULL)

    def stop(self) -> bool:
        clean = super().stop()
        self._stop_epmd()
        return clean

    def kill(self) -> None:
        super().kill()
        self._stop_epmd()

    def _stop_epmd(self) -> None:
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
