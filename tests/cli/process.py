"""`penstock serve` as a process of its own, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client

EXIT_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without anything that the command looks at, and with what the test sets.

    The data folder is not there: a test names one, or asks for a broker in memory. Nor is a file of settings.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "RABBITMQ_"))}
    return {**kept, "XDG_CONFIG_HOME": str(Path(__file__).parent / "no-settings"), **variables}


class ServeProcess:
    """One `penstock serve`; `ready` waits until it listens, `stop` ends it."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        number = len(list(folder.glob("stderr-*")))
        self._log = folder / f"stderr-{number}.log"
        # Each its own, unless the test says otherwise: never the one of whoever runs the tests.
        self.data_dir = folder / f"data-{number}"
        variables = {"PENSTOCK_DATA_DIR": str(self.data_dir), **variables}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", "--json", *arguments],
                # A terminal would make a hang-up of SIGHUP.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(**variables),
            )
        self.ready_line: dict[str, Any] = {}

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ready(self) -> ServeProcess:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended before it was ready: {self.log}"
        self.ready_line = json.loads(line)
        return self

    @property
    def port(self) -> int:
        return int(self.ready_line["port"])

    def client(self, **arguments: Any) -> Client:
        """A client that has logged in, with channel 1 open."""
        client = Client("127.0.0.1", self.port)
        try:
            client.handshake(**arguments)
            client.open_channel(1)
        except BaseException:
            client.drop()
            raise
        return client

    def wait_until_logged(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.process.poll() is not None, f"{text!r} in the log")
        assert text in self.log

    def wait_until_it_ends(self) -> int:
        return self.process.wait(EXIT_S)

    def resident_mib(self) -> float:
        """Only where /proc tells."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1024

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(EXIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(EXIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.returncode
