"""What an operator sees of a variable queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.backing.variable.paging import INFINITE

if TYPE_CHECKING:
    from penstock.backing.variable.variable import VariableBackingQueue


def status_of(queue: VariableBackingQueue) -> dict[str, int | float | str]:
    zones = queue.zones
    queue.recount()
    return {
        "kind": queue.KIND,
        "mode": "lazy" if queue.paging.lazy else "default",
        "len": len(queue),
        "q1": sum([status.count for status in zones.q1]),
        "q2": sum([status.count for status in zones.q2]),
        "delta": zones.delta_count,
        "q3": sum([status.count for status in zones.q3]),
        "q4": sum([status.count for status in zones.q4]),
        "positions": zones.positions(),
        "strays": zones.strays.count,
        "pending_acks": queue.pending.count,
        "messages_ram": zones.ram_count + queue.pending.ram_count() + zones.strays.ram_count(),
        "message_bytes_ram": zones.ram_bytes + queue.pending.ram_bytes + zones.strays.ram_bytes,
        "messages_persistent": queue.tail.persistent_count,
        "target_ram_count": queue.paging.limit(),
        "ram_duration_target_s": -1.0 if queue.paging.duration_s == INFINITE else queue.paging.duration_s,
        "next_seq_id": queue.tail.next_seq_id,
        "next_deliver_seq_id": zones.next_deliver_seq_id,
        "disk_reads": queue.homes.reads,
        "disk_writes": queue.homes.writes,
        "lost": queue.lost_count,
        "unreadable": queue.aside.count,
    }
