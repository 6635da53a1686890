"""Asking the audit log of a running broker."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.audit.reading import Filter, read_page
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.operations.operation import Operation

# Where the first page begins.
NEWEST: Final[list[int]] = []


def list_audit(
    call: Call,
    *,
    since_ms: int = 0,
    until_ms: int | None = None,
    user: str = "",
    event: str = "",
    before: list[int] = NEWEST,
) -> dict[str, Any]:
    """Records of the audit log that match, newest first; `before` is where the page before this one ended.

    A page looks at a part of the log. It may be empty although `before` says that there is more.
    """
    call.actor.require_administrator()
    audit = call.broker.audit
    audit.flush()
    wanted = Filter(since_ms, until_ms, user, event)
    if audit.files is None:
        return {"records": [each for each in reversed(audit.recent) if wanted.matches(each)], "before": None}
    if before and len(before) != 2:
        raise BadRequest("'before' is what the page before this one has returned as `before`")
    found, following = read_page(audit.files, wanted, (before[0], before[1]) if before else None)
    return {"records": found, "before": following}


OPERATIONS: Final = (Operation(list_audit, changes=False),)
