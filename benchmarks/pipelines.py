"""Speed of the state machine of pipelines with its database, and task runs lost by kills.

``tasks_per_second``: task runs from waiting to succeeded, in runs of a graph whose tasks have no
sessions. ``dispatch_ms``: from the end of a task until the next one is stored as queued, without
the creation of its session. ``resume_lost``: task runs that are lost or repeated although the
process that runs them is killed (SIGKILL) before random statements. ``luigi_tasks_per_second``: the
same graph in Luigi, which uv installs in an environment of its own; null if this fails.
``editor_fps``: frames per second while the graph of the editor is moved in Chromium, and
``editor_drag_fps`` while one task is moved. The figures of batch sessions
without a Hub server are those of ``benchmarks/batch_starts.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.pipelines.definition import PipelineDefinition, Task
from bai_services.core.pipelines.states import (
    ACTIVE,
    Outcome,
    Plan,
    RunStatus,
    advance,
    observe,
)
from bai_services.db.pipelines.definitions import PipelineReader, PipelineStore
from bai_services.db.pipelines.runs import PipelineRunStore, RunRow
from bai_services.db.pipelines.steps import PipelineStepStore, SteppedRun
from bai_services.db.pipelines.task_runs import Decision, TaskRow
from bai_services.db.tables.pipelines import pipeline_runs, pipeline_tasks
from bai_services.manager.pipelines.runner import MAX_RUNS_PER_STEP, MAX_TASKS_PER_STEP
from tests.db.world import NOW, World, make_world
from tests.testbed import ComponentMissing, forked, postgres

from . import batch_starts, pipeline_editor

EXIT_MISSING = 6
WIDTH = 10
KILL_AFTER = (2, 20)
KILLED_TASKS = 50
RUNS_PER_KILLED_STEP = 5
KILL_SECONDS = 120.0
LUIGI = "luigi==3.8.1"
LUIGI_SECONDS = 300.0


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines", description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=100, help="tasks of a run")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--batches", type=int, default=300, help="batch sessions; 0: none")
    parser.add_argument("--luigi-runs", type=int, default=10, help="runs in Luigi; 0: none")
    parser.add_argument("--editor-tasks", type=int, default=500, help="0: no browser")
    parser.add_argument("--agents", type=int, default=2, help="agents that start them")
    spec = parser.parse_args()
    if spec.database == "postgres":
        try:
            with postgres.running(is_durable=True) as server:
                urls = [server.url(server.create_database()) for _ in range(3)]
                figures = _figures(urls, spec)
        except ComponentMissing as missing:
            print(f"PostgreSQL is missing: {missing}", file=sys.stderr)
            return EXIT_MISSING
    else:
        with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
            names = ("speed", "dispatch", "kills")
            figures = _figures(
                [f"sqlite+aiosqlite:///{Path(home) / name}.sqlite" for name in names], spec
            )
    print(json.dumps({"database": spec.database, **figures}, indent=2))
    return 0


def _figures(urls: Sequence[str], spec: argparse.Namespace) -> dict[str, object]:
    speed, dispatch, kills = urls
    times = asyncio.run(_dispatch(dispatch, spec.tasks))
    lost, killed = _lost(kills, spec.kills)
    return {
        "tasks_per_second": round(asyncio.run(_speed(speed, spec.runs, spec.tasks))),
        "dispatch_ms": round(statistics.median(times) * 1000, 2),
        "dispatch_p99_ms": round(sorted(times)[int(0.99 * (len(times) - 1))] * 1000, 2),
        "resume_lost": lost,
        "kills": killed,
        **({"luigi_tasks_per_second": _luigi(spec)} if spec.luigi_runs else {}),
        **(pipeline_editor.figures(spec.editor_tasks) if spec.editor_tasks else {}),
        "runs": spec.runs,
        "tasks": spec.tasks,
        # Always with SQLite.
        **(batch_starts.rates(spec.batches, spec.agents) if spec.batches else {}),
    }


def _luigi(spec: argparse.Namespace) -> int | None:
    """Return the tasks per second of Luigi; None if uv or Luigi is not available."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        return None
    program = str(Path(__file__).with_name("luigi_rate.py"))
    command = [uv, "run", "--no-project", "--python", sys.executable, "--with", LUIGI, "python"]
    done = subprocess.run(
        [*command, program, str(spec.luigi_runs), str(spec.tasks)],
        capture_output=True,
        text=True,
        timeout=LUIGI_SECONDS,
    )
    return int(done.stdout) if done.returncode == 0 else None


def layered(tasks: int, width: int = WIDTH) -> PipelineDefinition:
    """Return a pipeline with layers of ``width`` tasks; each needs two of the layer before."""
    found: list[Task] = []
    for number in range(tasks):
        first = number - number % width - width
        needs = {f"t{first + (number + shift) % width}" for shift in (0, 1)} if first >= 0 else ()
        found.append(Task(f"t{number}", command="true", needs=sorted(needs)))
    return PipelineDefinition("bench", tasks=found, max_concurrent_runs=100)


async def _prepared(url: str, definition: PipelineDefinition, runs: int) -> list[str]:
    """Create a pipeline with runs; return the ids of the runs."""
    world = await make_world(url)
    entry = AuditEntry(NOW, "ann", "pipeline.create", "pipeline", "b", "u1")
    store, run_store = PipelineStore(world.database), PipelineRunStore(world.database)
    pipeline_id = str(uuid.uuid4())
    await store.create(
        {
            "id": pipeline_id,
            "created_at": NOW,
            "version": 1,
            "changed_at": NOW,
            "scope": "user:u1",
            "owner_id": "u1",
            "author_role": Role.USER,
            "project_id": "p1",
            "name": definition.name,
            "description": "",
            "definition": "",
            "parsed": definition.as_json(),
            "tasks": len(definition.tasks),
            "max_concurrent_runs": definition.max_concurrent_runs,
        },
        entry,
    )
    row = await store.find(pipeline_id, PipelineReader("u1", Visibility(), frozenset()))
    ids = [str(uuid.uuid4()) for _ in range(runs)]
    for run_id in ids:
        await run_store.create(row, run_id, Plan.of(definition, {}), NOW, entry, owner_id="u1")
    await PipelineStepStore(world.database).start_waiting(NOW)
    await world.close()
    return ids


def _ended(plan: Plan) -> Callable[[RunRow, Sequence[TaskRow]], Decision]:
    """Return the decision of a step in which all queued task runs succeed."""

    def decide(row: RunRow, tasks: Sequence[TaskRow]) -> Decision:
        before = {(each.task, each.item_index): each.run for each in tasks}
        runs = {
            key: observe(plan.tasks[run.task], run, Outcome.SUCCEEDED, NOW)
            if run.status in ACTIVE
            else run
            for key, run in before.items()
        }
        progress = advance(plan, list(runs.values()), row.status, NOW)
        runs |= {(run.task, run.index): run for run in progress.changed}
        changed = [run for key, run in runs.items() if run != before[key]]
        return Decision(changed, progress.status)

    return decide


async def _drive(store: PipelineStepStore, plan: Plan, run_ids: Sequence[str], size: int) -> None:
    """Step the runs in turn, ``size`` in a transaction, until all have ended."""
    decide = _ended(plan)
    open_runs = list(run_ids)
    while open_runs:
        found: dict[str, SteppedRun] = {}
        for start in range(0, len(open_runs), size):
            batch = open_runs[start : start + size]
            found |= await store.step(batch, decide, NOW)
        open_runs = [key for key, each in found.items() if each.run.status is RunStatus.RUNNING]


async def _speed(url: str, runs: int, tasks: int) -> float:
    definition = layered(tasks)
    run_ids = await _prepared(url, definition, runs)
    world = World(url)
    begun = time.perf_counter()
    size = max(min(MAX_RUNS_PER_STEP, MAX_TASKS_PER_STEP // tasks), 1)
    await _drive(PipelineStepStore(world.database), Plan.of(definition, {}), run_ids, size)
    seconds = time.perf_counter() - begun
    await world.close()
    return runs * tasks / seconds


async def _dispatch(url: str, tasks: int) -> list[float]:
    """Return the times of the steps of a run whose tasks form a chain."""
    definition = layered(tasks, 1)
    (run_id,) = await _prepared(url, definition, 1)
    world, plan = World(url), Plan.of(definition, {})
    store, decide = PipelineStepStore(world.database), _ended(plan)
    times = []
    while True:
        begun = time.perf_counter()
        found = await store.step([run_id], decide, NOW)
        times.append(time.perf_counter() - begun)
        if found[run_id].run.status is not RunStatus.RUNNING:
            break
    await world.close()
    return times


def _lost(url: str, kills: int) -> tuple[int, int]:
    """Return how many task runs are lost or repeated, and the number of kills."""
    run_ids = asyncio.run(_prepared(url, _killed(), 20))
    random_numbers = random.Random(0)
    killed = 0
    while killed < kills:
        process = forked.start(_victim, url, run_ids, random_numbers.randint(*KILL_AFTER))
        process.join(KILL_SECONDS)
        if process.exitcode != -signal.SIGKILL:
            break
        killed += 1
    process = forked.start(_victim, url, run_ids, 0)
    process.join(KILL_SECONDS)
    return asyncio.run(_count_lost(url, len(run_ids))), killed


def _killed() -> PipelineDefinition:
    """Return a pipeline whose runs need many transactions, because its tasks form a chain."""
    return layered(KILLED_TASKS, 1)


def _victim(url: str, run_ids: Sequence[str], kill_at: int) -> None:
    """Step the runs, and kill this process before the statement with this number (0: never)."""
    left = kill_at

    def count(*args: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    sa.event.listen(sa.Engine, "commit", count)
    world = World(url)
    plan = Plan.of(_killed(), {})
    asyncio.run(_drive(PipelineStepStore(world.database), plan, run_ids, RUNS_PER_KILLED_STEP))
    os._exit(0)


async def _count_lost(url: str, runs: int) -> int:
    world = World(url)
    async with world.database.read() as tx:
        done = await tx.scalar(
            sa.select(sa.func.count())
            .select_from(pipeline_tasks)
            .where(pipeline_tasks.c.status == "succeeded", pipeline_tasks.c.attempt == 1)
        )
        ended = await tx.scalar(
            sa.select(sa.func.count())
            .select_from(pipeline_runs)
            .where(pipeline_runs.c.status == RunStatus.SUCCEEDED)
        )
    await world.close()
    return runs * KILLED_TASKS - int(done or 0) + runs - int(ended or 0)


if __name__ == "__main__":
    sys.exit(main())
