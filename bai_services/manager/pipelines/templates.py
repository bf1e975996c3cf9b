"""Templates of pipelines: built-in templates, and templates that users save."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Conflict, NotFound
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.records import PipelineTemplate
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.pipelines.templates import PipelineTemplateRow, PipelineTemplateStore

from ..accounts import authorizer
from ..context import ManagerContext
from .access import reader_of
from .pipelines import Pipelines

_FIELDS = (
    "id", "name", "description", "tasks", "is_builtin", "owner", "owner_id", "project",
    "project_id", "domain", "created_at",
)  # fmt: skip


@functools.cache
def built_in_templates() -> Sequence[PipelineTemplate]:
    """Return the built-in templates, sorted by name. They are parsed once per process."""
    folder = files(__package__).joinpath("built_in")
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".yaml")]
    parsed = [(parse_pipeline(text), text) for text in texts]
    return tuple(
        PipelineTemplate(
            id=definition.name,
            created_at=None,
            name=definition.name,
            description=definition.description,
            is_builtin=True,
            domain=None,
            project=None,
            project_id=None,
            owner=None,
            owner_id=None,
            can_delete=False,
            tasks=len(definition.tasks),
            definition=text,
        )
        for definition, text in sorted(parsed, key=lambda each: each[0].name)
    )


class PipelineTemplates:
    """Manages templates.

    Users save their own templates. Administrators save project templates, which all members of
    the project see.

    ``key`` is an id, or the name of a template that the caller sees.
    """

    def __init__(
        self, context: ManagerContext, store: PipelineTemplateStore, pipelines: Pipelines
    ) -> None:
        self._store = store
        self._pipelines = pipelines
        self._clock = context.clock
        self._audit = context.audit
        self._built_in = built_in_templates()

    async def page(self, caller: Caller, query: ListQuery) -> Page[PipelineTemplate]:
        """Return a page of templates, without definitions."""
        found = [replace(each, definition="") for each in await self._visible(caller)]
        return page_of(found, query, _FIELDS)

    async def get(self, caller: Caller, key: str) -> PipelineTemplate:
        """Return a template with its definition.

        If several templates have the name, the caller's own takes precedence.

        Raises
        ------
        NotFound
            If the caller sees no such template.
        """
        visible = await self._visible(caller)
        by_id = [each for each in visible if each.id == key]
        own = [each for each in visible if each.name == key and each.owner_id == caller.user_id]
        others = [each for each in visible if each.name == key]
        for each in (*own, *by_id, *others):
            if each.is_builtin:
                return each
            return replace(each, definition=await self._store.definition(each.id))
        raise NotFound(refusal(RefusalText.NO_TEMPLATE, name=key), template=key)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> PipelineTemplate:
        """Save a template of the caller or, with ``is_project_owned``, of the project.

        Raises
        ------
        InvalidRequest
            If the definition is not valid; the error details contain the line number.
        AlreadyExists
            If the owner has a template with that name.
        QuotaExceeded
            If the owner has too many templates.
        Forbidden
            If the caller may not create templates of the project.
        """
        authorizer.require(caller, "pipeline.write")
        definition = await self._pipelines.parse(spec["definition"])
        ownership = await self._pipelines.ownership(caller, spec)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "scope": ownership.scope,
            "owner_id": ownership.owner_id,
            "project_id": ownership.project_id,
            "name": definition.name,
            "description": definition.description,
            "definition": spec["definition"],
            "tasks": len(definition.tasks),
        }
        entry = self._audit.entry(
            caller,
            "pipeline.save-template",
            values["id"],
            domain=ownership.domain,
            owner_id=ownership.owner_id,
            name=definition.name,
            project=ownership.project,
        )
        await self._store.create(values, entry)
        return await self.get(caller, str(values["id"]))

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a template; pipelines that were created from it remain.

        Raises
        ------
        Conflict
            If the template is built in.
        """
        found = await self.get(caller, key)
        if found.is_builtin:
            raise Conflict(refusal(RefusalText.TEMPLATE_BUILT_IN, name=found.name))
        rows = {row.id: row for row in await self._store.visible(reader_of(caller))}
        row = rows.get(found.id)
        if row is None:
            return  # Another request has deleted it.
        authorizer.require(caller, _delete_action(row), _target(row))
        await self._store.delete(row.id, self._entry(caller, row))

    async def _visible(self, caller: Caller) -> list[PipelineTemplate]:
        rows = await self._store.visible(reader_of(caller))
        return [*self._built_in, *(_record(caller, row) for row in rows)]

    def _entry(self, caller: Caller, row: PipelineTemplateRow) -> AuditEntry:
        return self._audit.entry(
            caller,
            "pipeline.delete-template",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
        )


def _record(caller: Caller, row: PipelineTemplateRow) -> PipelineTemplate:
    values = fields_of(row)
    del values["owner_role"]
    can_delete = reaches(caller, _delete_action(row), _target(row))
    return PipelineTemplate(**values, is_builtin=False, can_delete=can_delete, definition="")


def _delete_action(row: PipelineTemplateRow) -> str:
    return "project-pipeline.write" if row.owner_id is None else "pipeline.manage"


def _target(row: PipelineTemplateRow) -> Target:
    if row.owner_id is None or row.owner_role is None:
        return Target(row.domain, row.project_id)
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))
