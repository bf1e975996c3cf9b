"""Create the runs of schedules of pipelines.

The id of a run is derived from its schedule and start, and the next start is stored after the run.
Therefore a manager that is killed at any point neither loses a start nor creates a second run.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import datetime

from bai_services.core.accounts.roles import Role
from bai_services.core.errors import AlreadyExists, BaiError, Unavailable
from bai_services.db.open_work import Work
from bai_services.db.pipelines.schedules import BATCH, PipelineScheduleRow, PipelineScheduleStore

from ..accounts.callers import Callers
from ..context import ManagerContext
from ..scheduling.lease import Lease
from .runs import PipelineRuns

TICK_SECONDS = 5.0
_NAMESPACE = uuid.UUID("0f6b1d64-9b1c-4a6e-8a49-2f6f9a1f3c77")
_MAX_MESSAGE = 500

log = logging.getLogger(__name__)


class PipelineScheduleRunner:
    """Processes due starts every ``TICK_SECONDS`` while this manager holds the lease."""

    def __init__(
        self,
        context: ManagerContext,
        store: PipelineScheduleStore,
        runs: PipelineRuns,
        callers: Callers,
        require_writable: Callable[[Role], None],
        *,
        lease: Lease,
    ) -> None:
        """``require_writable`` raises ``Unavailable`` during read-only maintenance."""
        self._store = store
        self._runs = runs
        self._callers = callers
        self._require_writable = require_writable
        self._clock = context.clock
        self._lease = lease
        self._loop = lease.loop(
            "pipeline schedules", self.step, TICK_SECONDS, Work.PIPELINE_SCHEDULES
        )

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Process all starts that are due."""
        if await self._lease.hold() is None:
            return
        now = self._clock()
        due = await self._store.due(now)
        for row in due:
            try:
                await self._start(row, now)
            except Unavailable as error:
                # For example, during read-only maintenance; the next step tries again.
                log.info("schedule %s of pipeline %s waits: %s", row.name, row.pipeline, error)
        if len(due) == BATCH:
            self._loop.wake()

    async def _start(self, row: PipelineScheduleRow, now: datetime) -> None:
        first = row.next_start_at or now
        starts = row.timing.due_starts(first, now, row.catch_up)
        run_id, message = None, ""
        if not starts:
            message = "the start was missed, because no manager ran"
        for start in starts:
            if await self._lease.hold() is None:
                return
            try:
                run_id = await self._create(row, start)
            except Unavailable:
                raise
            except BaiError as error:
                message = error.message[:_MAX_MESSAGE]
                break
        await self._store.finish(
            row,
            row.timing.next_start(now),
            last_start_at=starts[-1] if starts else first,
            run_id=run_id,
            message=message,
        )

    async def _create(self, row: PipelineScheduleRow, start: datetime) -> str:
        """Create the run of a start with the permissions of the owner; return its id."""
        run_id = str(uuid.uuid5(_NAMESPACE, f"{row.id}/{start.isoformat()}"))
        caller = await self._callers.for_schedule(row.owner)
        self._require_writable(caller.role)
        try:
            await self._runs.create(
                caller,
                row.pipeline_id,
                row.parameters,
                run_id=run_id,
                cause=f"schedule {row.name}",
            )
        except AlreadyExists:
            # The manager was killed before it stored the next start.
            log.info("run %s of schedule %s exists already", run_id, row.name)
        return run_id
