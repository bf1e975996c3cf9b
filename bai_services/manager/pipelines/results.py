"""Read the results of runs: declared outputs and metrics, and show them in apps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from bai_services.core.accounts.roles import Caller
from bai_services.core.apps.catalogue import KNOWN_APPS
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.pipelines.definition import TaskKind
from bai_services.core.pipelines.records import (
    PipelineArtifact,
    PipelineNotebookError,
    PipelineResults,
    PipelineRunApp,
)
from bai_services.core.pipelines.requests import RunContext, app_session_request, run_directory
from bai_services.core.pipelines.results import (
    MAX_FAILED_NOTEBOOKS,
    MAX_METRICS_BYTES,
    MAX_NOTEBOOK_BYTES,
    METRICS_FILE,
    RunApp,
    artifact_paths,
    notebook_path,
    parse_cell_error,
    parse_metrics,
)
from bai_services.core.pipelines.states import Plan, TaskStatus
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.spec import spec_of
from bai_services.db.cluster.images import ImageStore
from bai_services.db.pipelines.runs import PipelineRunStore, RunRow
from bai_services.db.pipelines.task_runs import TaskRow

from ..apps.session_apps import image_apps
from ..folders.files import Files
from ..sessions.sessions import Sessions
from .runs import PipelineRuns


class PipelineRunResults:
    """Reads the results of runs from the folders of their pipelines.

    The caller needs the permission to read the files of the folder.
    """

    def __init__(
        self,
        runs: PipelineRuns,
        store: PipelineRunStore,
        images: ImageStore,
        files: Files,
        sessions: Sessions,
    ) -> None:
        self._runs = runs
        self._store = store
        self._images = images
        self._files = files
        self._sessions = sessions

    async def open_app(self, caller: Caller, key: str, app: RunApp) -> PipelineRunApp:
        """Create a session of the caller with an app that shows the directory of a run. If the
        caller has a live one for this run, return that session.

        Raises
        ------
        Conflict
            If the folder of the pipeline was removed, or the image of the session, which is the
            default image of the project, does not offer the app.
        BaiError
            The errors of ``Sessions.create``.
        """
        row = await self._runs.find(caller, key)
        if row.vfolder_id is None:
            raise Conflict(refusal(RefusalText.PIPELINE_FOLDER_REMOVED, name=row.pipeline))
        context = RunContext(row.id, row.pipeline, row.project_id, row.vfolder_id)
        request = spec_of(app_session_request(context))
        spec = await self._sessions.check(caller, request)
        if all(each.name != app for each in await image_apps(self._images, spec)):
            title = KNOWN_APPS[app].title
            raise Conflict(refusal(RefusalText.APP_NOT_IN_IMAGE, app=title, image=spec.image))
        session, is_new = await self._sessions.create(
            caller, request, pipeline=row.pipeline, run=row.id
        )
        return PipelineRunApp(
            session=session.id, name=session.name, path=KNOWN_APPS[app].path, is_new=is_new
        )

    async def get(self, caller: Caller, key: str) -> PipelineResults:
        """Return the outputs and the metrics of a run.

        Raises
        ------
        Forbidden
            If the caller may see the run, but not the files of its folder.
        """
        row = await self._runs.find(caller, key)
        directory = run_directory(row.id)
        if row.vfolder_id is None:
            return PipelineResults(
                folder=None,
                directory=directory,
                artifacts=[],
                notebook_errors=[],
                metrics={},
                metrics_problem="",
                metrics_problem_coded=None,
            )
        _, plan, tasks = await self._store.detail(row.id)
        paths = artifact_paths(plan, row.id)
        artifacts = await self._artifacts(caller, row.vfolder_id, paths)
        metrics: Mapping[str, float] = {}
        problem: InvalidRequest | None = None
        try:
            metrics = await self._metrics(caller, row.vfolder_id, f"{directory}/{METRICS_FILE}")
        except NotFound:
            pass  # no task has written metrics
        except InvalidRequest as error:
            problem = error
        return PipelineResults(
            folder=row.vfolder_id,
            directory=directory,
            artifacts=artifacts,
            notebook_errors=await self._notebook_errors(caller, row, plan, tasks),
            metrics=metrics,
            metrics_problem="" if problem is None else problem.message,
            metrics_problem_coded=None if problem is None else problem.text.as_json(),
        )

    async def _artifacts(
        self, caller: Caller, folder: str, paths: Sequence[tuple[str, str]]
    ) -> list[PipelineArtifact]:
        entries = await self._files.entries(caller, folder, [path for _, path in paths])
        return [
            PipelineArtifact(task=task, path=path)
            if entry is None
            else PipelineArtifact(
                task=task,
                path=path,
                type=entry.type,
                size=entry.size,
                modified_at=entry.modified_at,
            )
            for (task, path), entry in zip(paths, entries, strict=True)
        ]

    async def _notebook_errors(
        self, caller: Caller, row: RunRow, plan: Plan, tasks: Sequence[TaskRow]
    ) -> list[PipelineNotebookError]:
        """Return the failed cells of the notebooks whose tasks have failed."""
        failed = [
            task
            for task in tasks
            if task.status is TaskStatus.FAILED and plan.tasks[task.task].kind is TaskKind.NOTEBOOK
        ]
        errors = []
        for task in failed[:MAX_FAILED_NOTEBOOKS]:
            path = notebook_path(plan, task.task, task.item_index, row.id)
            try:
                content = await self._read(caller, row.vfolder_id or "", path, MAX_NOTEBOOK_BYTES)
            except NotFound:
                continue  # the task has failed before its first cell
            found = await asyncio.to_thread(parse_cell_error, content)
            if found is not None:
                errors.append(
                    PipelineNotebookError(
                        task=task.task, path=path, cell=found.cell, error=found.error
                    )
                )
        return errors

    async def _metrics(self, caller: Caller, folder: str, path: str) -> Mapping[str, float]:
        content = await self._read(caller, folder, path, MAX_METRICS_BYTES)
        return await asyncio.to_thread(parse_metrics, content)

    async def _read(self, caller: Caller, folder: str, path: str, max_bytes: int) -> bytes:
        """Return the content of a file, at most one byte more than ``max_bytes``."""
        _, opened = await self._files.download(caller, folder, path)
        try:
            size = min(opened.size, max_bytes + 1)
            return b"".join([chunk async for chunk in opened.chunks(0, size)])
        finally:
            await opened.close()
