"""`/presets`: named resource slots for new sessions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from http import HTTPStatus

from bai_services.core.cluster import records
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, SlotsInput, SlotsOutput

_TAG = "presets"


class PresetChange(Body):
    name: NameText = ""
    resource_slots: SlotsInput = {}
    shared_memory: NameText | None = None


class NewPreset(PresetChange):
    name: NameText
    resource_slots: SlotsInput
    resource_group: NameText | None = None


class Preset(ResponseModel):
    id: str
    created_at: datetime
    name: str
    resource_group: str | None
    resource_slots: SlotsOutput
    shared_memory: str | None
    allocatable: bool | None


class PresetsHandler(APIHandler):
    @operation("List presets", tag=_TAG, returns=Preset, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Preset]:
        filters = dict(query.filters)
        target = [filters.pop(name, None) for name in ("project", "resource_group", "type")]
        return await self.manager.cluster.presets.page(
            self.caller, replace(query, filters=filters), *target
        )

    @operation(
        "Create a preset", tag=_TAG, body=NewPreset, returns=Preset, status=HTTPStatus.CREATED
    )
    async def post(self, body: NewPreset) -> records.Preset:
        return await self.manager.cluster.presets.create(self.caller, body.given_fields())


class PresetHandler(APIHandler):
    @operation("Read a preset", tag=_TAG, returns=Preset)
    async def get(self, key: str) -> records.Preset:
        return await self.manager.cluster.presets.get(self.caller, key)

    @operation("Change a preset", tag=_TAG, body=PresetChange, returns=Preset)
    async def patch(self, key: str, body: PresetChange) -> records.Preset:
        return await self.manager.cluster.presets.update(self.caller, key, body.given_fields())

    @operation("Delete a preset", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.presets.delete(self.caller, key)


ROUTES = [("/presets", PresetsHandler), (r"/presets/(?P<key>[^/]+)", PresetHandler)]
