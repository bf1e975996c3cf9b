"""Create, read, change and delete schedules of pipelines."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Forbidden
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.pipelines.records import PipelineSchedule
from bai_services.core.pipelines.schedules import CatchUp, Timing
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.schedules.records import SHOWN_STARTS
from bai_services.db.pipelines.schedules import PipelineScheduleRow, PipelineScheduleStore

from ..accounts import authorizer
from ..context import ManagerContext
from .access import check_parameters, require
from .pipelines import Pipelines

# After a change of one of these fields, the next start is computed from the current time.
_TIMING_FIELDS = frozenset({"start", "every_minutes", "time_zone"})
_NULLABLE = frozenset({"start", "every_minutes"})


class PipelineSchedules:
    """Manages schedules.

    Users who may run a pipeline may create schedules for it. Only the owner may change a schedule;
    administrators may also pause or delete it.

    ``key`` is the id of a schedule.
    """

    def __init__(
        self, context: ManagerContext, store: PipelineScheduleStore, pipelines: Pipelines
    ) -> None:
        self._store = store
        self._pipelines = pipelines
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[PipelineSchedule]:
        page = await self._store.page(query, authorizer.visibility(caller, "pipeline.read"))
        return page.with_items([_record(row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> PipelineSchedule:
        return _record(await self._find(caller, key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> PipelineSchedule:
        """Create a schedule of the pipeline with the id or name ``pipeline``.

        Raises
        ------
        InvalidRequest
            If the times or the parameters are not valid.
        AlreadyExists
            If the pipeline has a schedule with that name.
        QuotaExceeded
            If the pipeline has too many schedules.
        """
        pipeline = await self._pipelines.find(caller, spec["pipeline"])
        require(caller, "run", pipeline)
        await self._pipelines.require_trusted_files(caller, pipeline)
        now = self._clock()
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "pipeline_id": pipeline.id,
            "owner_id": caller.user_id,
            "name": check_slug("schedule", spec["name"]),
            "start": spec.get("start"),
            "every_minutes": spec.get("every_minutes"),
            "time_zone": spec.get("time_zone", "UTC"),
            "anchor_at": now,
            "parameters": spec.get("parameters", {}),
            "catch_up": CatchUp(spec.get("catch_up", CatchUp.LAST)),
            "is_paused": spec.get("is_paused", False),
            "last_message": "",
        }
        timing = _timing(values)
        timing.check()
        check_parameters(pipeline, values["parameters"])
        values["next_start_at"] = None if values["is_paused"] else timing.next_start(now)
        entry = self._audit.entry(
            caller,
            "pipeline.create-schedule",
            values["id"],
            domain=pipeline.domain,
            owner_id=caller.user_id,
            name=values["name"],
            pipeline=pipeline.name,
        )
        await self._store.create(pipeline.name, values, entry)
        return await self.get(caller, values["id"])

    async def update(
        self, caller: Caller, key: str, changes: Mapping[str, Any]
    ) -> PipelineSchedule:
        """Change a schedule; if ``version`` is given, it must be the current version.

        Raises
        ------
        InvalidRequest
            If the times or the parameters are not valid.
        Conflict
            If the schedule has another version.
        Forbidden
            If the caller is not the owner, and changes more than ``is_paused``.
        """
        row = await self._find(caller, key)
        values = {
            name: value
            for name, value in changes.items()
            if name != "version" and (value is not None or name in _NULLABLE)
        }
        authorizer.require(caller, "pipeline.manage", _target(row))
        if values.keys() - {"is_paused"} and row.owner_id != caller.user_id:
            raise Forbidden(
                refusal(RefusalText.SCHEDULE_OF_OTHER),
                action="pipeline.manage",
            )
        now = self._clock()
        if "name" in values:
            check_slug("schedule", values["name"])
        if values.keys() & _TIMING_FIELDS:
            values["anchor_at"] = now
        after = {**fields_of(row), **values}
        timing = _timing(after)
        timing.check()
        if "parameters" in values:
            pipeline = await self._pipelines.find(caller, row.pipeline_id)
            check_parameters(pipeline, values["parameters"])
        if values.keys() & {*_TIMING_FIELDS, "is_paused"}:
            values["next_start_at"] = None if after["is_paused"] else timing.next_start(now)
        details = self._audit.changes(fields_of(row), values)
        entry = self._entry(caller, "change-schedule", row, **details)
        version = changes.get("version") or row.version
        await self._store.update(row, version, values, entry)
        return await self.get(caller, row.id)

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a schedule; the runs that it has created continue."""
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.manage", _target(row))
        await self._store.delete(row.id, self._entry(caller, "delete-schedule", row))

    async def _find(self, caller: Caller, key: str) -> PipelineScheduleRow:
        visible = authorizer.visibility(caller, "pipeline.read")
        return await self._store.find("" if "\0" in key else key, visible)

    def _entry(
        self, caller: Caller, verb: str, row: PipelineScheduleRow, **details: Any
    ) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"pipeline.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            **{"name": row.name, "pipeline": row.pipeline, **details},
        )


def _timing(values: Mapping[str, Any]) -> Timing:
    return Timing(
        values["start"], values["every_minutes"], values["time_zone"], values["anchor_at"]
    )


def _record(row: PipelineScheduleRow) -> PipelineSchedule:
    values = fields_of(row)
    for name in ("project_id", "owner_role", "anchor_at", "next_start_at"):
        del values[name]
    first = row.next_start_at
    starts = [] if first is None else row.timing.next_starts(first, SHOWN_STARTS)
    return PipelineSchedule(**values, next_starts=starts)


def _target(row: PipelineScheduleRow) -> Target:
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))
