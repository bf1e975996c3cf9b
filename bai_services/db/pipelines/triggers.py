"""Store of the triggers of pipelines."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.definition import Value
from bai_services.core.pipelines.states import RUN_ENDED, RunStatus
from bai_services.core.pipelines.triggers import (
    MAX_FILE_TRIGGERS_PER_USER,
    MAX_TRIGGERS_PER_PIPELINE,
    RunResult,
    TriggerKind,
)
from bai_services.core.refusal_texts import RefusalText

from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..records import first_record, records
from ..tables.accounts import projects
from ..tables.folders import vfolders
from ..tables.pipelines import (
    pipeline_runs,
    pipeline_trigger_files,
    pipeline_triggers,
    pipelines,
)
from .attached import insert_with_limit, listing_with_pipeline, select_with_pipeline
from .definitions import PipelineReader, is_visible

# Maximum number of ended runs that one step reads; the next step reads the others.
BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTriggerRow:
    """A trigger with its pipeline, its owner, and the folder or pipeline that it watches."""

    id: str
    created_at: datetime
    pipeline_id: str
    name: str
    kind: TriggerKind
    vfolder_id: str | None
    folder: str | None
    pattern: str
    source_id: str | None
    source: str | None
    result: RunResult | None
    parameters: Mapping[str, Value]
    secret_encrypted: str = field(repr=False)
    is_enabled: bool
    last_call_at: datetime | None
    last_run_id: str | None
    last_message: str
    pipeline: str
    project_id: str
    project: str
    domain: str
    owner_id: str
    owner: str
    owner_role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run whose end fires triggers."""

    id: str
    pipeline_id: str
    status: RunStatus
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file of a trigger; ``run_id`` is None if the file is older than the trigger."""

    path: str
    run_id: str | None
    is_fired: bool


_sources = pipelines.alias("sources")
_ROWS = (
    select_with_pipeline(pipeline_triggers)
    .add_columns(vfolders.c.name.label("folder"), _sources.c.name.label("source"))
    .outerjoin(vfolders, pipeline_triggers.c.vfolder_id == vfolders.c.id)
    .outerjoin(_sources, pipeline_triggers.c.source_id == _sources.c.id)
)
_LISTING = listing_with_pipeline(
    pipeline_triggers,
    (
        "id", "created_at", "pipeline_id", "name", "kind", "pattern", "source_id", "is_enabled",
        "last_call_at", "last_run_id", "last_message",
    ),
)  # fmt: skip


class PipelineTriggerStore:
    """Reads and writes triggers of pipelines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[PipelineTriggerRow]:
        async with self._db.read() as tx:
            rows = _ROWS.where(is_visible(visible, pipeline_triggers.c.owner_id))
            return await _LISTING.page(tx, rows, query, _row)

    async def find(self, key: str, visible: Visibility) -> PipelineTriggerRow:
        """Return a visible trigger.

        Raises
        ------
        NotFound
            If no visible trigger has that id.
        """
        condition = is_visible(visible, pipeline_triggers.c.owner_id)
        rows = _ROWS.where(condition, pipeline_triggers.c.id == key)
        async with self._db.read() as tx:
            found = first_record(_row, await tx.execute(rows))
        if found is None:
            raise NotFound(refusal(RefusalText.NO_TRIGGER, name=key), trigger=key)
        return found

    async def create(
        self,
        pipeline: str,
        values: Mapping[str, Any],
        audit: AuditEntry,
        *,
        existing: Collection[str] = (),
    ) -> None:
        """Insert a trigger of the pipeline named ``pipeline``.

        The files with the paths ``existing`` do not fire it.

        Raises
        ------
        AlreadyExists
            If the pipeline has a trigger with that name.
        QuotaExceeded
            If the pipeline has too many triggers, or the owner too many triggers of files.
        NotFound
            If the pipeline no longer exists.
        Conflict
            If the owner is no longer active.
        """
        async with self._db.write() as tx:
            if values["kind"] == TriggerKind.FILE:
                await _check_file_triggers(tx, values["owner_id"])
            await insert_with_limit(
                tx,
                pipeline_triggers,
                pipeline,
                values,
                kind="trigger",
                limit=MAX_TRIGGERS_PER_PIPELINE,
            )
            await _add_files(tx, values["id"], dict.fromkeys(existing))
            await record(tx, audit)

    async def update(
        self,
        key: str,
        changes: Mapping[str, Any],
        audit: AuditEntry | None,
        *,
        existing: Collection[str] | None = None,
    ) -> None:
        """Change a trigger; changes by an event have no ``audit`` entry.

        ``existing``: paths of files that replace the known files, and do not fire the trigger.
        """
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(pipeline_triggers).where(pipeline_triggers.c.id == key).values(**changes)
            )
            if existing is not None and changed.rowcount:
                await tx.execute(sa.delete(pipeline_trigger_files).where(_is_of(key)))
                await _add_files(tx, key, dict.fromkeys(existing))
            if audit is not None:
                await record(tx, audit)

    async def delete(self, key: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(pipeline_triggers).where(pipeline_triggers.c.id == key))
            await record(tx, audit)

    async def followers(self) -> Mapping[str, Collection[str]]:
        """Return, for each pipeline, the ids of the pipelines that its runs trigger."""
        rows = sa.select(pipeline_triggers.c.source_id, pipeline_triggers.c.pipeline_id).where(
            pipeline_triggers.c.source_id.is_not(None)
        )
        found: dict[str, set[str]] = {}
        async with self._db.read() as tx:
            for source_id, pipeline_id in await tx.execute(rows):
                found.setdefault(source_id, set()).add(pipeline_id)
        return found

    async def visible_names(self, ids: Collection[str], reader: PipelineReader) -> dict[str, str]:
        """Return the names of those pipelines in ``ids`` that the caller may see, by id."""
        rows = (
            sa.select(pipelines.c.id, pipelines.c.name)
            .join(projects, pipelines.c.project_id == projects.c.id)
            .where(pipelines.c.id.in_(sorted(ids)), reader.condition(pipelines.c.owner_id))
        )
        async with self._db.read() as tx:
            return {key: name for key, name in await tx.execute(rows)}

    async def ended_runs(self) -> list[EndedRun]:
        """Return runs whose triggers have not been processed, the earliest end first."""
        runs = pipeline_runs.c
        rows = (
            sa.select(runs.id, runs.pipeline_id, runs.status, runs.ended_at)
            .where(runs.fires_triggers, runs.status.in_(sorted(RUN_ENDED)))
            .order_by(runs.ended_at, runs.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            return records(_ended_run, await tx.execute(rows))

    async def finish_end(self, run: EndedRun) -> None:
        """Record that the triggers fired by the end of a run were processed."""
        runs = pipeline_runs.c
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(pipeline_runs)
                # The run may have been resumed and have ended again; that end must still fire
                # triggers.
                .where(runs.id == run.id, runs.ended_at == run.ended_at)
                .values(fires_triggers=False)
            )

    async def following(self, pipeline_id: str) -> list[PipelineTriggerRow]:
        """Return the enabled triggers that the runs of a pipeline fire."""
        return await self._enabled(pipeline_triggers.c.source_id == pipeline_id)

    async def watching(self) -> list[PipelineTriggerRow]:
        """Return the enabled triggers that watch a folder."""
        return await self._enabled(pipeline_triggers.c.kind == TriggerKind.FILE)

    async def _enabled(self, condition: sa.ColumnElement[bool]) -> list[PipelineTriggerRow]:
        rows = _ROWS.where(condition, pipeline_triggers.c.is_enabled).order_by(
            pipeline_triggers.c.id
        )
        async with self._db.read() as tx:
            return records(_row, await tx.execute(rows))

    async def files(self, key: str) -> list[WatchedFile]:
        """Return the known files of a trigger."""
        files = pipeline_trigger_files.c
        rows = sa.select(files.path, files.run_id, files.is_fired).where(_is_of(key))
        async with self._db.read() as tx:
            return records(WatchedFile, await tx.execute(rows.order_by(files.path)))

    async def change_files(self, key: str, gone: Collection[str], new: Mapping[str, str]) -> None:
        """Delete the rows of removed files, and insert new files with the ids of their runs."""
        async with self._db.write() as tx:
            trigger = pipeline_triggers.c.id == key
            locked = sa.select(pipeline_triggers.c.id).where(trigger).with_for_update()
            if await tx.scalar(locked) is None:
                return
            hashes = pipeline_trigger_files.c.path_hash.in_(sorted(map(_hash, gone)))
            await tx.execute(sa.delete(pipeline_trigger_files).where(_is_of(key), hashes))
            await _add_files(tx, key, new)

    async def finish_file(self, key: str, path: str) -> None:
        """Record that a file has fired its trigger."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(pipeline_trigger_files)
                .where(_is_of(key), pipeline_trigger_files.c.path_hash == _hash(path))
                .values(is_fired=True)
            )


def _is_of(key: str) -> sa.ColumnElement[bool]:
    return pipeline_trigger_files.c.trigger_id == key


async def _add_files(tx: AsyncConnection, key: str, files: Mapping[str, str | None]) -> None:
    """Insert files with the ids of their runs; a file without a run counts as fired."""
    values = [
        {
            "trigger_id": key,
            "path_hash": _hash(path),
            "path": path,
            "run_id": run_id,
            "is_fired": run_id is None,
        }
        for path, run_id in files.items()
    ]
    if values:
        await tx.execute(pipeline_trigger_files.insert(), values)


def _hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


async def _check_file_triggers(tx: AsyncConnection, owner_id: str) -> None:
    # Of two concurrent requests, the second must count the trigger of the first.
    await lock_active(tx, owner_id)
    is_watching = pipeline_triggers.c.kind == TriggerKind.FILE
    count = await tx.scalar(
        sa.select(sa.func.count())
        .select_from(pipeline_triggers)
        .where(pipeline_triggers.c.owner_id == owner_id, is_watching)
    )
    if int(count or 0) >= MAX_FILE_TRIGGERS_PER_USER:
        raise QuotaExceeded(
            refusal(RefusalText.TOO_MANY_FILE_TRIGGERS, limit=MAX_FILE_TRIGGERS_PER_USER),
            limit=MAX_FILE_TRIGGERS_PER_USER,
        )


def _row(*, owner_role: str, kind: str, result: str, **columns: Any) -> PipelineTriggerRow:
    return PipelineTriggerRow(
        owner_role=Role(owner_role),
        kind=TriggerKind(kind),
        result=RunResult(result) if result else None,
        **columns,
    )


def _ended_run(*, status: str, **columns: Any) -> EndedRun:
    return EndedRun(status=RunStatus(status), **columns)
