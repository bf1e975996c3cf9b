"""Scheduling decisions written per second, on SQLite and on PostgreSQL.

A decision writes the session's status and history, the kernel's agent, the allocations, and all
changed counters of domain, project, user, keypair, resource group, agent and devices. PostgreSQL
flushes each commit to disk. SQLite does not: a commit in its write-ahead log survives a killed
process, but not a power failure. Python's garbage collector is configured as in the manager.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from bai_services.core.scheduling.queue import Decision, run_pass
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.scheduling.queue import QueueStore
from bai_services.db.tables import accounts, cluster
from bai_services.manager.scheduling.idle_scheduling import freeze_objects, new_loop
from tests.db.world import NOW, make_world
from tests.testbed import ComponentMissing, postgres

EXIT_MISSING = 6
SLOTS = {"cpu": "0.5", "mem": "512m", "cuda.shares": "0.25"}
_INSERT_BATCH = 500


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
        for kind in ("sqlite", "postgres") if spec.database == "both" else (spec.database,):
            try:
                runs = _on_sqlite(Path(home), spec) if kind == "sqlite" else _on_postgres(spec)
            except ComponentMissing as missing:
                print(f"PostgreSQL is missing: {missing}", file=sys.stderr)
                print(json.dumps(figures, indent=2))
                return EXIT_MISSING
            figures[f"{kind}_per_second"] = round(statistics.median(runs))
            figures[f"{kind}_runs"] = [round(run) for run in runs]
    figures |= {
        "decisions": spec.decisions,
        "agents": spec.agents,
        "batch": spec.batch or "manager's batch size",
    }
    print(json.dumps(figures, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit", description=__doc__)
    parser.add_argument("--database", choices=["both", "sqlite", "postgres"], default="both")
    parser.add_argument("--decisions", type=int, default=5_000, help="decisions of one run")
    parser.add_argument("--agents", type=int, default=200, help="machines with 64 cores, 8 GPUs")
    parser.add_argument(
        "--batch",
        type=int,
        help="decisions per transaction; default: the manager's batch size",
    )
    parser.add_argument("--runs", type=int, default=3)
    return parser


def _on_sqlite(home: Path, spec: argparse.Namespace) -> list[float]:
    urls = [f"sqlite+aiosqlite:///{home}/run{number}.sqlite" for number in range(spec.runs)]
    return [_run(_measure(url, spec)) for url in urls]


def _on_postgres(spec: argparse.Namespace) -> list[float]:
    with postgres.running(is_durable=True) as server:
        runs = []
        for _ in range(spec.runs):
            with server.database() as url:
                runs.append(_run(_measure(url, spec)))
        return runs


def _run(measure: Coroutine[None, None, float]) -> float:
    with asyncio.Runner(loop_factory=new_loop) as runner:  # the event loop of the manager
        return runner.run(measure)


async def _measure(url: str, spec: argparse.Namespace) -> float:
    """Return the decisions per second of one run on a new database."""
    world = await make_world(url)
    freeze_objects()
    try:
        await world.write(sa.update(cluster.agents).values(schedulable=False))
        await world.write(sa.update(accounts.user_policies).values(max_pending_sessions=None))
        for number in range(spec.agents):
            await world.add_agent(f"m{number}", cpu=64, mem=512, gpus=8)
        for start in range(0, spec.decisions, _INSERT_BATCH):
            numbers = range(start, min(start + _INSERT_BATCH, spec.decisions))
            news = [world.new_session(f"lab{n}", SLOTS) for n in numbers]
            await world.sessions.enqueue_all(news, NOW + timedelta(seconds=start))
        snapshot = await world.queue.snapshot(NOW)
        decisions = run_pass(snapshot).decisions
        if len(decisions) < spec.decisions:
            raise SystemExit(f"only {len(decisions)} of {spec.decisions} fit; use more --agents")
        token = await LeaseStore(world.database).acquire("benchmark", None, NOW)
        began = time.perf_counter()
        placed = await _commit(
            # A time after the creation of all sessions, so that each session has waited.
            world.queue,
            decisions,
            (NOW + timedelta(seconds=spec.decisions), token),
            spec.batch or world.queue.batch,
        )
        seconds = time.perf_counter() - began
        assert placed == len(decisions), f"{placed} of {len(decisions)} were written"
        assert await world.allocations.audit() == []
    finally:
        await world.close()
    return placed / seconds


async def _commit(
    store: QueueStore,
    decisions: Sequence[Decision],
    stamp: tuple[datetime, int | None],
    batch: int,
) -> int:
    placed = 0
    for start in range(0, len(decisions), batch):
        committed = await store.commit(decisions[start : start + batch], *stamp)
        placed += len(committed.placed)
    return placed


if __name__ == "__main__":
    sys.exit(main())
