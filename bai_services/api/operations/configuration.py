"""`/configuration`: settings of the manager, their origin, and values set by administrators."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import StringConstraints

from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations import configuration as records
from bai_services.core.operations.configuration import MAX_VALUE_CHARS

from ..base import APIHandler, operation
from ..fields import Body, ResponseModel

_TAG = "configuration"


class SettingValue(Body):
    """``value``: a whole number, or 0 or 1 for a switch."""

    value: Annotated[str, StringConstraints(max_length=MAX_VALUE_CHARS, strip_whitespace=True)]


class SettingState(ResponseModel):
    """``value``: the value in force; null for secrets. ``stored``: the value in the database, which
    takes effect after a restart of the manager (``needs_restart``). ``origin``: default,
    environment or database.
    """

    name: str
    kind: str
    value: str | None
    default: str | None
    origin: str
    minimum: int | None
    stored: str | None
    changed_at: datetime | None
    changed_by: str | None
    is_changeable: bool
    needs_restart: bool


class ConfigurationHandler(APIHandler):
    @operation("List the settings of the manager", tag=_TAG, returns=SettingState, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.SettingState]:
        return await self.manager.operations.configuration.page(self.caller, query)


class SettingHandler(APIHandler):
    @operation(
        "Set a setting in the database; it is in force after a restart of the manager",
        tag=_TAG,
        body=SettingValue,
        returns=SettingState,
    )
    async def put(self, key: str, body: SettingValue) -> records.SettingState:
        return await self.manager.operations.configuration.set(self.caller, key, body.value)

    @operation("Remove a setting from the database", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.operations.configuration.unset(self.caller, key)


ROUTES = [
    ("/configuration", ConfigurationHandler),
    (r"/configuration/(?P<key>[^/]+)", SettingHandler),
]
