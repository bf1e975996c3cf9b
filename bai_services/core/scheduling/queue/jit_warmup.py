"""JIT-compile the functions of placement and of the queue before the first pass."""

from __future__ import annotations

from datetime import UTC, datetime

from ...resources import CPU, MEM, ResourceSlots
from .. import placement
from ..caps import Scope, ScopeCaps, ScopeKind
from ..placement import AgentState, Request
from .model import Backfill, GroupState, Order, PendingSession, Snapshot
from .run import Queue
from .selection import MAX_SELECTED

_NOW = datetime(2000, 1, 1, tzinfo=UTC)


def warm_up() -> None:
    """JIT-compile the functions that a pass uses; see ``placement.warm_up``."""
    placement.warm_up()
    for order in (Order.FIFO, Order.FAIR_SHARE):
        for backfill in Backfill:
            _run_pass(GroupState("warm", order=order, backfill=backfill))


def _run_pass(group: GroupState) -> None:
    """Run a pass in which sessions start, find no free capacity, and exceed a cap."""
    users = [Scope(ScopeKind.USER, f"user{number}") for number in range(3)]
    # More different requests than a selection contains, from 1 to 2.55 cores.
    pending = [
        PendingSession(
            f"session{number}",
            number,
            Request(_slots(1000 + number * 50), group.name, ""),
            (users[number % 3],),
        )
        for number in range(2 * MAX_SELECTED)
    ]
    agent = AgentState("agent", group.name, "", "", {CPU: 4000, MEM: 2**34})
    queue = Queue(
        Snapshot(
            pending,
            [agent],
            caps={users[2]: ScopeCaps(users[2], "user2", {CPU: 2000})},
            groups={group.name: group},
        )
    )
    queue.run(_NOW)


def _slots(millicores: int) -> ResourceSlots:
    return ResourceSlots({CPU: millicores, MEM: 2**30})


if __name__ == "__main__":
    warm_up()
