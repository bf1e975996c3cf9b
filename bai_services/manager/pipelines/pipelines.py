"""Create, read, change and delete pipelines."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.folders.vfolders import UsageMode
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.conversion import Format, convert
from bai_services.core.pipelines.definition import (
    Parameter,
    PipelineDefinition,
    parameters_from_json,
)
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.records import (
    MAX_VERSIONS_PER_PAGE,
    ConvertedPipeline,
    Pipeline,
    PipelineCheck,
    PipelineParameter,
    PipelineSchema,
    PipelineTask,
    PipelineVersion,
)
from bai_services.core.pipelines.schema import PIPELINE_SCHEMA
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.pipelines.definitions import PipelineRow, PipelineStore, no_pipeline

from ..accounts import authorizer
from ..accounts.projects import Projects
from ..context import ManagerContext
from ..folders.vfolders import VFolders
from ..sessions.requests.options import Options
from .access import can_write, reader_of, require, require_trusted_files

_FOLDER_NAME_CHARACTERS = 40
_ID_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Ownership:
    """Columns of the owner of a pipeline or template; without ``owner_id``, the project owns it."""

    scope: str
    owner_id: str | None
    project_id: str
    project: str
    domain: str


class Pipelines:
    """Manages pipelines. Only the owner defines a pipeline: its tasks have the owner's permissions.
    Administrators may delete it, and define the pipelines of projects.

    ``key`` is an id, or the name of a pipeline of the caller or of one of the caller's projects.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: PipelineStore,
        *,
        options: Options,
        folders: VFolders,
        projects: Projects,
    ) -> None:
        self._store = store
        self._projects = projects
        self._options = options
        self._folders = folders
        self._clock = context.clock
        self._audit = context.audit
        # The scheduler uses the same threads: parsing definitions must not occupy all of them.
        self._parser = asyncio.Semaphore(1)

    async def page(self, caller: Caller, query: ListQuery) -> Page[Pipeline]:
        page = await self._store.page(query, reader_of(caller))
        return page.with_items([_record(caller, row, "") for row in page.items])

    async def get(self, caller: Caller, key: str) -> Pipeline:
        row = await self.find(caller, key)
        return _record(caller, row, row.definition)

    async def versions(self, caller: Caller, key: str, query: ListQuery) -> Page[PipelineVersion]:
        """Return the versions of a definition, the newest first."""
        row = await self.find(caller, key)
        query = replace(query, limit=min(query.limit, MAX_VERSIONS_PER_PAGE))
        return await self._store.versions(row.id, query)

    async def validate(self, caller: Caller, definition: str) -> PipelineCheck:
        """Return the problem of a definition with its line, or its tasks; nothing is stored."""
        authorizer.require(caller, "pipeline.write")
        try:
            parsed = await self.parse(definition)
        except InvalidRequest as error:
            return PipelineCheck(
                is_valid=False,
                problem=error.message,
                problem_coded=error.text.as_json(),
                line=error.details.get("line"),
                name="",
                parameters=[],
                tasks=[],
            )
        return PipelineCheck(
            is_valid=True,
            problem="",
            problem_coded=None,
            line=None,
            name=parsed.name,
            parameters=_parameters(parsed.parameters),
            tasks=_tasks(parsed),
        )

    def schema(self, caller: Caller) -> PipelineSchema:
        """Return the JSON schema of definitions."""
        authorizer.require(caller, "pipeline.read")
        return PipelineSchema(json_schema=PIPELINE_SCHEMA)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Pipeline:
        """Create a pipeline of the caller or, with ``is_project_owned``, of the project; also
        create its folder unless the definition names one.

        Raises
        ------
        InvalidRequest
            If the definition is not valid; the details contain the line.
        AlreadyExists
            If the owner has a pipeline with that name.
        QuotaExceeded
            If the owner has too many pipelines or folders.
        Forbidden
            If the caller may not create pipelines of the project.
        """
        authorizer.require(caller, "pipeline.write")
        definition = await self.parse(spec["definition"])
        ownership = await self.ownership(caller, spec)
        pipeline_id, now = str(uuid.uuid4()), self._clock()
        values = {
            "id": pipeline_id,
            "created_at": now,
            "version": 1,
            "scope": ownership.scope,
            "owner_id": ownership.owner_id,
            "project_id": ownership.project_id,
            **self._values(caller, spec["definition"], definition),
        }
        entry = self._audit.entry(
            caller,
            "pipeline.create",
            pipeline_id,
            domain=ownership.domain,
            owner_id=ownership.owner_id,
            name=definition.name,
            project=ownership.project,
        )
        project_id = ownership.project_id if ownership.owner_id is None else None
        folder_id = await self._folder(caller, definition, project_id)
        is_new_folder = folder_id is None
        if folder_id is None:
            folder_id = await self._create_folder(caller, definition.name, pipeline_id, project_id)
        try:
            await self._store.create({**values, "vfolder_id": folder_id}, entry)
        except BaiError:
            if is_new_folder:
                await self._folders.trash(caller, folder_id)
            raise
        return await self.get(caller, pipeline_id)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Pipeline:
        """Replace the definition of a pipeline; existing runs keep their own.

        If ``changes`` contains ``version``, it must be the current version.

        Raises
        ------
        InvalidRequest
            If the definition is not valid; the details contain the line.
        Conflict
            If the pipeline has another version.
        """
        row = await self.find(caller, key)
        require(caller, "write", row)
        definition = await self.parse(changes["definition"])
        values = self._values(caller, changes["definition"], definition)
        project_id = row.project_id if row.owner_id is None else None
        folder_id = await self._folder(caller, definition, project_id)
        is_new_folder = folder_id is None and row.vfolder_id is None
        if is_new_folder:
            folder_id = await self._create_folder(caller, definition.name, row.id, project_id)
        if folder_id is not None:
            values["vfolder_id"] = folder_id
        version = changes.get("version") or row.version
        entry = self._entry(caller, "update", row, version=version + 1)
        try:
            await self._store.update(row, version, values, entry)
        except BaiError:
            if is_new_folder and folder_id is not None:
                await self._folders.trash(caller, folder_id)
            raise
        return await self.get(caller, row.id)

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a pipeline with its ended runs; its folder remains.

        Raises
        ------
        InUse
            If a run has not ended.
        """
        row = await self.find(caller, key)
        require(caller, "delete", row)
        await self._store.delete(row, self._entry(caller, "delete", row))

    async def find(self, caller: Caller, key: str) -> PipelineRow:
        reader = reader_of(caller)
        if "\0" in key:
            raise no_pipeline(key)
        return await self._store.find(key, reader)

    async def require_trusted_files(self, caller: Caller, row: PipelineRow) -> None:
        """Raise ``Forbidden`` if users with a lower role may change the files that the tasks of a
        project's pipeline execute with the permissions of the caller.
        """
        if row.owner_id is None and row.vfolder_id is not None:
            writers = await self._store.writer_roles(row.vfolder_id)
            require_trusted_files(caller, row, writers)

    async def ownership(self, caller: Caller, spec: Mapping[str, Any]) -> Ownership:
        """Return who owns a new pipeline or template; raise ``Forbidden`` if the caller may not
        create it.
        """
        if not spec.get("is_project_owned"):
            found = await self._options.project_of(caller, spec.get("project"))
            scope, owner_id = f"user:{caller.user_id}", caller.user_id
            return Ownership(scope, owner_id, found.id, found.name, found.domain)
        if not spec.get("project"):
            raise InvalidRequest(refusal(RefusalText.PROJECT_REQUIRED), field="project")
        project = await self._projects.get(caller, spec["project"])
        target = Target(project.domain, project.id)
        authorizer.require(caller, "project-pipeline.write", target)
        scope = f"project:{project.id}"
        return Ownership(scope, None, project.id, project.name, project.domain)

    async def convert(
        self, caller: Caller, text: str, name: str, target: Format
    ) -> ConvertedPipeline:
        """Return a pipeline in another format; nothing is stored.

        ``name``: the name of the pipeline if the text contains none.

        Raises
        ------
        InvalidRequest
            If the text is not valid, or has features that the target format does not have.
        """
        authorizer.require(caller, "pipeline.write")
        async with self._parser:
            return ConvertedPipeline(text=await asyncio.to_thread(convert, text, name, target))

    async def parse(self, text: str) -> PipelineDefinition:
        """Return the parsed definition; raise ``InvalidRequest`` if it is not valid."""
        async with self._parser:
            return await asyncio.to_thread(parse_pipeline, text)

    def _values(self, caller: Caller, text: str, definition: PipelineDefinition) -> dict[str, Any]:
        return {
            "changed_at": self._clock(),
            "author_role": caller.role,
            "name": definition.name,
            "description": definition.description,
            "definition": text,
            "parsed": definition.as_json(),
            "tasks": len(definition.tasks),
            "max_concurrent_runs": definition.max_concurrent_runs,
        }

    async def _folder(
        self, caller: Caller, definition: PipelineDefinition, project_id: str | None
    ) -> str | None:
        """Return the id of the folder that the definition names; None if it names none.

        ``project_id``: the project that owns the pipeline; all members must see the folder.
        """
        if not definition.folder:
            return None
        folder = await self._folders.get(caller, definition.folder)
        if project_id is not None and folder.project_id != project_id:
            raise InvalidRequest(
                refusal(RefusalText.FOLDER_OF_OTHER_PROJECT, name=folder.name),
                field="definition",
            )
        return folder.id

    async def _create_folder(
        self, caller: Caller, name: str, pipeline_id: str, project_id: str | None
    ) -> str:
        short = name[:_FOLDER_NAME_CHARACTERS].rstrip("-.")
        made = await self._folders.create(
            caller,
            {
                "name": f"pipeline-{short}-{pipeline_id[:_ID_CHARACTERS]}",
                "usage_mode": UsageMode.DATA,
                "project": project_id,
            },
        )
        return made.id

    def _entry(self, caller: Caller, verb: str, row: PipelineRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"pipeline.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **details,
        )


def _record(caller: Caller, row: PipelineRow, definition: str) -> Pipeline:
    values = fields_of(row)
    for name in ("owner_role", "author_role", "parsed", "max_concurrent_runs", "vfolder_id"):
        del values[name]
    values |= {
        "can_write": can_write(caller, row),
        "definition": definition,
        "folder": row.vfolder_id,
        "parameters": _parameters(parameters_from_json(row.parsed["parameters"])),
    }
    return Pipeline(**values)


def _parameters(parameters: Sequence[Parameter]) -> list[PipelineParameter]:
    return [PipelineParameter(**fields_of(each)) for each in parameters]


def _tasks(definition: PipelineDefinition) -> list[PipelineTask]:
    return [
        PipelineTask(name=task.name, kind=task.kind, needs=task.needs, run_if=task.run_if)
        for task in definition.tasks
    ]
