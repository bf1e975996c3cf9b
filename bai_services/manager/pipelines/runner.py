"""Run pipelines: start tasks when their dependencies have ended, and create their sessions.

A task run is stored before its session is created, and the id of the session is derived from the
run, the task and the attempt. Therefore a manager that is killed at any point neither loses a task
run nor creates a second session for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from bai_services.core.accounts.roles import Role
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import BaiError, QuotaExceeded, Unavailable
from bai_services.core.pipelines.definition import PipelineDefinition, Task
from bai_services.core.pipelines.fair_queue import FairQueue
from bai_services.core.pipelines.records import RUNS_KEPT, RUNS_KEPT_FOR
from bai_services.core.pipelines.requests import (
    RunContext,
    secrets_of,
    session_id_of,
    session_request,
)
from bai_services.core.pipelines.states import (
    Outcome,
    Plan,
    RunStatus,
    TaskRun,
    TaskStatus,
    advance,
    cancelled,
    observe,
)
from bai_services.core.pipelines.subpipelines import names_of
from bai_services.core.sessions.lifecycle import ENDED, Result, SessionType, Status
from bai_services.core.sessions.spec import spec_of
from bai_services.db.open_work import Work
from bai_services.db.pipelines.runs import PipelineRunStore, RunRow
from bai_services.db.pipelines.steps import DueRun, PipelineStepStore, SteppedRun
from bai_services.db.pipelines.task_runs import Decision, TaskRow
from bai_services.db.sessions.rows import SessionRow

from ..accounts.callers import Callers
from ..context import ManagerContext
from ..scheduling.lease import Lease
from ..sessions.sessions import Sessions
from ..sessions.setups import SessionSetups

TICK_SECONDS = 1.0
# Interval at which the changes that a killed manager has missed are processed.
RECONCILE_SECONDS = 5.0
_FULL_CHECK_SECONDS = 60.0
_CLEANUP_INTERVAL_SECONDS = 3600.0
# Pause after a quota or a maintenance has prevented the creation of a session.
POSTPONED_PAUSE = timedelta(seconds=5)
# Maximum duration of a pass; the next pass includes the runs that have changed in the meantime.
MAX_PASS_SECONDS = 1.0
# Maximum runs and task runs of one transaction, because it blocks other writers.
MAX_RUNS_PER_STEP = 20
MAX_TASKS_PER_STEP = 2000
# Maximum number of sessions that a step creates for one run, because other runs must not wait long.
MAX_SESSIONS_PER_STEP = 20
# Maximum number of times that a step starts more tasks of a run after sessions were refused.
MAX_ROUNDS_PER_STEP = 10
# Maximum number of definitions in memory: each may need several MiB.
MAX_DEFINITIONS = 32
_MAX_MESSAGE = 500

# Messages by task, index and attempt of task runs whose sessions were refused.
Refused = dict[tuple[str, int, int], str]

log = logging.getLogger(__name__)


class PipelineRunner:
    """Processes runs when they change, while this manager holds the lease."""

    def __init__(
        self,
        context: ManagerContext,
        runs: PipelineRunStore,
        sessions: Sessions,
        setups: SessionSetups,
        callers: Callers,
        require_writable: Callable[[Role], None],
        *,
        lease: Lease,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``require_writable`` raises ``Unavailable`` during read-only maintenance."""
        self._store = PipelineStepStore(context.database)
        self._runs = runs
        self._sessions = sessions
        self._setups = setups
        self._callers = callers
        self._require_writable = require_writable
        self._clock = context.clock
        self._lease = lease
        self._monotonic = monotonic
        # Definitions by pipeline and version, or by run if they contain sub-pipelines; least
        # recently used first. They never change.
        self._definitions: dict[tuple[str, int], PipelineDefinition] = {}
        self._changed_sessions: set[str] = set()
        self._queue: FairQueue[DueRun] = FairQueue()
        # Runs to process again, with the earliest time.
        self._postponed: dict[str, tuple[datetime, DueRun]] = {}
        self._last: dict[str, float] = {}
        self._loop = lease.loop("pipelines", self.step, TICK_SECONDS, Work.PIPELINES)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    @property
    def definitions_in_memory(self) -> int:
        return len(self._definitions)

    def wake(self) -> None:
        self._loop.wake()

    def session_changed(self, row: SessionRow) -> None:
        """Run the next step now if the session may belong to a task run."""
        if row.type == SessionType.BATCH and (row.status is Status.RUNNING or row.status in ENDED):
            self._changed_sessions.add(row.id)
            self._loop.wake()

    async def step(self) -> None:
        """Process changed runs for at most ``MAX_PASS_SECONDS``."""
        if await self._lease.hold() is None:
            self._changed_sessions.clear()
            return
        now = self._clock()
        started = await self._store.start_waiting(now)
        await self._collect(now)
        end = self._monotonic() + MAX_PASS_SECONDS
        while runs := self._queue.take(MAX_RUNS_PER_STEP, MAX_TASKS_PER_STEP):
            await self._process(runs, now)
            if self._monotonic() >= end:
                break
        includes_inactive = self._is_time("full", _FULL_CHECK_SECONDS)
        for session_id in await self._store.sessions_to_end(
            includes_inactive_tasks=includes_inactive
        ):
            await self._sessions.end(session_id, TextTemplate.PIPELINE_TASK_CANCELLED.text())
        if self._is_time("cleanup", _CLEANUP_INTERVAL_SECONDS):
            await self._runs.clean_up(now - RUNS_KEPT_FOR, RUNS_KEPT)
        if started or self._queue or any(at <= now for at, _ in self._postponed.values()):
            self._loop.wake()

    async def _collect(self, now: datetime) -> None:
        """Add the runs that are due to the queue."""
        changed, self._changed_sessions = self._changed_sessions, set()
        due = await self._store.due(now, changed)
        if self._is_time("reconcile", RECONCILE_SECONDS):
            due += await self._store.unprocessed()
        due += [run for at, run in self._postponed.values() if at <= now]
        for run in due:
            self._postponed.pop(run.id, None)
            self._queue.add(run)

    async def _process(self, runs: Sequence[DueRun], now: datetime) -> None:
        """Process runs in common transactions. After a failure, process each run separately, so
        that one failing run does not delay the others.
        """
        try:
            await self._step(runs, now)
        except Unavailable:
            for run in runs:
                self._postponed[run.id] = (now, run)
            raise
        except Exception:
            if len(runs) > 1:
                for run in runs:
                    await self._process([run], now)
                return
            log.exception("run %s of a pipeline could not be processed", runs[0].id)
            self._postponed[runs[0].id] = (now + POSTPONED_PAUSE, runs[0])

    def _is_time(self, what: str, seconds: float) -> bool:
        """Return whether a regular action is due; if so, record it as done now."""
        now, last = self._monotonic(), self._last.get(what)
        if last is not None and now - last < seconds:
            return False
        self._last[what] = now
        return True

    async def _step(self, runs: Sequence[DueRun], now: datetime) -> None:
        due = {run.id: run for run in runs}
        definitions = {}
        for run in runs:
            definition = await self._definition(run)
            if definition is not None:  # otherwise the run was deleted
                definitions[run.id] = definition
        plans: dict[str, Plan] = {}
        refused: dict[str, Refused] = {}

        def decide(row: RunRow, tasks: Sequence[TaskRow]) -> Decision:
            if row.id not in plans:
                plans[row.id] = Plan.of(definitions[row.id], row.parameters)
            return _decision(plans[row.id], row, tasks, refused.get(row.id, {}), now)

        open_ids = list(definitions)
        for _ in range(MAX_ROUNDS_PER_STEP):
            stepped = await self._store.step(open_ids, decide, now)
            refused = {}
            for run_id, found in stepped.items():
                if of_run := await self._create_sessions(plans[run_id], found, due[run_id], now):
                    refused[run_id] = of_run
            # A refused session fails its task run, and the failure may start other tasks.
            open_ids = list(refused)
            if not open_ids:
                return
        await self._store.step(open_ids, decide, now)
        for run_id in open_ids:
            self._postponed[run_id] = (now, due[run_id])

    async def _definition(self, run: DueRun) -> PipelineDefinition | None:
        shared, own = (run.pipeline_id, run.pipeline_version), (run.id, 0)
        definition = self._definitions.pop(own, None) or self._definitions.pop(shared, None)
        if definition is None:
            definition = await self._store.definition(run.id)
        if definition is not None:
            # Do not share a definition with sub-pipelines: another run of the same version may
            # contain other versions of the sub-pipelines.
            self._definitions[own if names_of(definition) else shared] = definition
            if len(self._definitions) > MAX_DEFINITIONS:
                del self._definitions[next(iter(self._definitions))]
        return definition

    async def _create_sessions(
        self, plan: Plan, stepped: SteppedRun, due: DueRun, now: datetime
    ) -> Refused:
        """Create the missing sessions of queued task runs; return the messages of refusals."""
        row = stepped.run
        missing = [
            task.run
            for task in stepped.tasks
            if task.status is TaskStatus.QUEUED and task.session_status is None
        ]
        if not missing or row.status is not RunStatus.RUNNING:
            return {}
        if len(missing) > MAX_SESSIONS_PER_STEP:
            self._queue.add(due)
        refused: Refused = {}
        context = RunContext(row.id, row.pipeline, row.project_id, row.vfolder_id or "")
        for run in missing[:MAX_SESSIONS_PER_STEP]:
            try:
                caller = await self._callers.for_schedule(row.owner)
                self._require_writable(caller.role)
                session_id = session_id_of(row.id, run)
                names = secrets_of(plan, run)
                secrets = await self._setups.secrets(row.owner_id, row.project_id, names)
                session, _ = await self._sessions.create(
                    caller,
                    spec_of(session_request(plan, run, context, secrets)),
                    session_id=session_id,
                    is_pipeline_task=True,
                    pipeline=row.pipeline,
                )
            except (Unavailable, QuotaExceeded) as error:
                if error.details.get("is_permanent"):
                    # Fail the task. Otherwise it would wait forever, without a session that shows a
                    # reason.
                    refused[run.task, run.index, run.attempt] = error.message[:_MAX_MESSAGE]
                    continue
                log.info("a task of run %s waits: %s", row.id, error.message)
                self._postponed[row.id] = (now + POSTPONED_PAUSE, due)
                break
            except BaiError as error:
                refused[run.task, run.index, run.attempt] = error.message[:_MAX_MESSAGE]
                continue
            if session.id != session_id:
                message = f"there is another session with the name {session.name}"
                refused[run.task, run.index, run.attempt] = message
        return refused


def _decision(
    plan: Plan, row: RunRow, tasks: Sequence[TaskRow], refused: Refused, now: datetime
) -> Decision:
    """Return the changes of a run."""
    runs: dict[tuple[str, int], TaskRun] = {}
    is_cancelling = row.status is RunStatus.CANCELLING
    for task in tasks:
        run = _observed(plan, task, refused, now, is_cancelling=is_cancelling)
        if is_cancelling:
            run = cancelled(run, has_session=task.session_status is not None)
        runs[run.task, run.index] = run
    progress = advance(plan, list(runs.values()), row.status, now)
    runs |= {(run.task, run.index): run for run in progress.changed}
    changed = [run for task in tasks if (run := runs[task.task, task.item_index]) != task.run]
    return Decision(changed, progress.status)


def _observed(
    plan: Plan,
    row: TaskRow,
    refused: Refused,
    now: datetime,
    *,
    is_cancelling: bool,
) -> TaskRun:
    """Return a task run, updated from the state of its session."""
    run, task = row.run, plan.tasks[row.task]
    message = refused.get((run.task, run.index, run.attempt))
    if message is not None and row.session_status is None:
        return observe(task, run, Outcome.STOPPED, now, message, is_cancelling=is_cancelling)
    if row.session_status is Status.RUNNING and run.status is TaskStatus.QUEUED:
        return observe(task, run, Outcome.STARTED, now)
    if row.session_status not in ENDED:
        return run
    message = row.session_info[:_MAX_MESSAGE]
    return observe(task, run, _outcome(task, row), now, message, is_cancelling=is_cancelling)


def _outcome(task: Task, row: TaskRow) -> Outcome:
    if row.session_status is Status.TERMINATED and row.session_result is Result.SUCCESS:
        is_cached = task.cache is not None and row.session_is_cached
        return Outcome.CACHED if is_cached else Outcome.SUCCEEDED
    code = row.session_coded["code"] if row.session_coded else ""
    is_stopped = code == TextTemplate.STOPPED_BY.code
    return Outcome.STOPPED if is_stopped else Outcome.FAILED
