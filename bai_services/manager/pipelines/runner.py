"""Run pipelines: start the tasks whose needs have ended, and create their sessions.

A task run is stored before its session is created, and the id of the session follows from the run,
the task and the attempt. Therefore a manager that is killed at any point neither loses a task run
nor creates a second session for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from bai_services.core.accounts.roles import Role
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import BaiError, NotFound, QuotaExceeded, Unavailable
from bai_services.core.pipelines.records import RUNS_KEPT, RUNS_KEPT_FOR
from bai_services.core.pipelines.requests import RunContext, session_id_of, session_request
from bai_services.core.pipelines.states import (
    RUN_ENDED,
    Outcome,
    Plan,
    RunStatus,
    TaskRun,
    TaskStatus,
    advance,
    cancelled,
    observe,
)
from bai_services.core.sessions.lifecycle import ENDED, Result, SessionType, Status
from bai_services.core.sessions.spec import spec_of
from bai_services.db.pipelines.runs import Decision, PipelineRunStore, RunRow, TaskRow
from bai_services.db.sessions.rows import SessionRow

from ..accounts.callers import Callers
from ..context import ManagerContext
from ..loop import Loop
from ..scheduling.lease import Lease
from ..sessions.sessions import Sessions

TICK_SECONDS = 1.0
# Interval at which changes are processed that a killed manager has missed.
RECONCILE_SECONDS = 5.0
_FULL_CHECK_SECONDS = 60.0
_CLEANUP_INTERVAL_SECONDS = 3600.0
# The pause after a quota or a maintenance has prevented the creation of a session.
POSTPONED_PAUSE = timedelta(seconds=5)
# Sessions of one run that are created in a step: other runs must not wait long.
MAX_SESSIONS_PER_STEP = 50
# Rounds per step, for the same reason: refused sessions fail tasks, after which others may start.
MAX_ROUNDS_PER_STEP = 10
# Plans in memory: each may need several MiB.
MAX_PLANS = 32
_MAX_MESSAGE = 500

log = logging.getLogger(__name__)


class PipelineRunner:
    """Processes runs when they change, while this manager holds the lease."""

    def __init__(
        self,
        context: ManagerContext,
        store: PipelineRunStore,
        sessions: Sessions,
        callers: Callers,
        require_writable: Callable[[Role], None],
        *,
        lease: Lease,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``require_writable`` raises ``Unavailable`` during read-only maintenance."""
        self._store = store
        self._sessions = sessions
        self._callers = callers
        self._require_writable = require_writable
        self._clock = context.clock
        self._lease = lease
        self._monotonic = monotonic
        # Plans of runs that have not ended, the last used ones at the end; they never change.
        self._plans: dict[str, Plan] = {}
        self._changed_sessions: set[str] = set()
        # Runs with sessions to create, and the earliest time for that.
        self._unfinished: dict[str, datetime] = {}
        self._last: dict[str, float] = {}
        self._loop = Loop("pipelines", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    @property
    def plans_in_memory(self) -> int:
        return len(self._plans)

    def wake(self) -> None:
        self._loop.wake()

    def session_changed(self, row: SessionRow) -> None:
        """Run the next step now if the session may be that of a task run."""
        if row.type == SessionType.BATCH and (row.status is Status.RUNNING or row.status in ENDED):
            self._changed_sessions.add(row.id)
            self._loop.wake()

    async def step(self) -> None:
        """Process the runs that have changed."""
        if await self._lease.hold() is None:
            self._changed_sessions.clear()
            return
        now = self._clock()
        started = await self._store.start_waiting(now)
        changed, self._changed_sessions = self._changed_sessions, set()
        due = set(await self._store.due(now, changed))
        due |= {run_id for run_id, at in self._unfinished.items() if at <= now}
        if self._is_time("reconcile", RECONCILE_SECONDS):
            due |= set(await self._store.unprocessed())
        for run_id in sorted(due):
            try:
                await self._step(run_id, now)
            except Unavailable:
                raise
            except Exception:
                # The other runs must not wait for this one.
                log.exception("run %s of a pipeline could not be processed", run_id)
                self._unfinished[run_id] = now + POSTPONED_PAUSE
        is_full = self._is_time("full", _FULL_CHECK_SECONDS)
        for session_id in await self._store.sessions_to_end(is_full=is_full):
            await self._sessions.end(session_id, TextTemplate.PIPELINE_TASK_CANCELLED.text())
        if self._is_time("cleanup", _CLEANUP_INTERVAL_SECONDS):
            await self._store.clean_up(now - RUNS_KEPT_FOR, RUNS_KEPT)
        if started or any(at <= now for at in self._unfinished.values()):
            self._loop.wake()

    def _is_time(self, what: str, seconds: float) -> bool:
        """Return whether a regular action is due, and assume that it is done now."""
        now, last = self._monotonic(), self._last.get(what)
        if last is not None and now - last < seconds:
            return False
        self._last[what] = now
        return True

    async def _step(self, run_id: str, now: datetime) -> None:
        self._unfinished.pop(run_id, None)
        try:
            plan = await self._plan(run_id)
        except NotFound:  # deleted meanwhile
            return
        refused: dict[tuple[str, int, int], str] = {}
        for _ in range(MAX_ROUNDS_PER_STEP):
            found = await self._store.step(run_id, _decide(plan, refused, now), now)
            if found is None or found[0].status in RUN_ENDED:
                self._plans.pop(run_id, None)
                return
            row, tasks = found
            refused = await self._create_sessions(plan, row, tasks, now)
            # A refused session fails its task run, which may start others.
            if not refused:
                return
        await self._store.step(run_id, _decide(plan, refused, now), now)
        self._unfinished[run_id] = now

    async def _plan(self, run_id: str) -> Plan:
        plan = self._plans.pop(run_id, None)
        if plan is None:
            _, plan, _ = await self._store.detail(run_id)
        self._plans[run_id] = plan
        if len(self._plans) > MAX_PLANS:
            del self._plans[next(iter(self._plans))]
        return plan

    async def _create_sessions(
        self, plan: Plan, row: RunRow, tasks: Sequence[TaskRow], now: datetime
    ) -> dict[tuple[str, int, int], str]:
        """Create the missing sessions of queued task runs; return the messages of refused ones."""
        missing = [
            task.run
            for task in tasks
            if task.status is TaskStatus.QUEUED and task.session_status is None
        ]
        if not missing or row.status is not RunStatus.RUNNING:
            return {}
        if len(missing) > MAX_SESSIONS_PER_STEP:
            self._unfinished[row.id] = now
        refused: dict[tuple[str, int, int], str] = {}
        context = RunContext(row.id, row.pipeline, row.project_id, row.vfolder_id or "")
        for run in missing[:MAX_SESSIONS_PER_STEP]:
            try:
                caller = await self._callers.for_schedule(row.owner)
                self._require_writable(caller.role)
                session_id = session_id_of(row.id, run)
                session, _ = await self._sessions.create(
                    caller,
                    spec_of(session_request(plan, run, context)),
                    session_id=session_id,
                    pipeline=row.pipeline,
                )
            except (Unavailable, QuotaExceeded) as error:
                log.info("a task of run %s waits: %s", row.id, error.message)
                self._unfinished[row.id] = now + POSTPONED_PAUSE
                break
            except BaiError as error:
                refused[run.task, run.index, run.attempt] = error.message[:_MAX_MESSAGE]
                continue
            if session.id != session_id:
                message = f"there is another session with the name {session.name}"
                refused[run.task, run.index, run.attempt] = message
        return refused


def _decide(
    plan: Plan, refused: dict[tuple[str, int, int], str], now: datetime
) -> Callable[[RunRow, Sequence[TaskRow]], Decision]:
    """Return the decision about a run; ``refused`` has the attempts without a session."""

    def decide(row: RunRow, tasks: Sequence[TaskRow]) -> Decision:
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

    return decide


def _observed(
    plan: Plan,
    row: TaskRow,
    refused: dict[tuple[str, int, int], str],
    now: datetime,
    *,
    is_cancelling: bool,
) -> TaskRun:
    """Return a task run after what has happened to its session."""
    run, task = row.run, plan.tasks[row.task]
    message = refused.get((run.task, run.index, run.attempt))
    if message is not None and row.session_status is None:
        return observe(task, run, Outcome.STOPPED, now, message, is_cancelling=is_cancelling)
    if row.session_status is Status.RUNNING and run.status is TaskStatus.QUEUED:
        return observe(task, run, Outcome.STARTED, now)
    if row.session_status not in ENDED:
        return run
    message = row.session_info[:_MAX_MESSAGE]
    return observe(task, run, _outcome(row), now, message, is_cancelling=is_cancelling)


def _outcome(row: TaskRow) -> Outcome:
    if row.session_status is Status.TERMINATED and row.session_result is Result.SUCCESS:
        return Outcome.SUCCEEDED
    is_stopped = row.session_code == TextTemplate.STOPPED_BY.code
    return Outcome.STOPPED if is_stopped else Outcome.FAILED
