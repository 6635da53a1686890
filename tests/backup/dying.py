"""`penstock`, killed when a backup or a restore comes to a step: `python -m tests.backup.dying PHASE backup …`."""

from __future__ import annotations

import os
import signal
import sys

from penstock.backup.progress import Progress
from penstock.cli.main import main

PHASE = sys.argv.pop(1)


class DyingProgress(Progress):
    """Ends the process as the kernel does it when memory is short."""

    def begin(self, phase: str) -> None:
        super().begin(phase)
        if phase == PHASE:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.modules["penstock.backup.progress"].Progress = DyingProgress  # type: ignore[attr-defined]
    main(prog_name="penstock")
