"""The operations by their names. A new module of operations is added here, and nowhere else."""

from __future__ import annotations

from typing import Final

from penstock.broker.operations.admin import (
    audit,
    backup,
    deprecated,
    node,
    parameters,
    permissions,
    policies,
    queue_migration,
    transfer,
    users,
    vhosts,
)
from penstock.broker.operations.operation import Operation

OPERATIONS: Final[dict[str, Operation]] = {
    each.name: each
    for room in (
        *(node, deprecated, audit, users, permissions, vhosts, policies, parameters, queue_migration, transfer),
        backup,
    )
    for each in room.OPERATIONS
}
