"""`/projects` and their members."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Literal

from bai_services.core.accounts import records
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import (
    Body,
    Count,
    Description,
    Hosts,
    NameText,
    ResponseModel,
    ShortText,
    SlotsInput,
    SlotsOutput,
)


class ProjectChange(Body):
    name: NameText = ""
    description: Description = ""
    is_active: bool = True
    total_resource_slots: SlotsInput = {}
    max_concurrent_sessions: Count | None = None
    allowed_vfolder_hosts: Hosts = {}
    resource_policy: NameText = ""
    default_image: ShortText | None = None


class NewProject(ProjectChange):
    name: NameText
    domain: NameText = ""
    type: Literal["general", "model-store"] = "general"


class Project(ResponseModel):
    id: str
    name: str
    domain: str
    created_at: datetime
    description: str
    is_active: bool
    type: str
    total_resource_slots: SlotsOutput
    max_concurrent_sessions: int | None
    allowed_vfolder_hosts: dict[str, list[str]]
    resource_policy: str
    default_image: str | None


class Member(ResponseModel):
    id: str
    username: str
    email: str
    full_name: str
    role: str
    status: str


class ProjectsHandler(APIHandler):
    @operation("List projects", tag="projects", returns=Project, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Project]:
        return await self.manager.accounts.projects.page(self.caller, query)

    @operation(
        "Create a project",
        tag="projects",
        body=NewProject,
        returns=Project,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewProject) -> records.Project:
        return await self.manager.accounts.projects.create(self.caller, body.given_fields())


class ProjectHandler(APIHandler):
    @operation("Read a project", tag="projects", returns=Project)
    async def get(self, key: str) -> records.Project:
        return await self.manager.accounts.projects.get(self.caller, key)

    @operation("Change a project", tag="projects", body=ProjectChange, returns=Project)
    async def patch(self, key: str, body: ProjectChange) -> records.Project:
        return await self.manager.accounts.projects.update(self.caller, key, body.given_fields())

    @operation("Delete an unused project", tag="projects", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.projects.delete(self.caller, key)


class MembersHandler(APIHandler):
    @operation("List the members of a project", tag="projects", returns=Member, is_list=True)
    async def get(self, key: str, query: ListQuery) -> Page[records.Member]:
        return await self.manager.accounts.projects.members(self.caller, key, query)


class MemberHandler(APIHandler):
    @operation("Add a user to a project", tag="projects", status=HTTPStatus.NO_CONTENT)
    async def put(self, key: str, user: str) -> None:
        await self.manager.accounts.projects.add_member(self.caller, key, user)

    @operation("Remove a user from a project", tag="projects", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, user: str) -> None:
        await self.manager.accounts.projects.remove_member(self.caller, key, user)


ROUTES = [
    ("/projects", ProjectsHandler),
    (r"/projects/(?P<key>[^/]+)", ProjectHandler),
    (r"/projects/(?P<key>[^/]+)/members", MembersHandler),
    (r"/projects/(?P<key>[^/]+)/members/(?P<user>[^/]+)", MemberHandler),
]
