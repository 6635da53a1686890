"""The node as a whole: what it is and how it does."""

from __future__ import annotations

from typing import Any, Final

import penstock
from penstock.broker.operations.call import Call
from penstock.broker.operations.operation import Operation


def status(call: Call) -> dict[str, Any]:
    """What runs, for how long, and what it holds."""
    call.actor.require_monitoring()
    broker = call.broker
    now_ms = broker.clock.wall_ms()
    return {
        "product": "penstock",
        "version": penstock.__version__,
        "uptime_ms": now_ms - broker.started_ms,
        "data_dir": broker.config.data_dir,
        "memory_bytes": broker.used_bytes(),
        "memory_bytes_max": broker.config.memory_bytes_max,
        "alarms": [alarm.RESOURCE for alarm in broker.alarms if alarm.active],
        "vhosts": len(broker.vhosts),
        "queues": sum(len(vhost.queues) for vhost in broker.vhosts.values()),
    }


def ping(call: Call) -> dict[str, Any]:
    """Answer."""
    return {"product": "penstock", "version": penstock.__version__}


OPERATIONS: Final = (Operation(status, changes=False), Operation(ping, changes=False))
