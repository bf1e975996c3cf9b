"""`/component-settings`: settings in force in the Hub and in agents, as they report them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations import component_settings as records
from bai_services.core.operations.component_settings import MAX_SETTINGS

from ..base import APIHandler, operation
from ..fields import Body, LongText, NameText, ResponseModel

_TAG = "configuration"


class ReportedSetting(Body):
    """``value`` and ``default`` are null for a secret."""

    # A newer component may send more fields.
    model_config = ConfigDict(extra="ignore")

    name: NameText
    value: LongText | None = None
    default: LongText | None = None
    origin: Literal["default", "environment", "file"]

    def to_record(self) -> records.ReportedSetting:
        return records.ReportedSetting(self.name, self.value, self.default, self.origin)


ReportedSettings = Annotated[list[ReportedSetting], Field(max_length=MAX_SETTINGS)]


class HubSettings(Body):
    settings: ReportedSettings


class ComponentSetting(ResponseModel):
    """``kind``: hub or agent. ``component``: ``hub``, or the id of the agent. ``origin``: default,
    environment, or file (configuration file or command line). Secrets have no ``value``.
    """

    id: str
    kind: str
    component: str
    name: str
    value: str | None
    default: str | None
    origin: str


class ComponentSettingsHandler(APIHandler):
    @operation(
        "List the settings in force in the Hub and in agents",
        tag=_TAG,
        returns=ComponentSetting,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.ComponentSetting]:
        return await self.manager.operations.component_settings.page(self.caller, query)


class HubSettingsHandler(APIHandler):
    @operation(
        "Report the settings of the Hub",
        tag=_TAG,
        body=HubSettings,
        status=HTTPStatus.NO_CONTENT,
    )
    async def put(self, body: HubSettings) -> None:
        settings = [each.to_record() for each in body.settings]
        await self.manager.operations.component_settings.report_hub(self.caller, settings)


ROUTES = [
    ("/component-settings", ComponentSettingsHandler),
    ("/component-settings/hub", HubSettingsHandler),
]
