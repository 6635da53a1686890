"""The operations by their names. A new module of operations is added here, and nowhere else."""

from __future__ import annotations

from typing import Final

from penstock.broker.operations.admin import audit, node, parameters, policies
from penstock.broker.operations.operation import Operation

OPERATIONS: Final[dict[str, Operation]] = {
    each.name: each for each in (*node.OPERATIONS, *audit.OPERATIONS, *policies.OPERATIONS, *parameters.OPERATIONS)
}
