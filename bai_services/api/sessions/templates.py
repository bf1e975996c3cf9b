"""`/session-templates`: stored session requests."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions import templates

from ..base import APIHandler, operation
from ..fields import Body, Description, NameText, ResponseModel, ShortText
from .bodies import SessionRequest

_TAG = "sessions"


class TemplateChange(Body):
    name: NameText = ""
    description: Description = ""
    request: SessionRequest = SessionRequest()


class NewTemplate(TemplateChange):
    name: NameText
    request: SessionRequest
    audience: Literal["owner", "project", "domain"] = "owner"
    project: ShortText | None = None


class Template(ResponseModel):
    """``hidden_fields``: fields of ``request`` that are left out because the caller may not read
    them.
    """

    id: str
    name: str
    description: str
    audience: str
    owner: str | None
    owner_id: str | None
    project: str | None
    project_id: str | None
    domain: str
    request: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    hidden_fields: list[str]


class TemplatesHandler(APIHandler):
    @operation(
        "List the session templates that the caller may see",
        tag=_TAG,
        returns=Template,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[templates.Template]:
        return await self.manager.sessions.templates.page(self.caller, query)

    @operation(
        "Create a session template",
        tag=_TAG,
        body=NewTemplate,
        returns=Template,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewTemplate) -> templates.Template:
        return await self.manager.sessions.templates.create(self.caller, body.given_fields())


class TemplateHandler(APIHandler):
    @operation("Read a session template", tag=_TAG, returns=Template)
    async def get(self, key: str) -> templates.Template:
        return await self.manager.sessions.templates.get(self.caller, key)

    @operation("Change a session template", tag=_TAG, body=TemplateChange, returns=Template)
    async def patch(self, key: str, body: TemplateChange) -> templates.Template:
        return await self.manager.sessions.templates.update(self.caller, key, body.given_fields())

    @operation("Delete a session template", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.sessions.templates.delete(self.caller, key)


ROUTES = [
    ("/session-templates", TemplatesHandler),
    (r"/session-templates/(?P<key>[^/]+)", TemplateHandler),
]
