"""`penstock` as a user without rights: `python -m tests.crash.as_nobody serve ...`, run by root.

What it needs is imported before root is given up: the interpreter itself may be out of that user's reach.
"""

from __future__ import annotations

import contextlib
import importlib
import os

from penstock.cli.main import main

NOBODY = 65_534

if __name__ == "__main__":
    for name in ("encodings.idna", "uvloop"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    main()
