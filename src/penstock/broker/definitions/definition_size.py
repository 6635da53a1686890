"""About what definitions take, in memory and written down."""

from __future__ import annotations

from penstock import limits
from penstock.fields import Table
from penstock.routing.bindings import Binding
from penstock.wire.tables import encode_table


def definition_bytes(arguments: Table, *names: str) -> int:
    """About what a definition takes: arguments are objects in memory, and octets that are not text double on disk."""
    size = limits.DEFINITION_OVERHEAD_BYTES + 2 * sum(map(len, names))
    return size + 2 * len(encode_table(arguments)) if arguments else size


def binding_bytes(binding: Binding) -> int:
    return definition_bytes(binding.arguments, binding.source, binding.destination[1], binding.routing_key)
