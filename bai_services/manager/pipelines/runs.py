"""Create, read, cancel and resume the runs of pipelines, and answer their approvals."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Conflict, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.definition import PipelineDefinition
from bai_services.core.pipelines.parameters import items_of, resolve
from bai_services.core.pipelines.records import (
    PipelineRun,
    PipelineRunDetail,
    PipelineTaskRun,
)
from bai_services.core.pipelines.states import (
    RUN_ENDED,
    Outcome,
    Plan,
    RunStatus,
    TaskStatus,
    cancelled,
    observe,
    resumed,
)
from bai_services.core.record_fields import fields_of
from bai_services.db.pipelines.runs import PipelineRunStore, RunRow
from bai_services.db.pipelines.task_runs import Decision, TaskRow

from ..accounts import authorizer
from ..context import ManagerContext
from .pipelines import Pipelines, target_of


class PipelineRuns:
    """Manages runs. Only owners create them; administrators may cancel and answer approvals."""

    def __init__(
        self,
        context: ManagerContext,
        store: PipelineRunStore,
        pipelines: Pipelines,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` wakes the loop that runs pipelines."""
        self._store = store
        self._pipelines = pipelines
        self._clock = context.clock
        self._audit = context.audit
        self._wake = wake

    async def page(self, caller: Caller, query: ListQuery) -> Page[PipelineRun]:
        visible = authorizer.visibility(caller, "pipeline.read")
        page, counts = await self._store.page(query, visible)
        return page.with_items([_record(row, counts[row.id]) for row in page.items])

    async def get(self, caller: Caller, key: str) -> PipelineRunDetail:
        """Return a run with its definition and its task runs."""
        row = await self._find(caller, key)
        definition, plan, tasks = await self._store.detail(row.id)
        counts: dict[str, int] = {}
        for task in tasks:
            counts[task.status] = counts.get(task.status, 0) + 1
        items = {name: items_of(task, plan.parameters) for name, task in plan.tasks.items()}
        shown = [_task(plan, task, items[task.task]) for task in tasks]
        return PipelineRunDetail(
            run=_record(row, dict(sorted(counts.items()))), definition=definition, task_runs=shown
        )

    async def create(
        self,
        caller: Caller,
        key: str,
        parameters: Mapping[str, Any],
        *,
        run_id: str | None = None,
        cause: str = "",
    ) -> PipelineRun:
        """Run a pipeline.

        ``cause``: the schedule or trigger that creates the run.

        Raises
        ------
        AlreadyExists
            If there is a run with the given id.
        InvalidRequest
            If a parameter is missing or not valid.
        Conflict
            If the folder of the pipeline was removed.
        QuotaExceeded
            If the caller has too many runs that have not ended.
        """
        row = await self._pipelines.find(caller, key)
        authorizer.require(caller, "pipeline.write", target_of(row))
        if row.vfolder_id is None:
            raise Conflict(
                f"the folder of pipeline {row.name} was removed; save the pipeline to create one"
            )
        definition = PipelineDefinition.from_json(row.parsed)
        plan = Plan.of(definition, resolve(definition, parameters))
        run_id = run_id or str(uuid.uuid4())
        entry = self._audit.entry(
            caller,
            "pipeline.run",
            run_id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            version=row.version,
            **({"cause": cause} if cause else {}),
        )
        await self._store.create(row, run_id, plan, self._clock(), entry, cause=cause)
        self._wake()
        return (await self.get(caller, run_id)).run

    async def cancel(self, caller: Caller, key: str) -> PipelineRun:
        """Cancel a run; the sessions of its tasks end.

        Raises
        ------
        Conflict
            If the run has ended.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.manage", _target(row))

        def decide(status: RunStatus, tasks: Sequence[TaskRow]) -> Decision:
            if status in RUN_ENDED:
                raise Conflict(f"the run is {status}; it cannot be cancelled")
            if status is RunStatus.WAITING:
                runs = [cancelled(task.run, has_session=False) for task in tasks]
                return Decision(runs, RunStatus.CANCELLED)
            return Decision([], RunStatus.CANCELLING)

        await self._change(caller, "cancel", row, decide)
        return (await self.get(caller, key)).run

    async def resume(self, caller: Caller, key: str) -> PipelineRun:
        """Repeat the tasks of an ended run that have not succeeded, and all tasks after them.

        Raises
        ------
        Conflict
            If the run has not ended, or has succeeded.
        QuotaExceeded
            If the caller has too many runs that have not ended.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.write", _target(row))
        _, plan, _ = await self._store.detail(row.id)

        def decide(status: RunStatus, tasks: Sequence[TaskRow]) -> Decision:
            runs = resumed(plan, [task.run for task in tasks], status)
            return Decision(runs, RunStatus.WAITING)

        await self._change(caller, "resume", row, decide, opens=True)
        return (await self.get(caller, key)).run

    async def answer(
        self, caller: Caller, key: str, task: str, *, is_approved: bool
    ) -> PipelineRun:
        """Approve or reject a task that waits for an approval.

        Raises
        ------
        NotFound
            If the run has no such task.
        Conflict
            If the task does not wait for an approval.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.manage", _target(row))
        _, plan, _ = await self._store.detail(row.id)
        verb = "approve" if is_approved else "reject"
        outcome = Outcome.APPROVED if is_approved else Outcome.REJECTED

        def decide(status: RunStatus, tasks: Sequence[TaskRow]) -> Decision:
            found = next((each.run for each in tasks if each.task == task), None)
            if found is None:
                raise NotFound(f"the run has no task {task[:64]!r}")
            if status is not RunStatus.RUNNING or found.status is not TaskStatus.APPROVAL:
                raise Conflict(f"task {task} is {found.status}; it does not wait for an approval")
            message = f"{outcome} by {caller.username}"
            after = observe(plan.tasks[task], found, outcome, self._clock(), message)
            return Decision([after], status)

        await self._change(caller, verb, row, decide, task=task[:64])
        return (await self.get(caller, key)).run

    async def _change(
        self,
        caller: Caller,
        verb: str,
        row: RunRow,
        decide: Callable[[RunStatus, Sequence[TaskRow]], Decision],
        *,
        opens: bool = False,
        **details: Any,
    ) -> None:
        entry = self._entry(caller, verb, row, **details)
        await self._store.change(row, decide, self._clock(), entry, opens=opens)
        self._wake()

    async def _find(self, caller: Caller, key: str) -> RunRow:
        visible = authorizer.visibility(caller, "pipeline.read")
        return await self._store.find("" if "\0" in key else key, visible)

    def _entry(self, caller: Caller, verb: str, row: RunRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"pipeline.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.pipeline,
            **details,
        )


def _record(row: RunRow, counts: Mapping[str, int]) -> PipelineRun:
    values = fields_of(row)
    for name in ("owner_role", "vfolder_id"):
        del values[name]
    return PipelineRun(**values, tasks_by_status=counts)


def _task(plan: Plan, row: TaskRow, items: Sequence[str] | None) -> PipelineTaskRun:
    task = plan.tasks[row.task]
    return PipelineTaskRun(
        task=row.task,
        index=row.item_index,
        item="" if items is None else items[row.item_index],
        kind=task.kind,
        needs=task.needs,
        status=row.status,
        attempt=row.attempt,
        session=None if row.session_status is None else row.session_id,
        session_status=row.session_status,
        queued_at=row.queued_at,
        started_at=row.started_at or row.session_started_at,
        ended_at=row.ended_at,
        retry_at=row.retry_at,
        message=row.message,
    )


def _target(row: RunRow) -> Target:
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))
