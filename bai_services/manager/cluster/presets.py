"""Manage resource presets: named sets of resources for the start of a session."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.devices import check_exclusive, check_unique
from bai_services.core.cluster.records import Preset
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import MEM, ResourceSlots, format_amount, parse_amount
from bai_services.db.cluster.presets import PresetRow, PresetStore
from bai_services.db.sessions.requests import PresetFacts

from ..accounts import authorizer
from ..context import ManagerContext
from ..sessions.requests.choices import session_type
from ..sessions.requests.options import Options, is_allocatable
from .resource_groups import visibility_filter


class Presets:
    """Manages presets. A preset belongs to one resource group or to all."""

    def __init__(self, context: ManagerContext, options: Options) -> None:
        self._store = PresetStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._options = options

    async def page(
        self,
        caller: Caller,
        query: ListQuery,
        project: str | None = None,
        resource_group: str | None = None,
        kind: str | None = None,
    ) -> Page[Preset]:
        """Return the visible presets.

        The project, resource group and session type (``kind``) describe a session. If any of
        them is given, return only the presets for the resource group that the session would get. In
        this case, ``allocatable`` says whether the caller could start the session with the preset
        now.
        """
        authorizer.require(caller, "preset.read")
        can_start: Callable[[PresetRow], bool] | None = None
        if (project, resource_group, kind) != (None, None, None):
            session_kind = None if kind is None else session_type(kind)
            found = await self._options.start_facts(caller, project, resource_group, session_kind)
            resource_group = found.group.name

            def can_start(row: PresetRow) -> bool:
                return is_allocatable(_facts(row), found, session_kind)

        page = await self._store.page(query, visibility_filter(caller), resource_group)
        return page.with_items(
            [_preset(row, can_start(row) if can_start else None) for row in page.items]
        )

    async def get(self, caller: Caller, key: str) -> Preset:
        return _preset(await self._one(caller, key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Preset:
        """Create a preset; without ``resource_group`` in ``spec``, it belongs to all groups.

        Raises
        ------
        AlreadyExists
            If a preset with that name and resource group exists.
        InvalidRequest
            If the name, the slots or the shared memory is not valid.
        NotFound
            If the resource group does not exist.
        """
        authorizer.require(caller, "preset.write")
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "shared_memory_bytes": None,
            **_validated_columns(spec),
            "resource_group": spec.get("resource_group") or "",
        }
        _check_shared_memory(values["shared_memory_bytes"], values["resource_slots"])
        return _preset(
            await self._store.create(values, self._entry(caller, "create", values["name"]))
        )

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Preset:
        preset = await self._one(caller, key)
        authorizer.require(caller, "preset.write")
        values = _validated_columns(changes)
        details = self._audit.changes(fields_of(preset), values)
        entry = self._entry(caller, "update", preset.name, **details)
        _check_shared_memory(
            values.get("shared_memory_bytes", preset.shared_memory_bytes),
            values.get("resource_slots", preset.resource_slots),
        )
        return _preset(await self._store.update(preset.id, values, entry))

    async def delete(self, caller: Caller, key: str) -> None:
        preset = await self._one(caller, key)
        authorizer.require(caller, "preset.write")
        await self._store.delete(preset.id, self._entry(caller, "delete", preset.name))

    async def _one(self, caller: Caller, key: str) -> PresetRow:
        authorizer.require(caller, "preset.read")
        rows = await self._store.named(key, visibility_filter(caller))
        if not rows:
            raise NotFound(f"there is no preset {key!r}, or you may not use it", preset=key)
        if len(rows) > 1:
            groups = ", ".join(row.resource_group or "all groups" for row in rows)
            raise InvalidRequest(f"preset {key!r} exists in {groups}; use its id", preset=key)
        return rows[0]

    def _entry(self, caller: Caller, verb: str, name: str, **details: Any) -> AuditEntry:
        return self._audit.entry(caller, f"preset.{verb}", name, **details)


def _validated_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if "name" in fields:
        values["name"] = check_slug("preset", fields["name"])
    if "resource_slots" in fields:
        slots = ResourceSlots.parse(fields["resource_slots"])
        check_exclusive(slots)
        check_unique(slots)
        if not slots:
            raise InvalidRequest("a preset needs at least one slot", field="resource_slots")
        values["resource_slots"] = slots
    if "shared_memory" in fields:
        text = fields["shared_memory"]
        values["shared_memory_bytes"] = None if text is None else parse_amount(MEM, text)
    return values


def _check_shared_memory(size: int | None, slots: Mapping[str, int]) -> None:
    """Raise ``InvalidRequest`` unless the shared memory is smaller than the memory, which includes
    it. ``size`` and the memory slot are in bytes.
    """
    memory = slots.get(MEM)
    if size is not None and memory is not None and size >= memory:
        raise InvalidRequest(
            f"shared memory of {format_amount(MEM, size)} must be less than the memory, "
            f"{format_amount(MEM, memory)}",
            field="shared_memory",
        )


def _facts(row: PresetRow) -> PresetFacts:
    return PresetFacts(row.name, row.resource_group, row.resource_slots, row.shared_memory_bytes)


def _preset(row: PresetRow, allocatable: bool | None = None) -> Preset:
    size = row.shared_memory_bytes
    return Preset(
        id=row.id,
        created_at=row.created_at,
        name=row.name,
        resource_group=row.resource_group or None,
        resource_slots=row.resource_slots,
        shared_memory=None if size is None else format_amount(MEM, size),
        allocatable=allocatable,
    )
