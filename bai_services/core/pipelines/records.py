"""Pipelines and their runs as shown to callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..folders.entries import FileType
from .definition import ParameterType, RunIf, TaskKind, Value
from .schedules import CatchUp
from .states import RunStatus, TaskStatus
from .triggers import RunResult, TriggerKind

# Maximum number of pipelines of a user or a project.
MAX_PIPELINES_PER_SCOPE = 200
MAX_TEMPLATES_PER_SCOPE = 50
# Maximum number of stored versions of a definition, and of versions per page; a version can have 1
# MiB.
MAX_VERSIONS = 100
MAX_VERSIONS_PER_PAGE = 10
# Maximum number of runs of a user that have not ended.
MAX_OPEN_RUNS = 500
# Time for which ended runs are kept, and their maximum number per pipeline and per user, because
# each run has a copy of the definition.
RUNS_KEPT_FOR = timedelta(days=90)
RUNS_KEPT = 1000
RUNS_KEPT_PER_USER = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParameter:
    name: str
    type: ParameterType
    default: Value | None
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline. ``version`` counts the changes. ``definition`` is the YAML text, "" in lists.
    ``folder``: id of the folder that tasks mount at ``/pipeline``, None if the folder was removed.
    ``last_run_status``: None before the first run. A pipeline without an owner belongs to its
    project; ``can_write``: the reader may change it.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    version: int
    name: str
    description: str
    domain: str
    project: str
    project_id: str
    owner: str | None
    owner_id: str | None
    can_write: bool
    folder: str | None
    definition: str
    tasks: int
    parameters: Sequence[PipelineParameter]
    last_run_id: str | None
    last_run_status: RunStatus | None
    last_run_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTask:
    """A task of a definition."""

    name: str
    kind: TaskKind
    needs: Sequence[str]
    run_if: RunIf


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCheck:
    """The result of a validation: the problem of a definition with its line, or its tasks.

    ``problem_coded``: the problem as a code with values.
    """

    is_valid: bool
    problem: str
    problem_coded: Mapping[str, Any] | None
    line: int | None
    name: str
    parameters: Sequence[PipelineParameter]
    tasks: Sequence[PipelineTask]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run: a frozen copy of the definition with its parameters.

    ``tasks``: number of task runs; ``tasks_by_status``: number of task runs by status. ``cause``:
    the schedule or trigger that has created the run, "" if a user has created it. ``owner``: the
    user who has started the run.
    """

    id: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    pipeline: str
    pipeline_id: str
    pipeline_version: int
    domain: str
    project: str
    project_id: str
    owner: str
    owner_id: str
    status: RunStatus
    cause: str
    parameters: Mapping[str, Value]
    tasks: int
    tasks_by_status: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTaskRun:
    """A task run. ``session``: id of the session of the last attempt. None before the session is
    created, and for a task whose kind needs no session. ``item``: the mapped value, "" if the task
    is not mapped. ``message``: the result; for a queued task, why its session waits.
    ``message_coded``: the message as a ``CodedText``, if it has a code. ``is_cached``: the outputs
    were taken from an earlier run.
    """

    task: str
    index: int
    item: str
    kind: TaskKind
    needs: Sequence[str]
    status: TaskStatus
    attempt: int
    session: str | None
    session_status: str | None
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    retry_at: datetime | None
    message: str
    message_coded: Mapping[str, Any] | None
    is_cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRunDetail:
    """A run with its frozen definition and all task runs, in topological order."""

    run: PipelineRun
    definition: str
    task_runs: Sequence[PipelineTaskRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineArtifact:
    """A declared output. ``path``: its path in the folder. ``type``: None if the output does not
    exist.
    """

    task: str
    path: str
    type: FileType | None = None
    size: int = 0
    modified_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineNotebookError:
    """The cell at which a notebook failed. ``cell``: number of the code cell, from 1."""

    task: str
    path: str
    cell: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResults:
    """The outputs and metrics of a run. ``folder``: id of the folder, None if it was removed.

    ``directory``: directory of the run in the folder. ``metrics_problem``: why the file with
    metrics cannot be read, else ""; ``metrics_problem_coded``: the same text as a code with values.
    """

    folder: str | None
    directory: str
    artifacts: Sequence[PipelineArtifact]
    notebook_errors: Sequence[PipelineNotebookError]
    metrics: Mapping[str, float]
    metrics_problem: str
    metrics_problem_coded: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRunApp:
    """An app that shows the directory of a run. ``session``: id of the session with the app.
    ``path``: below the address of the session. ``is_new``: the session did not exist.
    """

    session: str
    name: str
    path: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVersion:
    """A version of a pipeline's definition."""

    version: int
    created_at: datetime
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchema:
    """The JSON schema of definitions."""

    json_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTemplate:
    """A definition from which users create pipelines; ``definition`` is "" in lists.

    A built-in template has neither owner nor project. Any other template without an owner belongs
    to its project.
    """

    id: str
    created_at: datetime | None
    name: str
    description: str
    is_builtin: bool
    domain: str | None
    project: str | None
    project_id: str | None
    owner: str | None
    owner_id: str | None
    can_delete: bool
    tasks: int
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedPipeline:
    """A pipeline in the requested format."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchedule:
    """Times at which a pipeline runs; see ``Timing``.

    ``last_message``: why the last scheduled start has created no run, "" after a success.
    ``last_run_id``: the last run that the schedule has created.
    """

    id: str
    created_at: datetime
    version: int
    name: str
    pipeline: str
    pipeline_id: str
    domain: str
    project: str
    owner: str
    owner_id: str
    start: str | None
    every_minutes: int | None
    time_zone: str
    parameters: Mapping[str, Value]
    catch_up: CatchUp
    is_paused: bool
    next_starts: Sequence[datetime]
    last_start_at: datetime | None
    last_run_id: str | None
    last_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTrigger:
    """A trigger, whose events run a pipeline.

    ``folder_id`` and ``pattern``: the watched files. ``source_id``: the pipeline whose runs fire
    the trigger; ``result``: the results of these runs that fire it. ``last_message``: why the last
    event has created no run, "" after a success.
    """

    id: str
    created_at: datetime
    name: str
    kind: TriggerKind
    folder: str | None
    folder_id: str | None
    pattern: str
    source: str | None
    source_id: str | None
    result: RunResult | None
    parameters: Mapping[str, Value]
    pipeline: str
    pipeline_id: str
    domain: str
    project: str
    owner: str
    owner_id: str
    is_enabled: bool
    last_call_at: datetime | None
    last_run_id: str | None
    last_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedPipelineTrigger(PipelineTrigger):
    """A new trigger with the secret of its signatures; the secret is returned only once.

    Only webhooks have a secret.
    """

    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTriggerSecret:
    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTriggerCall:
    """The result of a call. ``is_new``: this call created the run; False for a repeated call."""

    run: str
    is_new: bool
