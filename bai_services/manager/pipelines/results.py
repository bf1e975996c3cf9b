"""Read the results of runs: declared outputs, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.pipelines.records import PipelineArtifact, PipelineResults
from bai_services.core.pipelines.requests import run_directory
from bai_services.core.pipelines.results import (
    MAX_METRICS_BYTES,
    METRICS_FILE,
    artifact_paths,
    parse_metrics,
)
from bai_services.db.pipelines.runs import PipelineRunStore

from ..folders.files import Files
from .runs import PipelineRuns


class PipelineRunResults:
    """Reads the results of runs from the folders of their pipelines.

    The caller needs the permission to read the files of the folder.
    """

    def __init__(self, runs: PipelineRuns, store: PipelineRunStore, files: Files) -> None:
        self._runs = runs
        self._store = store
        self._files = files

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
                folder=None, directory=directory, artifacts=[], metrics={}, metrics_problem=""
            )
        _, plan, _ = await self._store.detail(row.id)
        paths = artifact_paths(plan.definition, row.id)
        artifacts = await self._artifacts(caller, row.vfolder_id, paths)
        metrics: Mapping[str, float] = {}
        problem = ""
        try:
            metrics = await self._metrics(caller, row.vfolder_id, f"{directory}/{METRICS_FILE}")
        except NotFound:
            pass  # No task has written metrics.
        except InvalidRequest as error:
            problem = error.message
        return PipelineResults(
            folder=row.vfolder_id,
            directory=directory,
            artifacts=artifacts,
            metrics=metrics,
            metrics_problem=problem,
        )

    async def _artifacts(
        self, caller: Caller, folder: str, paths: Sequence[tuple[str, str]]
    ) -> list[PipelineArtifact]:
        entries = await self._files.entries(caller, folder, [path for _, path in paths])
        return [
            PipelineArtifact(
                task=task,
                path=path,
                type=None if entry is None else entry.type,
                size=0 if entry is None else entry.size,
                modified_at=None if entry is None else entry.modified_at,
            )
            for (task, path), entry in zip(paths, entries, strict=True)
        ]

    async def _metrics(self, caller: Caller, folder: str, path: str) -> Mapping[str, float]:
        _, opened = await self._files.download(caller, folder, path)
        try:
            size = min(opened.size, MAX_METRICS_BYTES + 1)
            content = b"".join([chunk async for chunk in opened.chunks(0, size)])
        finally:
            await opened.close()
        return await asyncio.to_thread(parse_metrics, content)
