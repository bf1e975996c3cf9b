"""Maintenance: periods in which sessions do not start or users can change nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.core.operations.maintenances import (
    CurrentMaintenance,
    Maintenance,
    Mode,
    Scope,
)
from bai_services.core.operations.periods import check_period, is_current, require_not_past
from bai_services.core.record_fields import fields_of
from bai_services.db.operations.maintenances import MaintenanceStore, no_maintenance

from ..accounts import authorizer
from ..context import ManagerContext
from .periods import new_values
from .read_only import WRITERS

_CURRENT_FIELDS = ("id", "scope", "target", "mode", "is_active", "rejects_changes")


class Maintenances:
    """Plans maintenance, and wakes the scheduler after a change."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = MaintenanceStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed: Callable[[], None] = context.capacity_changed
        self._read_only = context.read_only

    async def page(self, caller: Caller, query: ListQuery) -> Page[Maintenance]:
        authorizer.require(caller, "maintenance.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, key: str) -> Maintenance:
        authorizer.require(caller, "maintenance.read")
        return await self._find(key)

    async def current(self, caller: Caller, query: ListQuery) -> Page[CurrentMaintenance]:
        """Return the planned and active maintenances."""
        authorizer.require(caller, "maintenance.read-current")
        now = self._clock()
        items = [
            CurrentMaintenance(
                id=each.id,
                scope=Scope(each.scope),
                target=each.target,
                mode=Mode(each.mode),
                reason=each.reason,
                starts_at=each.starts_at,
                ends_at=each.ends_at,
                is_active=is_current(each, now),
                rejects_changes=(
                    each.mode == Mode.READ_ONLY
                    and is_current(each, now)
                    and caller.role not in WRITERS
                ),
            )
            for each in await self._store.current(now)
        ]
        return page_of(items, query, _CURRENT_FIELDS)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Maintenance:
        """Plan a maintenance; it starts now unless ``starts_at`` is given.

        Raises
        ------
        InvalidRequest
            If the target does not fit the scope, or the period or mode is not valid.
        """
        authorizer.require(caller, "maintenance.write")
        now = self._clock()
        scope, target = Scope(spec.get("scope", Scope.ALL)), spec.get("target") or None
        mode = Mode(spec.get("mode", Mode.DRAIN))
        if (scope is Scope.ALL) is not (target is None):
            noun = "no target" if scope is Scope.ALL else f"the {scope} as target"
            raise InvalidRequest(f"a maintenance with the scope {scope} has {noun}", field="target")
        if mode is Mode.READ_ONLY and scope is not Scope.ALL:
            raise InvalidRequest("read-only maintenance has the scope all", field="mode")
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "scope": scope,
            "target": target,
            "mode": mode,
            "reason": spec["reason"],
            "starts_at": spec.get("starts_at") or now,
            "ends_at": spec.get("ends_at"),
            "author": caller.username,
        }
        check_period(values["starts_at"], values["ends_at"])
        require_not_past(values["ends_at"], now, "ends_at")
        entry = self._audit.entry(
            caller,
            "maintenance.create",
            values["id"],
            name=target or str(scope),
            mode=mode,
            reason=spec["reason"],
            scope=str(scope),
            starts_at=values["starts_at"].isoformat(),
            ends_at=values["ends_at"].isoformat() if values["ends_at"] else None,
        )
        created = await self._store.create(values, entry)
        await self._changed()
        return created

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Maintenance:
        """Change the period or the reason."""
        authorizer.require(caller, "maintenance.write")
        found = await self._find(key)
        values = new_values(found, changes, self._clock())
        version = values.pop("version", found.version)
        details = self._audit.changes(fields_of(found), values)
        entry = self._audit.entry(
            caller, "maintenance.update", key, name=found.target or str(found.scope), **details
        )
        changed = await self._store.update(key, version, values, entry)
        await self._changed()
        return changed

    async def delete(self, caller: Caller, key: str) -> None:
        """End or cancel a maintenance."""
        authorizer.require(caller, "maintenance.write")
        found = await self._find(key)
        entry = self._audit.entry(
            caller, "maintenance.delete", key, name=found.target or str(found.scope)
        )
        await self._store.delete(key, entry)
        await self._changed()

    async def _changed(self) -> None:
        await self._read_only.refresh()
        self._capacity_changed()

    async def _find(self, key: str) -> Maintenance:
        if "\0" in key:
            raise no_maintenance(key)
        return await self._store.one(key)
