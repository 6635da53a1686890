"""Opens a log by a text: a data folder, or the URL of a broker that serves its history.

The text can be handed to another process, which opens the same log again: it never has a password in it. User and
password are given apart, or stand in a URL that a person wrote, or in PENSTOCK_USER and PENSTOCK_PASSWORD; otherwise
they are guest and guest, as everywhere.
"""

from __future__ import annotations

import os
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.history.folder_log import FolderLog
from penstock.history.http_log import HttpLog
from penstock.history.log import HistoryError, Log


def open_log(source: str, user: str | None = None, password: str | None = None) -> Log:
    """Return the log of a folder path, a file:// URL or an http(s):// URL. Raises HistoryError."""
    scheme = source.partition("://")[0].lower() if "://" in source else ""
    if not source:
        raise HistoryError("no source was given: name a data folder, or http://host:port of a broker")
    if scheme in ("http", "https"):
        return _http_log(source, user, password)
    if scheme == "file":
        parts = urlsplit(source)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise HistoryError("a file:// URL names a folder of this machine: file:///var/lib/penstock")
        return FolderLog(unquote(parts.path))
    if scheme:
        raise HistoryError(f"'{scheme}://' is not a source of history: give a data folder, or http://host:port")
    return FolderLog(source)


def _http_log(source: str, user: str | None, password: str | None) -> HttpLog:
    try:
        parts = urlsplit(source)
        port = parts.port
    except ValueError:
        # The error's text may have the whole URL in it.
        raise HistoryError("the URL of the broker is malformed: give http://host:port") from None
    if not parts.hostname:
        raise HistoryError("the URL of the broker has no host: give http://host:port")
    name = user or unquote(parts.username or "") or os.environ.get("PENSTOCK_USER") or "guest"
    secret = password or unquote(parts.password or "") or os.environ.get("PENSTOCK_PASSWORD")
    if not secret and name != "guest":
        raise HistoryError(f"no password was given for user '{name}': give one, or set PENSTOCK_PASSWORD")
    return HttpLog(_bare_url(parts, port), name, secret or "guest")


def _bare_url(parts: SplitResult, port: int | None) -> str:
    """Without user and password, query and fragment."""
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme.lower()}://{shown}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
