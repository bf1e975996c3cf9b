"""Fire the triggers of files and of other pipelines.

The id of a run is stored or derived from the event before the run is created; afterwards, the event
is marked as processed. Therefore a manager that is killed at any point neither loses an event nor
creates a second run.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping

from bai_services.core.coded_text import refusal
from bai_services.core.errors import BaiError, Conflict, QuotaExceeded, Unavailable
from bai_services.core.pipelines.triggers import (
    chain,
    fires,
    run_id_of,
)
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.open_work import Work
from bai_services.db.pipelines.triggers import (
    BATCH,
    EndedRun,
    PipelineTriggerRow,
    PipelineTriggerStore,
)

from ..accounts.callers import Callers
from ..scheduling.lease import Lease
from .pipelines import Pipelines
from .triggers import PipelineTriggers

TICK_SECONDS = 1.0
SCAN_SECONDS = 5.0
# Maximum duration of a pass over the folders; the next pass continues.
MAX_PASS_SECONDS = 20.0
# Maximum number of files of one trigger that fire in a pass, because other triggers wait.
MAX_FILES_PER_PASS = 20

log = logging.getLogger(__name__)


class PipelineTriggerRunner:
    """Processes ended runs and searches folders, while this manager holds the lease.

    The two loops are independent, because a storage host may respond slowly.
    """

    def __init__(
        self,
        store: PipelineTriggerStore,
        triggers: PipelineTriggers,
        pipelines: Pipelines,
        callers: Callers,
        *,
        lease: Lease,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._triggers = triggers
        self._pipelines = pipelines
        self._callers = callers
        self._lease = lease
        self._monotonic = monotonic
        # The signatures of new files in the last search, by trigger.
        self._unsettled: dict[str, Mapping[str, str]] = {}
        # Problems of the last search, by trigger.
        self._problems: dict[str, str] = {}
        # The first trigger of the next pass.
        self._next = ""
        self._loops = (
            lease.loop(
                "pipeline triggers", self.process_runs, TICK_SECONDS, Work.PIPELINE_TRIGGERS
            ),
            lease.loop("pipeline files", self.search_folders, SCAN_SECONDS, Work.PIPELINE_FILES),
        )

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self._loops:
            await loop.stop()

    async def process_runs(self) -> None:
        """Fire the triggers of runs that have ended."""
        if await self._lease.hold() is None:
            return
        ended = await self._store.ended_runs()
        for run in ended:
            for row in await self._store.following(run.pipeline_id):
                if row.result is not None and fires(row.result, run.status):
                    if await self._lease.hold() is None:
                        return
                    await self._follow(row, run)
            await self._store.finish_end(run)
        if len(ended) == BATCH:
            self._loops[0].wake()

    async def _follow(self, row: PipelineTriggerRow, run: EndedRun) -> None:
        """Run the pipeline of a trigger after the end of a run."""
        try:
            # Check again that the owner may see the pipeline whose run has ended.
            caller = await self._callers.for_schedule(row.owner)
            await self._pipelines.find(caller, run.pipeline_id)
            # Check for cycles again, because two simultaneous requests may have created one.
            if chain(await self._store.followers(), row.pipeline_id, run.pipeline_id):
                raise Conflict(refusal(RefusalText.TRIGGER_CYCLE))
        except Unavailable:
            raise
        except BaiError as error:
            await self._triggers.record_refusal(row, error)
            return
        event = f"{run.id}/{run.ended_at.isoformat()}"
        references = {"RUN": run.id, "STATUS": str(run.status)}
        try:
            await self._triggers.fire(row, run_id_of(row.id, event), references)
        except Unavailable:
            raise
        except BaiError as error:
            log.info("trigger %s creates no run: %s", row.id, error)

    async def search_folders(self) -> None:
        """Fire the triggers of files that have appeared, for at most ``MAX_PASS_SECONDS``."""
        if await self._lease.hold() is None:
            self._unsettled.clear()
            return
        rows = await self._store.watching()
        known = {row.id for row in rows}
        self._unsettled = {key: each for key, each in self._unsettled.items() if key in known}
        self._problems = {key: each for key, each in self._problems.items() if key in known}
        end = self._monotonic() + MAX_PASS_SECONDS
        later = [row for row in rows if row.id >= self._next]
        earlier = rows[: len(rows) - len(later)]
        for row in (*later, *earlier):
            self._next = row.id
            if self._monotonic() >= end:
                return
            try:
                await self._search(row)
            except Unavailable as error:
                log.info("trigger %s of pipeline %s waits: %s", row.name, row.pipeline, error)
            except Exception:
                # An error in one trigger must not stop the processing of the others.
                log.exception("trigger %s of pipeline %s failed", row.name, row.pipeline)

    async def _search(self, row: PipelineTriggerRow) -> None:
        """Search the folder of a trigger once.

        A new file fires the trigger when two searches find the same signature, so that a file is
        complete.
        """
        try:
            caller = await self._callers.for_schedule(row.owner)
            found = await self._triggers.files_of(caller, row.vfolder_id, row.pattern)
        except Unavailable:
            raise
        except BaiError as error:
            if self._problems.get(row.id) != error.message:
                self._problems[row.id] = error.message
                await self._triggers.record_refusal(row, error)
            return
        if row.last_message and row.last_message == self._problems.pop(row.id, None):
            await self._triggers.clear_message(row)
        known = await self._store.files(row.id)
        new = found.keys() - {each.path for each in known}
        before = self._unsettled.get(row.id, {})
        settled = {path for path in new if before.get(path) == found[path]}
        self._unsettled[row.id] = {path: found[path] for path in new - settled}
        gone = {each.path for each in known if each.path not in found}
        if gone or settled:
            ids = {path: str(uuid.uuid4()) for path in sorted(settled)}
            await self._store.change_files(row.id, gone, ids)
            known = await self._store.files(row.id)
        waiting = [each for each in known if not each.is_fired]
        for each in waiting[:MAX_FILES_PER_PASS]:
            if each.run_id is None or await self._lease.hold() is None:
                return
            try:
                await self._triggers.fire(row, each.run_id, {"FILE": each.path})
            except (Unavailable, QuotaExceeded):
                return  # The next search tries again.
            except BaiError as error:
                log.info("trigger %s: file %s creates no run: %s", row.id, each.path, error)
            await self._store.finish_file(row.id, each.path)
