"""The log of a process: to stderr or to a file, as text or as JSON.

The file may be moved away or removed while it is written: the next line goes to a new file of the same name
(logrotate needs neither copytruncate nor a signal).
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
from datetime import UTC, datetime
from typing import Final

from penstock.errors import StartupError

TEXT: Final = "%(asctime)s [%(levelname)s] %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line. Everything that is not ASCII is escaped, so no name can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        made = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": made.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logs(level: str, form: str, path: str | None) -> None:
    """Send the log of this process where the settings say. Raises StartupError when the file cannot be written."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            if sys.platform == "win32":
                handler = logging.FileHandler(path, encoding="utf-8")
            else:
                handler = logging.handlers.WatchedFileHandler(path, encoding="utf-8")
        except OSError as error:
            raise StartupError(
                f"cannot write the log to {path}: {error.strerror}. Choose another file with --log-file."
            ) from error
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
