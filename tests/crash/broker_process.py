"""A real `penstock serve` on a data folder: started, killed at any moment, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.crash.link import Link

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
STOP_S = 60.0


class BrokerProcess:
    """One life of a broker."""

    def __init__(
        self,
        data_dir: Path,
        log: Path,
        arguments: Sequence[str] = (),
        prefix: Sequence[str] = (),
        module: str = "penstock",
    ) -> None:
        """`prefix`: a command that runs the broker, such as strace. `module`: what stands in for `penstock`."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("PENSTOCK_", "RABBITMQ_"))}
        options = ["--port", "0", "--data-dir", str(data_dir), *arguments]
        self.log = log
        self._started_s = time.monotonic()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", module, "serve", "--json", *options],
                cwd=ROOT,
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        self._links: list[Link] = []
        self.ready_line: dict[str, Any] = {}
        self.ready_s = 0.0

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    # --- starting -------------------------------------------------------------------------------------

    def wait_until_ready(self) -> BrokerProcess:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.kill()
            raise AssertionError(f"not ready; exit code {self.process.returncode}:\n{self.text[-4000:]}")
        self.ready_s = time.monotonic() - self._started_s
        self.ready_line = json.loads(line)
        return self

    @property
    def port(self) -> int:
        return int(self.ready_line["port"])

    @property
    def pid(self) -> int:
        """Of the broker itself, also behind a prefix."""
        return int(self.ready_line["pid"])

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def connect(self) -> Link:
        """A client, which goes with the broker."""
        link = Link(self.port)
        self._links.append(link)
        return link

    def children(self) -> list[int]:
        """Processes that the broker has started."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    # --- ending ---------------------------------------------------------------------------------------

    def runs_for(self, seconds: float) -> bool:
        """Wait so long; False when it has ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            return False
        return True

    def kill(self) -> None:
        """As the kernel does it when memory is short: nothing of the broker runs any more."""
        if self.process.poll() is None:
            # It leads a group: a prefix does not take the broker with it.
            os.killpg(self.process.pid, signal.SIGKILL)
        self._collect()
        self._drop_links()

    def terminate(self) -> None:
        """Ask it to stop; does not wait."""
        self.process.send_signal(signal.SIGTERM)

    def wait_for_exit(self) -> int:
        code = self.process.wait(STOP_S)
        self._collect()
        return code

    def stop(self) -> int:
        """A clean stop, which does not have to wait for clients."""
        self._drop_links()
        self.terminate()
        return self.wait_for_exit()

    def _drop_links(self) -> None:
        for link in self._links:
            link.drop()

    def _collect(self) -> None:
        self.process.wait(STOP_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
