"""Where penstock.toml is looked for, and how files of settings are read.

The data folder is not one of the places: the file may say where the data folder is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.errors import StartupError

FILE_NAME: Final = "penstock.toml"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
SYSTEM_FOLDER: Final = "/etc/penstock"


def default_places(env: Mapping[str, str], platform: str = sys.platform) -> list[str]:
    """Return where the file may be, in the order in which it is looked for; the first one that exists counts."""
    home = Path(env.get("HOME") or Path.home())
    if platform == "win32":
        return [str(Path(env.get("APPDATA") or home / "AppData" / "Roaming") / "penstock" / FILE_NAME)]
    own = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    return [str(own / "penstock" / FILE_NAME), f"{SYSTEM_FOLDER}/{FILE_NAME}"]


def config_file(given: str | None, env: Mapping[str, str]) -> str | None:
    """Return the file to read: as --config says, or PENSTOCK_CONFIG, or the first default place that has one."""
    named = given or env.get(CONFIG_VARIABLE)
    if named:
        return named
    # A place that this user may not look into has no file for it.
    return next((place for place in default_places(env) if os.path.isfile(place)), None)


def read_text(path: str) -> str:
    """Return the text of a file of settings. Raises StartupError when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StartupError(f"cannot read {path}: it is not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StartupError(f"cannot read the settings in {path}: {why}") from error
