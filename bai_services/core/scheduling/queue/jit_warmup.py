"""JIT-compile the functions of placement and of the queue before the first pass."""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import llvmlite.binding
import numba

from ...resources import CPU, MEM, ResourceSlots
from .. import placement
from ..caps import Scope, ScopeCaps, ScopeKind
from ..placement import AgentState, Request
from .model import Backfill, GroupState, Order, PendingSession, Snapshot
from .run import Queue
from .selection import MAX_SELECTED

_SOURCES = Path(__file__).parents[1]
_NOW = datetime(2000, 1, 1, tzinfo=UTC)


def warm_up() -> None:
    """JIT-compile the functions that a pass uses; see ``placement.warm_up``."""
    placement.warm_up()
    for order in (Order.FIFO, Order.FAIR_SHARE):
        for backfill in Backfill:
            _run_pass(GroupState("warm", order=order, backfill=backfill))
    stamp = stamp_of(_SOURCES)
    if not stamp.exists():
        # Without write access, Numba stores the code in the user's cache folder.
        with suppress(OSError):
            for outdated in stamp.parent.glob("compiled-*"):
                outdated.unlink(missing_ok=True)
            stamp.touch()


def is_compiled() -> bool:
    """Return whether the code is compiled, so that `warm_up` only has to load it."""
    return stamp_of(_SOURCES).exists()


def stamp_of(folder: Path) -> Path:
    """Return the path of the marker file for compiled sources in a folder.

    Numba compiles again after a change of the sources, the processor, Python, or its own version,
    so the path depends on all of them.
    """
    facts: list[object] = [numba.__version__, llvmlite.__version__, sys.version]
    facts += [llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features()]
    for source in sorted(folder.rglob("*.py")):
        status = source.stat()
        facts.append((str(source.relative_to(folder)), status.st_size, status.st_mtime_ns))
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return folder / "__pycache__" / f"compiled-{digest}"


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
