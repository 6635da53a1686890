"""Definitions out of the broker and into it, in RabbitMQ's format."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.operations.call import Call
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation, check_texts
from penstock.broker.operations.sliced_work import SlicedWork
from penstock.broker.transfer.exporting import Export
from penstock.broker.transfer.importing import Import
from penstock.broker.transfer.sections import read_sections

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

# The global parameter that has the digest of what was imported last; RabbitMQ calls it so.
DIGEST: Final = "imported_definition_hash_value"


def export_definitions(call: Call, *, vhost: str | None = None, rabbitmq_only: bool = False) -> Later:
    """Everything that lasts but messages, in RabbitMQ's format; of one vhost if it is named."""
    call.actor.require_administrator()
    export = Export(call.broker, None if vhost is None else call.vhost(vhost), rabbitmq_only)

    def result() -> dict[str, Any]:
        return {"definitions": export.definitions, "warnings": export.warnings}

    return SlicedWork(call.broker, export.steps(), result).later


def import_definitions(
    call: Call, *, definitions: dict[str, Any], vhost: str | None = None, skip_if_unchanged: bool = False
) -> Later:
    """Make what the definitions name, all of it or nothing; what is there stays."""
    call.actor.require_administrator()
    if vhost is not None:
        call.vhost(vhost)
    digest = digest_of(definitions)
    parameters = call.broker.global_parameters
    if skip_if_unchanged and vhost is None and parameters.values.get(DIGEST) == digest:
        unchanged = Later()
        unchanged.finish({"made": {}, "different": [], "unchanged": True})
        return unchanged
    work = Import(call.broker, read_sections(definitions, vhost))

    def result() -> dict[str, Any]:
        if vhost is None:
            parameters.put(DIGEST, digest)
        made = work.result()
        call.note("definitions.imported", **made["made"])
        return {**made, "unchanged": False}

    return SlicedWork(call.broker, work.steps(), result).later


def import_at_start(broker: Broker, definitions: dict[str, Any], skip_if_unchanged: bool) -> dict[str, Any] | None:
    """Import before any client is there; None when it was passed over. Raises CallError, and nothing has changed."""
    digest = digest_of(definitions)
    if skip_if_unchanged and broker.global_parameters.values.get(DIGEST) == digest:
        return None
    check_texts("the file", definitions)
    work = Import(broker, read_sections(definitions))
    for _ in work.steps():
        pass
    broker.global_parameters.put(DIGEST, digest)
    return work.result()


def digest_of(definitions: dict[str, Any]) -> str:
    """Return the same for definitions that say the same."""
    return hashlib.sha256(json.dumps(definitions, sort_keys=True).encode()).hexdigest()


OPERATIONS: Final = (Operation(export_definitions, changes=False), Operation(import_definitions))
