"""Create, read, cancel and resume pipeline runs, and approve or reject their tasks."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import TextTemplate, refusal
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.definition import PipelineDefinition, Task, TaskKind
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
from bai_services.core.pipelines.subpipelines import (
    MAX_DEPTH,
    MAX_SUB_PIPELINES,
    SubPipeline,
    expanded,
    names_of,
    shown_needs,
)
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.pipelines.runs import PipelineRunStore, RunRow
from bai_services.db.pipelines.task_runs import Decision, TaskRow

from ..context import ManagerContext
from .access import reader_of, require, require_run
from .pipelines import Pipelines

_ANSWERS = {
    True: TextTemplate.PIPELINE_TASK_APPROVED,
    False: TextTemplate.PIPELINE_TASK_REJECTED,
}


class PipelineRuns:
    """Manages runs. The user who creates a run owns it, and its tasks have this user's permissions.

    The owner of a pipeline may run it; every member of a project may run the project's pipelines.
    Administrators may cancel runs and answer approvals.
    """

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
        page, counts = await self._store.page(query, reader_of(caller))
        return page.with_items([_record(row, counts[row.id]) for row in page.items])

    async def get(self, caller: Caller, key: str) -> PipelineRunDetail:
        """Return a run with its definition and its task runs."""
        row = await self.find(caller, key)
        definition, plan, tasks = await self._store.detail(row.id)
        counts: dict[str, int] = {}
        for task in tasks:
            counts[task.status] = counts.get(task.status, 0) + 1
        items = {name: items_of(task, plan.parameters) for name, task in plan.tasks.items()}
        needs = shown_needs(plan.definition)
        shown = [_task(plan, task, items[task.task], needs[task.task]) for task in tasks]
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
        accepts_files: bool = False,
    ) -> PipelineRun:
        """Run a pipeline.

        ``cause``: the schedule or trigger that creates the run. ``accepts_files``: run the
        pipeline even if users with a lower role can change the files that it executes.

        Raises
        ------
        AlreadyExists
            If there is a run with the given id.
        InvalidRequest
            If a parameter is missing or not valid.
        Conflict
            If the folder of the pipeline was removed.
        Forbidden
            If the caller may not run the pipeline, or users with a lower role can change its
            files and ``accepts_files`` is false.
        QuotaExceeded
            If the caller has too many runs that have not ended.
        """
        row = await self._pipelines.find(caller, key)
        require(caller, "run", row)
        if caller.user_id is None:
            raise Forbidden(refusal(RefusalText.NOT_A_USER, role=caller.role))
        if row.vfolder_id is None:
            raise Conflict(refusal(RefusalText.PIPELINE_FOLDER_MISSING, name=row.name))
        if not accepts_files:
            await self._pipelines.require_trusted_files(caller, row)
        definition = PipelineDefinition.from_json(row.parsed)
        values = resolve(definition, parameters)
        if names_of(definition):
            root = await self._with_children(caller, definition, (row.id,), itertools.count(1))
            definition = await asyncio.to_thread(expanded, root, values)
        plan = Plan.of(definition, values)
        run_id = run_id or str(uuid.uuid4())
        details: dict[str, Any] = {"cause": cause} if cause else {}
        if accepts_files:
            details["accepts_files"] = True
        entry = self._audit.entry(
            caller,
            "pipeline.run",
            run_id,
            domain=row.domain,
            owner_id=caller.user_id,
            name=row.name,
            version=row.version,
            **details,
        )
        await self._store.create(
            row, run_id, plan, self._clock(), entry, owner_id=caller.user_id, cause=cause
        )
        self._wake()
        return (await self.get(caller, run_id)).run

    async def _with_children(
        self,
        caller: Caller,
        definition: PipelineDefinition,
        path: tuple[str, ...],
        number: Iterator[int],
    ) -> SubPipeline:
        """Read the sub-pipelines of a definition recursively.

        ``path``: ids of the enclosing pipelines, outermost first; the last is this pipeline.
        ``number``: counter shared by the whole run, which limits the sub-pipelines.

        Raises
        ------
        InvalidRequest
            If a pipeline contains itself, or there are too many levels or sub-pipelines.
        """
        children: dict[str, SubPipeline] = {}
        for name in names_of(definition):
            row = await self._pipelines.find(caller, name)
            require(caller, "run", row)
            if row.id in path:
                raise InvalidRequest(
                    refusal(RefusalText.PIPELINE_CONTAINS_ITSELF, name=row.name), field="pipeline"
                )
            if len(path) > MAX_DEPTH or next(number) > MAX_SUB_PIPELINES:
                raise InvalidRequest(
                    refusal(
                        RefusalText.TOO_MANY_SUB_PIPELINES,
                        limit=MAX_SUB_PIPELINES,
                        levels=MAX_DEPTH,
                    ),
                    field="pipeline",
                )
            child = await asyncio.to_thread(PipelineDefinition.from_json, row.parsed)
            children[name] = await self._with_children(caller, child, (*path, row.id), number)
        return SubPipeline(definition, children)

    async def cancel(self, caller: Caller, key: str) -> PipelineRun:
        """Cancel a run; the sessions of its tasks end.

        Raises
        ------
        Conflict
            If the run has ended.
        """
        row = await self.find(caller, key)
        require_run(caller, "pipeline.manage", row)

        def decide(status: RunStatus, tasks: Sequence[TaskRow]) -> Decision:
            if status in RUN_ENDED:
                raise Conflict(refusal(RefusalText.RUN_NOT_CANCELLABLE, run_status=status))
            if status is RunStatus.WAITING:
                runs = [cancelled(task.run, has_session=False) for task in tasks]
                return Decision(runs, RunStatus.CANCELLED)
            return Decision([], RunStatus.CANCELLING)

        await self._change(caller, "cancel", row, decide)
        return (await self.get(caller, key)).run

    async def resume(self, caller: Caller, key: str, *, accepts_files: bool = False) -> PipelineRun:
        """Restart an ended run.

        Repeat the tasks that did not succeed, and all tasks that depend on them.

        ``accepts_files``: resume the run even if users with a lower role can change the files that
        it executes.

        Raises
        ------
        Forbidden
            If the caller may not resume the run, or must accept the files of its pipeline.
        Conflict
            If the run has not ended, or has succeeded.
        QuotaExceeded
            If the caller has too many runs that have not ended.
        """
        row = await self.find(caller, key)
        require_run(caller, "pipeline.write", row)
        if not accepts_files:
            # The files may have changed since the run was created.
            pipeline = await self._pipelines.find(caller, row.pipeline_id)
            await self._pipelines.require_trusted_files(caller, pipeline)
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
        row = await self.find(caller, key)
        require_run(caller, "pipeline.manage", row)
        _, plan, _ = await self._store.detail(row.id)
        verb = "approve" if is_approved else "reject"
        outcome = Outcome.APPROVED if is_approved else Outcome.REJECTED

        def decide(status: RunStatus, tasks: Sequence[TaskRow]) -> Decision:
            found = next((each.run for each in tasks if each.task == task), None)
            if found is None:
                raise NotFound(refusal(RefusalText.NO_TASK_OF_RUN, name=task[:64]))
            if status is not RunStatus.RUNNING or found.status is not TaskStatus.APPROVAL:
                raise Conflict(
                    refusal(RefusalText.TASK_NOT_AWAITING, name=task, run_status=found.status)
                )
            text = _ANSWERS[is_approved].text(name=caller.username)
            after = observe(plan.tasks[task], found, outcome, self._clock(), str(text))
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

    async def find(self, caller: Caller, key: str) -> RunRow:
        return await self._store.find("" if "\0" in key else key, reader_of(caller))

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
    for name in ("owner_role", "vfolder_id", "is_project_owned"):
        del values[name]
    return PipelineRun(**values, tasks_by_status=counts)


def _task(
    plan: Plan, row: TaskRow, items: Sequence[str] | None, needs: Sequence[str]
) -> PipelineTaskRun:
    task = plan.tasks[row.task]
    message = (row.session_info if row.status is TaskStatus.QUEUED else "") or row.message
    return PipelineTaskRun(
        task=row.task,
        index=row.item_index,
        item="" if items is None else items[row.item_index],
        kind=task.kind,
        needs=needs,
        status=row.status,
        attempt=row.attempt,
        session=None if row.session_status is None else row.session_id,
        session_status=row.session_status,
        queued_at=row.queued_at,
        started_at=row.started_at or row.session_started_at,
        ended_at=row.ended_at,
        retry_at=row.retry_at,
        message=message,
        message_coded=_coded(task, row, message),
        is_cached=row.is_cached,
    )


def _coded(task: Task, row: TaskRow, message: str) -> Mapping[str, Any] | None:
    """Return the message of a task run as a code with values; None if it has no code.

    The message is the status text of the last attempt's session, or the answer to an approval.
    """
    if task.kind is TaskKind.APPROVAL and message:
        text = _ANSWERS[row.status is TaskStatus.SUCCEEDED].text(name=message.rpartition(" ")[2])
        return text.as_json() if str(text) == message else None
    is_of_session = message and row.session_info.startswith(message)
    return row.session_coded if is_of_session else None
