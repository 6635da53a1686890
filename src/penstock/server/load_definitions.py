"""The definitions file that a broker is started with."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.operations.admin.transfer import import_at_start
from penstock.broker.operations.call_errors import CallError
from penstock.errors import StartupError
from penstock.limits import CONTROL_REQUEST_BYTES_MAX

log: Final = logging.getLogger("penstock.server")


def load_definitions(broker: Broker, file: str, skip_if_unchanged: bool) -> None:
    """Import a definitions file; raises StartupError with what is wrong with it."""
    definitions = _read(file)
    try:
        made = import_at_start(broker, definitions, skip_if_unchanged)
    except CallError as error:
        raise StartupError(f"the definitions in {file} cannot be imported: {error}") from error
    if made is None:
        log.info("definitions in %s: imported before, and passed over", file)
        return
    counts = ", ".join([f"{count} {name}" for name, count in made["made"].items()])
    log.info("definitions in %s imported: %s", file, counts or "all of it was there")
    for each in made["different"]:
        log.warning("%s exists with other properties than in %s, and stays as it is", ascii(each), file)


def _read(file: str) -> dict[str, Any]:
    path = Path(file)
    try:
        if path.stat().st_size > CONTROL_REQUEST_BYTES_MAX:
            raise StartupError(f"the definitions in {file} are larger than {CONTROL_REQUEST_BYTES_MAX} bytes")
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise StartupError(f"the definitions file {file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StartupError(f"the definitions file {file} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise StartupError(f"the definitions file {file} must have one JSON object, as RabbitMQ exports one")
    return data
