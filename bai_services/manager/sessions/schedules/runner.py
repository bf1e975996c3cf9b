"""Start and stop the sessions of schedules.

A start that becomes due is stored as a run, together with the next start. The session of the run
has the run's id. Therefore a manager that is killed at any point neither loses the start nor
creates a second session.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from bai_services.core.accounts.roles import Role
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.schedules.records import (
    GRACE,
    MAX_RUNS,
    RUNS_KEPT_FOR,
    Overlap,
    RunStatus,
)
from bai_services.core.sessions.spec import spec_of
from bai_services.db.open_work import Work
from bai_services.db.sessions.schedules.runs import BATCH, DueRun, NewRun, ScheduleRunStore
from bai_services.db.sessions.schedules.schedules import ScheduleRow

from ...accounts.callers import Callers
from ...context import ManagerContext
from ...scheduling.lease import Lease
from ..requests.templates import Templates
from ..sessions import Sessions
from .times import last_start, next_start, stop_after

TICK_SECONDS = 5.0
_CLEANUP_INTERVAL_SECONDS = 3600.0
# Additional delay that is allowed if the session of the previous run must be stopped first.
_RESTART_GRACE = timedelta(minutes=10)


class ScheduleRunner:
    """Processes due starts and stops every ``TICK_SECONDS`` while this manager holds the lease."""

    def __init__(
        self,
        context: ManagerContext,
        sessions: Sessions,
        templates: Templates,
        callers: Callers,
        require_writable: Callable[[Role], None],
        *,
        lease: Lease,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``require_writable`` raises ``Unavailable`` during read-only maintenance."""
        self._store = ScheduleRunStore(context.database)
        self._clock = context.clock
        self._sessions = sessions
        self._templates = templates
        self._callers = callers
        self._require_writable = require_writable
        self._lease = lease
        self._monotonic = monotonic
        self._cleaned_at: float | None = None
        self._loop = lease.loop("schedules", self.step, TICK_SECONDS, Work.SCHEDULES)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Process all starts and stops that are due."""
        if await self._lease.hold() is None:
            return
        now = self._clock()
        due = await self._store.due_schedules(now)
        if due:
            await self._store.open_runs([(each, _new_run(each, now)) for each in due])
        for run in await self._store.due_runs():
            await self._start(run, now)
        await self._stop_due(now)
        await self._clean_up(now)
        if len(due) == BATCH:
            self._loop.wake()

    async def _start(self, run: DueRun, now: datetime) -> None:
        schedule = run.schedule
        stops_at = stop_after(fields_of(schedule), run.due_at)
        finish = partial(self._store.finish, run.id)
        if await self._store.session_exists(run.id):
            # This manager was killed after it had created the session.
            await finish(RunStatus.STARTED, stops_at=stops_at)
            return
        skip = _too_late(run, stops_at, now)
        if skip is None and (live := await self._store.live_session(schedule.id)) is not None:
            if schedule.overlap == Overlap.RESTART:
                # The run remains due until the session has ended.
                await self._stop(live, schedule.name)
                return
            skip = TextTemplate.SCHEDULE_OVERLAP.text()
        if skip is None:
            if await self._lease.hold() is None:
                return
            try:
                skip = await self._create(run)
            except Unavailable:
                # For example, during read-only maintenance; the next step tries again.
                return
            except BaiError as error:
                skip = TextTemplate.SCHEDULE_REFUSED.text(message=error.message)
        if skip is None:
            await finish(RunStatus.STARTED, stops_at=stops_at)
        else:
            await finish(RunStatus.SKIPPED, reason=skip.as_json())

    async def _create(self, run: DueRun) -> CodedText | None:
        """Create the session of a run with its owner's permissions; return why if that fails."""
        schedule = run.schedule
        caller = await self._callers.for_schedule(schedule.owner)
        self._require_writable(caller.role)
        request = dict(schedule.request)
        if schedule.template is not None:
            request = await self._templates.apply(caller, schedule.template, request)
        spec = spec_of({**request, "name": request.get("name") or schedule.name})
        session, _ = await self._sessions.create(
            caller, spec, session_id=run.id, schedule=schedule.name
        )
        if session.id != run.id:
            return TextTemplate.SCHEDULE_NAME_TAKEN.text(name=session.name)
        return None

    async def _stop_due(self, now: datetime) -> None:
        closed: dict[RunStatus, list[str]] = {RunStatus.STOPPED: [], RunStatus.ENDED: []}
        for stop in await self._store.due_stops(now):
            if not stop.is_live:
                closed[RunStatus.ENDED].append(stop.id)
                continue
            if await self._lease.hold() is None:
                return
            await self._stop(stop.id, stop.schedule)
            closed[RunStatus.STOPPED].append(stop.id)
        for status, run_ids in closed.items():
            await self._store.close(run_ids, status)

    async def _stop(self, session_id: str, schedule: str) -> None:
        await self._sessions.end(session_id, TextTemplate.SCHEDULED_STOP.text(name=schedule))

    async def _clean_up(self, now: datetime) -> None:
        monotonic = self._monotonic()
        last = self._cleaned_at
        if last is None or monotonic - last >= _CLEANUP_INTERVAL_SECONDS:
            self._cleaned_at = monotonic
            await self._store.clean_up(now - RUNS_KEPT_FOR, MAX_RUNS)


def _new_run(schedule: ScheduleRow, now: datetime) -> NewRun:
    """Return the run for the latest due start.

    If several starts became due while no manager was running, the earlier ones are dropped.
    """
    fields = fields_of(schedule)
    first = schedule.next_start_at or now
    since = max(first, now - _catch_up(schedule))
    due_at = last_start(fields, since - timedelta(microseconds=1), now) or first
    is_missed = now - due_at > _catch_up(schedule)
    missed = TextTemplate.SCHEDULE_MISSED.text(due_at=due_at.isoformat(timespec="seconds"))
    return NewRun(
        id=str(uuid.uuid4()),
        schedule_id=schedule.id,
        due_at=due_at,
        status=RunStatus.SKIPPED if is_missed else RunStatus.DUE,
        reason=missed.as_json() if is_missed else None,
        next_start_at=next_start(fields, now),
    )


def _catch_up(schedule: ScheduleRow) -> timedelta:
    return max(timedelta(minutes=schedule.catch_up_minutes), GRACE)


def _too_late(run: DueRun, stops_at: datetime | None, now: datetime) -> CodedText | None:
    schedule = run.schedule
    if stops_at is not None and stops_at <= now:
        return TextTemplate.SCHEDULE_OVER.text(
            name=schedule.name, ends_at=stops_at.isoformat(timespec="seconds")
        )
    latest = run.due_at + _catch_up(schedule)
    if schedule.overlap == Overlap.RESTART:
        latest += _RESTART_GRACE
    if now > latest:
        return TextTemplate.SCHEDULE_MISSED.text(due_at=run.due_at.isoformat(timespec="seconds"))
    return None
