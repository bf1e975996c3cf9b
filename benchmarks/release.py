"""Time from the release of resources to the decision that uses them, with many pending sessions.

A manager's scheduler runs on a full cluster. Sessions end one after the other. Each measurement
starts when the end of a session is committed, and ends when another session is SCHEDULED in the
database.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.tables import sessions
from bai_services.manager.manager import Manager
from bai_services.manager.scheduling.jit_warmup import warm_up
from tests.testbed import ComponentMissing, postgres
from tests.testbed.manager import MovableClock, make_world, manager_on

from .served import Commands

EXIT_MISSING = 6
CORES = 64


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
        if spec.database == "sqlite":
            url = f"sqlite+aiosqlite:///{home}/bai.sqlite"
            figures = asyncio.run(_measure(url, Path(home), spec))
        else:
            try:
                with postgres.running() as server, server.database() as url:
                    figures = asyncio.run(_measure(url, Path(home), spec))
            except ComponentMissing as missing:
                print(f"PostgreSQL is missing: {missing}", file=sys.stderr)
                return EXIT_MISSING
    print(json.dumps(figures, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.release", description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument(
        "--agents",
        type=int,
        default=10,
        help=f"number of agents with {CORES} cores each, all in use at the start",
    )
    parser.add_argument("--releases", type=int, default=200)
    return parser


async def _measure(url: str, home: Path, spec: argparse.Namespace) -> dict[str, Any]:
    await warm_up()
    async with manager_on(url, home, MovableClock()) as manager:
        orders = Commands(await make_world(manager, manager.clock))  # type: ignore[arg-type]
        await orders.queue(pending=spec.pending + spec.agents * CORES, agents=spec.agents)
        await manager.scheduling.scheduler.run_pass()
        manager.scheduling.scheduler.start()
        taken = [await _release(manager) for _ in range(spec.releases)]
        waiting = await _waiting(manager)
    ranked = sorted(taken)
    return {
        "p50_ms": round(ranked[len(ranked) // 2], 2),
        "p99_ms": round(ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)], 2),
        "max_ms": round(ranked[-1], 2),
        "releases": spec.releases,
        "waiting": waiting,
        "agents": spec.agents,
        "database": spec.database,
    }


async def _release(manager: Manager) -> float:
    """End one session and return the milliseconds until another session is placed."""
    placed_at: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def listen(row: SessionRow) -> None:
        if row.status is Status.SCHEDULED and not placed_at.done():
            placed_at.set_result(time.perf_counter())

    async with manager.database.read() as tx:
        session_id = await tx.scalar(
            sa.select(sessions.sessions.c.id)
            .where(sessions.sessions.c.status == Status.SCHEDULED)
            .order_by(sessions.sessions.c.sequence)
            .limit(1)
        )
    # Listen first: another session may be placed before the call returns.
    manager.lifecycle.listen(listen)
    try:
        await manager.lifecycle.apply(str(session_id), Event.STOP_REQUESTED)
        began = time.perf_counter()
        return max(0.0, await asyncio.wait_for(placed_at, 60) - began) * 1000
    finally:
        manager.lifecycle.unlisten(listen)


async def _waiting(manager: Manager) -> int:
    async with manager.database.read() as tx:
        return int(
            await tx.scalar(
                sa.select(sa.func.count())
                .select_from(sessions.sessions)
                .where(sessions.sessions.c.status == Status.PENDING)
            )
            or 0
        )


if __name__ == "__main__":
    sys.exit(main())
