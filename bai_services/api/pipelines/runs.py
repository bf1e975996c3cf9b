"""`/pipeline-runs`: runs of pipelines."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines import records
from bai_services.core.pipelines.definition import MAX_ITEMS, MAX_PARAMETERS, MAX_VALUE
from bai_services.core.pipelines.results import RunApp

from ..base import APIHandler, operation
from ..fields import Body, CodedText, NameText, ResponseModel
from .pipelines import ONE_PIPELINE, ParameterValue

_TAG = "pipelines"
_Plain = Annotated[str, Field(max_length=MAX_VALUE)] | bool | int | float
_Value = _Plain | Annotated[list[_Plain], Field(max_length=MAX_ITEMS)]


Parameters = Annotated[dict[NameText, _Value], Field(max_length=MAX_PARAMETERS)]


class RunParameters(Body):
    """``parameters``: values by name; texts are converted to the types of the parameters."""

    parameters: Parameters = {}


class Resumption(Body):
    """``accepts_files``: run a pipeline of a project even if users with a lower role can change
    the files that its tasks execute.
    """

    accepts_files: bool = False


class NewRun(RunParameters, Resumption):
    """``accepts_files``: run a pipeline of a project even if users with a lower role can change
    the files that its tasks execute.
    """


class Answer(Body):
    is_approved: bool


class AppOfRun(Body):
    """``app``: tensorboard (logs below the directory of the run) or mlflow (the store ``mlflow`` in
    this directory).
    """

    app: RunApp


class PipelineRun(ResponseModel):
    """``status``: waiting (for other runs of the pipeline), running, cancelling, succeeded, failed
    or cancelled. ``cause``: the schedule or trigger that has created the run, empty for a user.
    ``tasks_by_status``: number of task runs.
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
    status: str
    cause: str
    parameters: dict[str, ParameterValue]
    tasks: int
    tasks_by_status: dict[str, int]


class PipelineTaskRun(ResponseModel):
    """``index`` and ``item``: position and value in the list over which the task is mapped.
    ``session``: session of the last attempt. ``status``: waiting, queued, running, retrying,
    awaiting-approval, succeeded, bypassed, skipped, failed, blocked or cancelled. ``is_cached``:
    the outputs were taken from an earlier run.
    """

    task: str
    index: int
    item: str
    kind: str
    needs: list[str]
    status: str
    attempt: int
    session: str | None
    session_status: str | None
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    retry_at: datetime | None
    message: str
    message_coded: CodedText | None
    is_cached: bool


class PipelineRunDetail(ResponseModel):
    """``definition``: the YAML with which the run was created."""

    run: PipelineRun
    definition: str
    task_runs: list[PipelineTaskRun]


class PipelineArtifact(ResponseModel):
    """A declared output, or an executed notebook. ``path``: path in the folder. ``type``: file,
    directory, link or other; null if the output does not exist.
    """

    task: str
    path: str
    type: str | None
    size: int
    modified_at: datetime | None


class PipelineNotebookError(ResponseModel):
    """``path``: path of the executed notebook in the folder. ``cell``: number of the code cell that
    has failed, from 1.
    """

    task: str
    path: str
    cell: int
    error: str


class PipelineResults(ResponseModel):
    """``folder``: id, null if it was removed. ``directory``: directory of the run in the folder.
    ``metrics``: numbers of ``metrics.json`` in this directory. ``metrics_problem``: why the file
    cannot be read.
    """

    folder: str | None
    directory: str
    artifacts: list[PipelineArtifact]
    notebook_errors: list[PipelineNotebookError]
    metrics: dict[str, float]
    metrics_problem: str
    metrics_problem_coded: CodedText | None


class PipelineRunApp(ResponseModel):
    """``session``, ``name``: id and name of the session with the app. ``path``: path of the app
    below the address of the session. ``is_new``: false if the caller already had this session.
    """

    session: str
    name: str
    path: str
    is_new: bool


class RunsOfPipelineHandler(APIHandler):
    @operation(
        "Run a pipeline",
        tag=_TAG,
        body=NewRun,
        returns=PipelineRun,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: NewRun) -> records.PipelineRun:
        return await self.manager.pipelines.runs.create(
            self.caller, key, body.parameters, accepts_files=body.accepts_files
        )


class RunsHandler(APIHandler):
    @operation("List runs of pipelines", tag=_TAG, returns=PipelineRun, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.PipelineRun]:
        return await self.manager.pipelines.runs.page(self.caller, query)


class RunHandler(APIHandler):
    @operation("Read a run with all its task runs", tag=_TAG, returns=PipelineRunDetail)
    async def get(self, key: str) -> records.PipelineRunDetail:
        return await self.manager.pipelines.runs.get(self.caller, key)

    @operation("Cancel a run; the sessions of its tasks end", tag=_TAG, returns=PipelineRun)
    async def delete(self, key: str) -> records.PipelineRun:
        return await self.manager.pipelines.runs.cancel(self.caller, key)


class ResultsHandler(APIHandler):
    @operation(
        "Read the outputs and metrics of a run from its folder", tag=_TAG, returns=PipelineResults
    )
    async def get(self, key: str) -> records.PipelineResults:
        return await self.manager.pipelines.results.get(self.caller, key)


class AppsHandler(APIHandler):
    @operation(
        "Open an app on the directory of a run, in a session of the caller",
        tag=_TAG,
        body=AppOfRun,
        returns=PipelineRunApp,
    )
    async def post(self, key: str, body: AppOfRun) -> records.PipelineRunApp:
        return await self.manager.pipelines.results.open_app(self.caller, key, body.app)


class ResumptionHandler(APIHandler):
    @operation(
        "Resume a failed or cancelled run: repeat the tasks that have not succeeded",
        tag=_TAG,
        body=Resumption,
        returns=PipelineRun,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: Resumption) -> records.PipelineRun:
        return await self.manager.pipelines.runs.resume(
            self.caller, key, accepts_files=body.accepts_files
        )


class AnswerHandler(APIHandler):
    @operation(
        "Approve or reject a task that waits for an approval",
        tag=_TAG,
        body=Answer,
        returns=PipelineRun,
    )
    async def post(self, key: str, task: str, body: Answer) -> records.PipelineRun:
        return await self.manager.pipelines.runs.answer(
            self.caller, key, task, is_approved=body.is_approved
        )


_ONE = r"/pipeline-runs/(?P<key>[^/]+)"
ROUTES = [
    (ONE_PIPELINE + "/runs", RunsOfPipelineHandler),
    ("/pipeline-runs", RunsHandler),
    (_ONE, RunHandler),
    (_ONE + "/results", ResultsHandler),
    (_ONE + "/apps", AppsHandler),
    (_ONE + "/resumption", ResumptionHandler),
    (_ONE + r"/tasks/(?P<task>[^/]+)/approval", AnswerHandler),
]
