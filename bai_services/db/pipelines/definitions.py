"""Store of pipelines and of the versions of their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, Conflict, NotFound, QuotaExceeded
from bai_services.core.folders.vfolders import Permission, VfolderStatus
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.records import (
    MAX_PIPELINES_PER_SCOPE,
    MAX_VERSIONS,
    PipelineVersion,
)
from bai_services.core.pipelines.states import RUN_ENDED, RunStatus
from bai_services.core.refusal_texts import RefusalText

from ..accounts.user_domains import lock_active
from ..accounts.visibility import visible_rows
from ..audit import record
from ..database import Database
from ..integrity import delete_unused, raise_on_violation, update_version
from ..listing import Listing
from ..records import records
from ..tables.accounts import memberships, projects, users
from ..tables.folders import vfolder_grants, vfolders
from ..tables.pipelines import pipeline_runs, pipeline_versions, pipelines

OPEN_RUNS = sorted(set(RunStatus) - RUN_ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRow:
    """A pipeline with its owner and its last run. Without an owner, it belongs to its project.

    ``author_role``: role of the user who has saved the definition.
    """

    id: str
    created_at: datetime
    version: int
    changed_at: datetime
    owner_id: str | None
    author_role: Role
    project_id: str
    name: str
    description: str
    vfolder_id: str | None
    definition: str
    parsed: Mapping[str, Any]
    tasks: int
    max_concurrent_runs: int
    owner: str | None
    owner_role: Role | None
    domain: str
    project: str
    last_run_id: str | None
    last_run_status: RunStatus | None
    last_run_at: datetime | None


# Statuses of folders whose files are deleted, or will be; the rows of these folders remain.
_REMOVED = (
    VfolderStatus.DELETE_ONGOING,
    VfolderStatus.DELETE_COMPLETE,
    VfolderStatus.DELETE_ERROR,
)
# The folder of a pipeline; NULL if the folder was removed.
FOLDER_ID = (
    sa.select(vfolders.c.id)
    .where(vfolders.c.id == pipelines.c.vfolder_id, vfolders.c.status.not_in(_REMOVED))
    .correlate(pipelines)
    .scalar_subquery()
    .label("vfolder_id")
)
_WRITABLE = sorted(each for each in Permission if each.is_writable)
_LARGE = ("definition", "parsed")


def _rows(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return (
        sa.select(
            *columns,
            FOLDER_ID,
            users.c.username.label("owner"),
            users.c.role.label("owner_role"),
            projects.c.domain,
            projects.c.name.label("project"),
            pipeline_runs.c.status.label("last_run_status"),
            pipeline_runs.c.created_at.label("last_run_at"),
        )
        .outerjoin_from(pipelines, users, pipelines.c.owner_id == users.c.id)
        .join(projects, pipelines.c.project_id == projects.c.id)
        .outerjoin(pipeline_runs, pipelines.c.last_run_id == pipeline_runs.c.id)
    )


_COLUMNS = [
    column for column in pipelines.columns if column.name not in ("scope", "vfolder_id", *_LARGE)
]
_ROWS = _rows(*_COLUMNS, *(pipelines.c[name] for name in _LARGE))
# A page must not read definitions, because each may have 1 MiB.
_PAGE_ROWS = _rows(*_COLUMNS, pipelines.c.parsed["parameters"].label("parameters"))
_LISTING = Listing(
    columns={
        **{
            name: pipelines.c[name]
            for name in (
                "id", "created_at", "changed_at", "owner_id", "project_id", "name", "description",
                "tasks", "version",
            )
        },
        "owner": users.c.username,
        "domain": projects.c.domain,
        "project": projects.c.name,
        "last_run_status": pipeline_runs.c.status,
        "last_run_at": pipeline_runs.c.created_at,
    },
    default_sort=("name", "id"),
)  # fmt: skip
_VERSION_LISTING = Listing(
    columns={name: pipeline_versions.c[name] for name in ("version", "created_at")},
    default_sort=("-version",),
)


@dataclass(frozen=True, slots=True)
class PipelineReader:
    """The caller who reads pipelines, and the pipelines that the caller may read.

    ``visible`` restricts the owners; ``project_ids`` are projects whose own pipelines the caller
    may read.
    """

    user_id: str | None
    visible: Visibility
    project_ids: frozenset[str]

    def condition(self, owner_id: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Return the condition for rows of a user; ``owner_id`` is the column with its id."""
        return is_visible(self.visible, owner_id) | self.is_of_project()

    def is_of_project(self) -> sa.ColumnElement[bool]:
        """Return the condition that a pipeline belongs to a project of the caller."""
        in_project = pipelines.c.project_id.in_(sorted(self.project_ids))
        return pipelines.c.owner_id.is_(None) & in_project


class PipelineStore:
    """Reads and writes pipelines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, reader: PipelineReader) -> Page[PipelineRow]:
        """Return a page of pipelines; their definitions contain only the parameters."""
        async with self._db.read() as tx:
            rows = _PAGE_ROWS.where(reader.condition(pipelines.c.owner_id))
            return await _LISTING.page(tx, rows, query, _page_row)

    async def find(self, key: str, reader: PipelineReader) -> PipelineRow:
        """Return the visible pipeline with the id ``key``. If there is none, ``key`` is a name: the
        caller's own pipelines come first, then those of the caller's projects.

        Raises
        ------
        NotFound
            If no visible pipeline matches.
        Conflict
            If several projects have a pipeline of this name.
        """
        is_own = (pipelines.c.owner_id == reader.user_id) | reader.is_of_project()
        matching = _ROWS.where(
            reader.condition(pipelines.c.owner_id),
            (pipelines.c.id == key) | ((pipelines.c.name == key) & is_own),
        )
        order = (pipelines.c.id != key, pipelines.c.owner_id.is_(None))
        async with self._db.read() as tx:
            found = records(_row, await tx.execute(matching.order_by(*order).limit(2)))
        if not found:
            raise no_pipeline(key)
        first = found[0]
        if len(found) > 1 and first.id != key and first.owner_id is None:
            raise Conflict(
                refusal(RefusalText.PIPELINE_AMBIGUOUS, name=key),
                candidates=[row.id for row in found],
            )
        return first

    async def writer_roles(self, folder_id: str) -> frozenset[Role]:
        """Return the roles of the users who may change the files of a project's folder: members, if
        the folder is writable, and users with a writable grant.
        """
        has_grant = sa.exists().where(
            vfolder_grants.c.vfolder_id == vfolders.c.id, vfolder_grants.c.user_id == users.c.id
        )
        members = (
            sa.select(users.c.role)
            .join_from(vfolders, memberships, memberships.c.project_id == vfolders.c.project_id)
            .join(users, memberships.c.user_id == users.c.id)
            .where(vfolders.c.id == folder_id, vfolders.c.permission.in_(_WRITABLE), ~has_grant)
        )
        granted = (
            sa.select(users.c.role)
            .join_from(vfolder_grants, users, vfolder_grants.c.user_id == users.c.id)
            .where(
                vfolder_grants.c.vfolder_id == folder_id,
                vfolder_grants.c.permission.in_(_WRITABLE),
            )
        )
        async with self._db.read() as tx:
            return frozenset(map(Role, await tx.scalars(sa.union(members, granted))))

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a pipeline.

        Raises
        ------
        AlreadyExists
            If the owner or project has a pipeline with that name.
        QuotaExceeded
            If the owner or project has too many pipelines.
        Conflict
            If the owner is no longer active.
        """
        scope, owner_id = values["scope"], values["owner_id"]
        count = sa.select(sa.func.count()).select_from(pipelines).where(pipelines.c.scope == scope)
        async with self._db.write() as tx:
            if owner_id is None:
                project = projects.c.id == values["project_id"]
                await tx.execute(sa.select(projects.c.id).where(project).with_for_update())
            else:
                await lock_active(tx, owner_id)
            if int(await tx.scalar(count) or 0) >= MAX_PIPELINES_PER_SCOPE:
                too_many = (
                    RefusalText.PROJECT_TOO_MANY_PIPELINES
                    if owner_id is None
                    else RefusalText.TOO_MANY_PIPELINES
                )
                raise QuotaExceeded(
                    refusal(too_many, limit=MAX_PIPELINES_PER_SCOPE),
                    limit=MAX_PIPELINES_PER_SCOPE,
                )
            with raise_on_violation(_taken(values["name"], owner_id)):
                await tx.execute(pipelines.insert().values(values))
            await _add_version(tx, values["id"], 1, values["changed_at"], values["definition"])
            await record(tx, audit)

    async def update(
        self, row: PipelineRow, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> None:
        """Change a pipeline that has ``version``.

        Raises
        ------
        Conflict
            If the pipeline has another version.
        AlreadyExists
            If the owner or project has another pipeline with the new name.
        """
        async with self._db.write() as tx:
            with raise_on_violation(_taken(changes["name"], row.owner_id)):
                await update_version(tx, pipelines, row.id, version, changes)
            at, text = changes["changed_at"], changes["definition"]
            await _add_version(tx, row.id, version + 1, at, text)
            await record(tx, audit)

    async def delete(self, row: PipelineRow, audit: AuditEntry) -> None:
        """Delete a pipeline with its runs.

        Raises
        ------
        InUse
            If a run has not ended.
        """
        is_open = (pipeline_runs.c.pipeline_id == row.id) & pipeline_runs.c.status.in_(OPEN_RUNS)
        async with self._db.write() as tx:
            # Lock the pipeline, as the creation of a run does, so that no run is created during the
            # deletion.
            await tx.execute(
                sa.select(pipelines.c.id).where(pipelines.c.id == row.id).with_for_update()
            )
            await delete_unused(
                tx,
                f"pipeline {row.name}",
                (pipelines, pipelines.c.id == row.id),
                {"runs": is_open},
            )
            await record(tx, audit)

    async def versions(self, pipeline_id: str, query: ListQuery) -> Page[PipelineVersion]:
        """Return the versions of the definition of a pipeline, the newest first."""
        columns = [column for column in pipeline_versions.columns if column.name != "pipeline_id"]
        rows = sa.select(*columns).where(pipeline_versions.c.pipeline_id == pipeline_id)
        async with self._db.read() as tx:
            return await _VERSION_LISTING.page(tx, rows, query, PipelineVersion)


async def _add_version(
    tx: AsyncConnection, pipeline_id: str, version: int, now: datetime, definition: str
) -> None:
    values = {
        "pipeline_id": pipeline_id,
        "version": version,
        "created_at": now,
        "definition": definition,
    }
    await tx.execute(pipeline_versions.insert().values(values))
    is_old = pipeline_versions.c.version <= version - MAX_VERSIONS
    await tx.execute(
        sa.delete(pipeline_versions).where(pipeline_versions.c.pipeline_id == pipeline_id, is_old)
    )


def is_visible(visible: Visibility, owner_id: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition for visible rows; the select must join the projects of pipelines."""
    rows = visible_rows(visible, domain=projects.c.domain, owner_id=owner_id)
    return sa.and_(sa.true(), *rows)


def _row(
    *, author_role: str, owner_role: str | None, last_run_status: str | None, **columns: Any
) -> PipelineRow:
    return PipelineRow(
        author_role=Role(author_role),
        owner_role=None if owner_role is None else Role(owner_role),
        last_run_status=None if last_run_status is None else RunStatus(last_run_status),
        **columns,
    )


def _page_row(*, parameters: Any, **columns: Any) -> PipelineRow:
    return _row(definition="", parsed={"parameters": parameters}, **columns)


def no_pipeline(key: str) -> NotFound:
    return NotFound(refusal(RefusalText.NO_PIPELINE, name=key), pipeline=key)


def _taken(name: str, owner_id: str | None) -> AlreadyExists:
    exists = (
        RefusalText.PROJECT_PIPELINE_EXISTS if owner_id is None else RefusalText.PIPELINE_EXISTS
    )
    return AlreadyExists(refusal(exists, name=name), name=name)
