"""Queries for rows that belong to a pipeline, such as schedules and triggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, QuotaExceeded
from bai_services.core.refusal_texts import RefusalText

from ..integrity import raise_on_violation
from ..listing import Listing
from ..tables.accounts import projects, users
from ..tables.pipelines import pipelines
from .definitions import no_pipeline

# Texts by the kind of a row.
_EXISTS = {"schedule": RefusalText.SCHEDULE_EXISTS, "trigger": RefusalText.TRIGGER_EXISTS}
_TOO_MANY = {"schedule": RefusalText.TOO_MANY_SCHEDULES, "trigger": RefusalText.TOO_MANY_TRIGGERS}


def select_with_pipeline(table: sa.Table) -> sa.Select[Any]:
    """Select all columns of ``table`` with the pipeline and its project, and with the owner."""
    return (
        sa.select(
            *table.columns,
            pipelines.c.name.label("pipeline"),
            pipelines.c.project_id,
            users.c.username.label("owner"),
            users.c.role.label("owner_role"),
            projects.c.domain,
            projects.c.name.label("project"),
        )
        .join_from(table, pipelines, table.c.pipeline_id == pipelines.c.id)
        .join(users, table.c.owner_id == users.c.id)
        .join(projects, pipelines.c.project_id == projects.c.id)
    )


def listing_with_pipeline(table: sa.Table, names: Sequence[str]) -> Listing:
    """Return the listing for ``select_with_pipeline``; ``names`` are the columns of ``table`` to
    list.
    """
    return Listing(
        columns={
            **{name: table.c[name] for name in names},
            "pipeline": pipelines.c.name,
            "owner_id": table.c.owner_id,
            "owner": users.c.username,
            "project": projects.c.name,
            "domain": projects.c.domain,
        },
        default_sort=("pipeline", "name", "id"),
    )


async def insert_with_limit(
    tx: AsyncConnection,
    table: sa.Table,
    pipeline: str,
    values: Mapping[str, Any],
    *,
    kind: str,
    limit: int,
) -> None:
    """Insert a row for the pipeline named ``pipeline``; a pipeline has at most ``limit`` rows.

    ``kind``: "schedule" or "trigger".

    Raises
    ------
    AlreadyExists
        If the pipeline has a row with that name.
    QuotaExceeded
        If the pipeline has too many rows.
    NotFound
        If the pipeline no longer exists.
    """
    pipeline_id = values["pipeline_id"]
    locked = await tx.scalar(
        sa.select(pipelines.c.id).where(pipelines.c.id == pipeline_id).with_for_update()
    )
    if locked is None:
        raise no_pipeline(pipeline)
    count = await tx.scalar(
        sa.select(sa.func.count()).select_from(table).where(table.c.pipeline_id == pipeline_id)
    )
    if int(count or 0) >= limit:
        raise QuotaExceeded(refusal(_TOO_MANY[kind], name=pipeline, limit=limit), limit=limit)
    with raise_on_violation(name_taken(kind, values["name"])):
        await tx.execute(table.insert().values(values))


def name_taken(kind: str, name: str) -> AlreadyExists:
    return AlreadyExists(refusal(_EXISTS[kind], name=name), name=name)
