"""State machine of pipeline runs.

``observe`` applies an event to a task run. When the needed tasks have ended, ``advance`` starts,
skips or blocks a task run; it also computes the status of the run. Both are pure functions: the
caller stores the changed task runs and creates sessions for queued task runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from ..coded_text import refusal
from ..errors import Conflict
from ..refusal_texts import RefusalText
from .definition import PipelineDefinition, RunIf, Task, TaskKind, Value
from .parameters import is_met, items_of, values_of

MAX_RETRY_DELAY_SECONDS = 86400


class TaskStatus(StrEnum):
    WAITING = "waiting"  # waits for other tasks, or for the limit of parallel tasks
    QUEUED = "queued"  # its session is not yet created, or waits for resources
    RUNNING = "running"
    RETRYING = "retrying"  # failed; starts again at ``retry_at``
    APPROVAL = "awaiting-approval"
    SUCCEEDED = "succeeded"
    BYPASSED = "bypassed"  # not run because the definition says ``skip``; counts as succeeded
    SKIPPED = "skipped"  # a condition or ``run_if`` excludes it
    FAILED = "failed"
    BLOCKED = "blocked"  # a task that it needs has failed
    CANCELLED = "cancelled"


class RunStatus(StrEnum):
    WAITING = "waiting"  # waits for other runs of the pipeline
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """An event of a task run."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    CACHED = "cached"  # succeeded; its outputs were taken from an earlier run
    FAILED = "failed"
    STOPPED = "stopped"  # a user has stopped its session, so it is not retried
    APPROVED = "approved"
    REJECTED = "rejected"


S = TaskStatus
ACTIVE = frozenset({S.QUEUED, S.RUNNING})
TASK_ENDED = frozenset({S.SUCCEEDED, S.BYPASSED, S.SKIPPED, S.FAILED, S.BLOCKED, S.CANCELLED})
_PASSED = frozenset({S.SUCCEEDED, S.BYPASSED})
_UNSUCCESSFUL = frozenset({S.FAILED, S.BLOCKED, S.CANCELLED})
RUN_ENDED = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})
RESUMABLE = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task; ``index`` is the index of the mapped value, 0 without a map.

    ``attempt`` counts the starts; ``failures`` counts the failed starts since the run was created
    or resumed. ``is_cached``: the outputs were taken from an earlier run.
    """

    task: str
    index: int = 0
    status: TaskStatus = TaskStatus.WAITING
    attempt: int = 0
    failures: int = 0
    retry_at: datetime | None = None
    message: str = ""
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A definition with the parameters of a run."""

    definition: PipelineDefinition
    parameters: Mapping[str, Value]
    tasks: Mapping[str, Task]

    @classmethod
    def of(cls, definition: PipelineDefinition, parameters: Mapping[str, Value]) -> Plan:
        return cls(definition, parameters, {task.name: task for task in definition.tasks})

    def first_runs(self) -> list[TaskRun]:
        """Return the task runs of a new run."""
        runs: list[TaskRun] = []
        for task in self.definition.tasks:
            items = items_of(task, self.parameters)
            count = 1 if items is None else len(items)
            runs.extend(TaskRun(task.name, index) for index in range(count))
        return runs


@dataclass(frozen=True, slots=True)
class Progress:
    changed: Sequence[TaskRun]
    status: RunStatus


def observe(
    task: Task,
    run: TaskRun,
    outcome: Outcome,
    now: datetime,
    message: str = "",
    *,
    is_cancelling: bool = False,
) -> TaskRun:
    """Return a task run after an event of its current attempt; late events change nothing."""
    if outcome in (Outcome.APPROVED, Outcome.REJECTED):
        if run.status is not S.APPROVAL:
            return run
        status = S.SUCCEEDED if outcome is Outcome.APPROVED else S.FAILED
        return replace(run, status=status, message=message)
    if run.status not in ACTIVE:
        return run
    if outcome is Outcome.STARTED:
        return replace(run, status=S.RUNNING)
    if outcome in (Outcome.SUCCEEDED, Outcome.CACHED):
        is_cached = outcome is Outcome.CACHED
        return replace(run, status=S.SUCCEEDED, message=message, is_cached=is_cached)
    if is_cancelling:
        return replace(run, status=S.CANCELLED, message=message)
    failures = run.failures + 1
    if outcome is Outcome.FAILED and failures <= task.retries:
        at = now + timedelta(seconds=_delay(task, failures))
        return replace(run, status=S.RETRYING, failures=failures, retry_at=at, message=message)
    return replace(run, status=S.FAILED, failures=failures, message=message)


def _delay(task: Task, failures: int) -> int:
    """Return the delay before the next attempt, which doubles with every failure."""
    doubled: int = task.retry_delay_seconds * 2 ** (failures - 1)
    return min(doubled, MAX_RETRY_DELAY_SECONDS)


def cancelled(run: TaskRun, *, has_session: bool) -> TaskRun:
    """Return a task run of a cancelled run; if the task run has a session, the session must end
    first.
    """
    if run.status in TASK_ENDED or (run.status in ACTIVE and has_session):
        return run
    return replace(run, status=S.CANCELLED, retry_at=None)


def advance(plan: Plan, runs: Sequence[TaskRun], status: RunStatus, now: datetime) -> Progress:
    """Start, skip or block all task runs for which this is possible now.

    The tasks of the plan are in topological order, so one pass is enough.
    """
    if status in RUN_ENDED or status is RunStatus.WAITING:
        return Progress([], status)
    by_task: dict[str, list[TaskRun]] = {name: [] for name in plan.tasks}
    for run in runs:
        by_task[run.task].append(run)
    changed: list[TaskRun] = []
    if status is RunStatus.RUNNING:
        active = sum(run.status in ACTIVE for run in runs)
        room = plan.definition.max_parallel_tasks - active
        results: dict[str, _Result] = {}
        for task in plan.definition.tasks:
            after = _advanced(plan, task, by_task[task.name], results, room, now)
            changed.extend(after)
            room -= sum(run.status in ACTIVE for run in after)
            replaced = {run.index: run for run in after}
            by_task[task.name] = [replaced.get(run.index, run) for run in by_task[task.name]]
            results[task.name] = _result(task, by_task[task.name], results)
    current = [run for each in by_task.values() for run in each]
    return Progress(changed, _run_status(plan, current, status))


class _Result(StrEnum):
    """The result of a task with all of its task runs."""

    OPEN = "open"
    SUCCESS = "success"
    SKIPPED = "skipped"
    FAILURE = "failure"


# A map without values has the result of its needed tasks, and ends after them.
_RESULT_OF_EMPTY_MAP = {
    S.WAITING: _Result.OPEN,
    S.QUEUED: _Result.SUCCESS,
    S.SKIPPED: _Result.SKIPPED,
    S.BLOCKED: _Result.FAILURE,
}


def _result(task: Task, runs: Sequence[TaskRun], results: Mapping[str, _Result]) -> _Result:
    """Return the result of a task; ``results`` are the results of earlier tasks."""
    if not runs:
        return _RESULT_OF_EMPTY_MAP[_permission(task, results)]
    statuses = {run.status for run in runs}
    if statuses - TASK_ENDED:
        return _Result.OPEN
    failed = statuses & _UNSUCCESSFUL
    if task.continue_on_failure:
        failed -= {S.FAILED}
    if failed:
        return _Result.FAILURE
    return _Result.SKIPPED if statuses == {S.SKIPPED} else _Result.SUCCESS


def _advanced(
    plan: Plan,
    task: Task,
    runs: Sequence[TaskRun],
    results: Mapping[str, _Result],
    room: int,
    now: datetime,
) -> list[TaskRun]:
    """Return the task runs of a task that change now; ``results``: results of earlier tasks."""
    due = [run for run in runs if run.status is S.RETRYING and run.retry_at and run.retry_at <= now]
    waiting = [run for run in runs if run.status is S.WAITING]
    if not due and not waiting:
        return []
    status = _permission(task, results)
    if status is S.WAITING:
        return []
    if status is not S.QUEUED:
        return [replace(run, status=status) for run in waiting]
    if task.kind is TaskKind.PIPELINE:
        # A containing task needs the tasks of its sub-pipeline. It succeeds even if some of them
        # were skipped.
        is_skipped = {results[name] for name in task.needs} == {_Result.SKIPPED}
        status = S.SKIPPED if is_skipped else S.SUCCEEDED
        return [replace(run, status=status) for run in waiting]
    if task.skip:
        return [replace(run, status=S.BYPASSED) for run in waiting]
    if task.kind is TaskKind.APPROVAL:
        return [replace(run, status=S.APPROVAL) for run in waiting]
    if task.condition is not None:
        is_true = is_met(task.condition, values_of(task, plan.parameters))
        status = S.SUCCEEDED if is_true else S.SKIPPED
        return [replace(run, status=status) for run in waiting]
    if task.for_each is not None and task.for_each.max_parallel:
        active = sum(run.status in ACTIVE for run in runs)
        room = min(room, task.for_each.max_parallel - active)
    return [
        replace(run, status=S.QUEUED, attempt=run.attempt + 1, retry_at=None, message="")
        for run in (due + waiting)[: max(room, 0)]
    ]


def _permission(task: Task, results: Mapping[str, _Result]) -> TaskStatus:
    """Return QUEUED if a task may run, else as ``_status_for``."""
    status = _status_for_entries(task, results)
    if status is S.QUEUED:
        status = _own_status(task, [results[name] for name in task.needs])
    return status


def _status_for_entries(task: Task, results: Mapping[str, _Result]) -> TaskStatus:
    """Return QUEUED if all sub-pipelines that contain the task may run, else as ``_status_for``."""
    for entry in task.entries:
        status = _status_for(entry.run_if, [results[name] for name in entry.needs])
        if status is not S.QUEUED:
            return status
    return S.QUEUED


def _own_status(task: Task, needs: Sequence[_Result]) -> TaskStatus:
    if task.kind is not TaskKind.PIPELINE:
        return _status_for(task.run_if, needs)
    # ``run_if`` applies to the tasks of the sub-pipeline, see ``Entry``.
    if _Result.OPEN in needs:
        return S.WAITING
    return S.BLOCKED if _Result.FAILURE in needs else S.QUEUED


def _status_for(run_if: RunIf, needs: Sequence[_Result]) -> TaskStatus:
    """Return QUEUED if a task may run, WAITING if the results of its needed tasks do not decide it
    yet, else the final status.
    """
    is_open = _Result.OPEN in needs
    has_failure = _Result.FAILURE in needs
    if run_if is RunIf.SUCCESS:
        if has_failure:
            return S.BLOCKED
        if is_open:
            return S.WAITING
        return S.SKIPPED if _Result.SKIPPED in needs else S.QUEUED
    if is_open:
        return S.WAITING
    if run_if is RunIf.ALWAYS:
        return S.QUEUED
    if run_if is RunIf.FAILURE:
        return S.QUEUED if has_failure else S.SKIPPED
    if _Result.SUCCESS in needs or not needs:
        return S.QUEUED
    return S.BLOCKED if has_failure else S.SKIPPED


def _run_status(plan: Plan, runs: Sequence[TaskRun], status: RunStatus) -> RunStatus:
    if any(run.status not in TASK_ENDED for run in runs):
        return status
    if status is RunStatus.CANCELLING:
        return RunStatus.CANCELLED
    for run in runs:
        is_tolerated = plan.tasks[run.task].continue_on_failure and run.status is S.FAILED
        if run.status in _UNSUCCESSFUL and not is_tolerated:
            return RunStatus.FAILED
    return RunStatus.SUCCEEDED


def resumed(plan: Plan, runs: Sequence[TaskRun], status: RunStatus) -> list[TaskRun]:
    """Return the task runs that are repeated when a run is resumed: unsuccessful ones, and all task
    runs that depend on them. The numbers of attempts continue.

    Raises
    ------
    Conflict
        If the run has not ended, or has succeeded.
    """
    if status not in RESUMABLE:
        raise Conflict(refusal(RefusalText.RUN_NOT_RESUMABLE, run_status=status))
    unsuccessful = {
        (run.task, run.index)
        for run in runs
        if run.status in _UNSUCCESSFUL
        and not (plan.tasks[run.task].continue_on_failure and run.status is S.FAILED)
    }
    repeated = {name for name, _ in unsuccessful}
    after: set[str] = set()
    for task in plan.definition.tasks:
        needs = {*task.needs, *(need for entry in task.entries for need in entry.needs)}
        if after.union(repeated).intersection(needs):
            after.add(task.name)
    return [
        replace(run, status=S.WAITING, failures=0, retry_at=None, message="", is_cached=False)
        for run in runs
        if run.task in after or (run.task, run.index) in unsuccessful
    ]
