"""Create, read, change and delete schedules."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import Forbidden, InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.periods import require_not_past
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.rules import check_session_name
from bai_services.core.sessions.schedules.occurrences import next_occurrences
from bai_services.core.sessions.schedules.records import (
    DEFAULT_CATCH_UP_MINUTES,
    SHOWN_STARTS,
    Overlap,
    Schedule,
    ScheduleRun,
)
from bai_services.core.sessions.schedules.rules import parse_rule
from bai_services.core.sessions.spec import PRIVATE_FIELDS, spec_of
from bai_services.core.usage.periods import zone_of
from bai_services.db.sessions.schedules.runs import ScheduleRunStore
from bai_services.db.sessions.schedules.schedules import ScheduleRow, ScheduleStore, no_schedule

from ...accounts import authorizer
from ...context import ManagerContext
from ..requests.options import Options
from ..requests.templates import Templates, check_stored_request
from .times import next_start, stop_after

# A change of one of these fields recomputes the next start.
_TIMES = frozenset({"start", "time_zone", "valid_from", "valid_until", "is_paused"})
_NULLABLE = frozenset({"template", "stop", "valid_from", "valid_until"})


class Schedules:
    """Manages schedules. Only the owner defines a schedule; administrators may pause and delete it.

    ``key`` is an id, or the name of a schedule of the caller.
    """

    def __init__(self, context: ManagerContext, templates: Templates, options: Options) -> None:
        self._store = ScheduleStore(context.database)
        self._runs = ScheduleRunStore(context.database)
        self._templates = templates
        self._options = options
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Schedule]:
        page = await self._store.page(query, authorizer.visibility(caller, "schedule.read"))
        return page.with_items([self._record(caller, row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> Schedule:
        return self._record(caller, await self._find(caller, key))

    async def runs(self, caller: Caller, key: str, query: ListQuery) -> Page[ScheduleRun]:
        """Return the runs of a schedule, the newest first."""
        row = await self._find(caller, key)
        return await self._store.runs(row.id, query)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Schedule:
        """Create a schedule of the caller.

        Raises
        ------
        InvalidRequest
            If a rule, the time zone, the period or the request is not valid, or the caller has no
            project.
        NotFound
            If the caller may not use the template, project or resource group.
        AlreadyExists
            If the caller has a schedule with that name.
        QuotaExceeded
            If the caller's policy allows no more schedules.
        """
        authorizer.require(caller, "schedule.write")
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "owner_id": caller.user_id,
            "name": check_session_name(spec["name"]),
            "template": spec.get("template") or None,
            "request": spec.get("request") or {},
            "start": spec["start"],
            "stop": spec.get("stop") or None,
            "time_zone": spec.get("time_zone", "UTC"),
            "valid_from": spec.get("valid_from"),
            "valid_until": spec.get("valid_until"),
            "is_paused": spec.get("is_paused", False),
            "catch_up_minutes": spec.get("catch_up_minutes", DEFAULT_CATCH_UP_MINUTES),
            "overlap": Overlap(spec.get("overlap", Overlap.SKIP)),
        }
        await self._check(caller, values)
        require_not_past(values["valid_until"], self._clock(), "valid_until")
        values["next_start_at"] = next_start(values, self._clock())
        entry = self._audit.entry(
            caller,
            "schedule.create",
            values["id"],
            domain=caller.domain,
            owner_id=caller.user_id,
            name=values["name"],
        )
        return self._record(caller, await self._store.create(values, entry))

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Schedule:
        """Change a schedule.

        If ``changes`` contains ``version``, it must be the current version. A new ``stop``
        also applies to the sessions that the schedule has started.

        Raises
        ------
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
        self._require_change(caller, row, values)
        after = {**fields_of(row), **values}
        if values.keys() - {"is_paused"}:
            check_session_name(after["name"])
            await self._check(caller, after)
        now = self._clock()
        if after["valid_until"] != row.valid_until:
            require_not_past(after["valid_until"], now, "valid_until")
        if values.keys() & _TIMES:
            values["next_start_at"] = next_start(after, now)
        stops: dict[str, datetime | None] = {}
        if values.keys() & {"stop", "time_zone"}:
            due = await self._runs.started(row.id)
            stops = {run_id: stop_after(after, max(at, now)) for run_id, at in due.items()}
        details = self._audit.changes(fields_of(row), _public(values))
        entry = self._entry(caller, "update", row, **details)
        version = changes.get("version") or row.version
        changed = await self._store.update(row.id, version, values, entry, stops_at=stops)
        return self._record(caller, changed)

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a schedule; the sessions that it has started continue without a stop."""
        row = await self._find(caller, key)
        authorizer.require(caller, "schedule.pause", _target(row))
        await self._store.delete(row.id, self._entry(caller, "delete", row))

    async def _find(self, caller: Caller, key: str) -> ScheduleRow:
        visible = authorizer.visibility(caller, "schedule.read")
        if "\0" in key:
            raise no_schedule(key)
        return await self._store.find(key, visible, caller.user_id)

    def _require_change(self, caller: Caller, row: ScheduleRow, values: Mapping[str, Any]) -> None:
        authorizer.require(caller, "schedule.pause", _target(row))
        if values.keys() - {"is_paused"} and row.owner_id != caller.user_id:
            raise Forbidden(
                "only the owner may change a schedule; administrators may pause or delete it",
                action="schedule.write",
            )

    async def _check(self, caller: Caller, values: Mapping[str, Any]) -> None:
        check_stored_request(values["request"], "schedule")
        zone_of(values["time_zone"])
        parse_rule(values["start"], "start")
        if values["stop"] is not None:
            parse_rule(values["stop"], "stop")
        start, end = values["valid_from"], values["valid_until"]
        if start is not None and end is not None and end <= start:
            raise InvalidRequest("valid_until must be after valid_from", field="valid_until")
        request = dict(values["request"])
        if name := request.get("name"):
            check_session_name(name)
        if values["template"] is not None:
            request = await self._templates.apply(caller, values["template"], request)
        spec = spec_of({**request, "name": values["name"]})
        await self._options.check_target(caller, spec)

    def _record(self, caller: Caller, row: ScheduleRow) -> Schedule:
        hidden = []
        if row.owner_id != caller.user_id:
            hidden = sorted(PRIVATE_FIELDS & set(row.request))
        values = fields_of(row)
        for name in ("owner_role", "next_start_at", "last_run_reason"):
            del values[name]
        request = {name: value for name, value in row.request.items() if name not in hidden}
        reason = row.last_run_reason
        return Schedule(
            **{
                **values,
                "request": request,
                "overlap": Overlap(row.overlap),
                "next_starts": _next_starts(row),
                "last_reason": "" if reason is None else str(CodedText.from_json(reason)),
                "hidden_fields": hidden,
            }
        )

    def _entry(self, caller: Caller, verb: str, row: ScheduleRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"schedule.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **details,
        )


def _next_starts(row: ScheduleRow) -> list[datetime]:
    if row.next_start_at is None:
        return []
    rule, zone = parse_rule(row.start, "start"), zone_of(row.time_zone)
    later = next_occurrences(rule, zone, row.next_start_at, SHOWN_STARTS - 1)
    end = row.valid_until
    return [row.next_start_at, *(at for at in later if end is None or at < end)]


def _public(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without the request, which may contain secrets of the owner."""
    return {name: value for name, value in values.items() if name != "request"}


def _target(row: ScheduleRow) -> Target:
    return Target(domain=row.domain, owner=Owner(row.owner_id, row.owner_role))
