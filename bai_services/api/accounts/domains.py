"""`/domains`: the tenants of the installation."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

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
    SlotsInput,
    SlotsOutput,
)


class DomainChange(Body):
    description: Description = ""
    is_active: bool = True
    total_resource_slots: SlotsInput = {}
    max_concurrent_sessions: Count | None = None
    allowed_vfolder_hosts: Hosts = {}


class NewDomain(DomainChange):
    name: NameText


class Domain(ResponseModel):
    name: str
    created_at: datetime
    description: str
    is_active: bool
    total_resource_slots: SlotsOutput
    max_concurrent_sessions: int | None
    allowed_vfolder_hosts: dict[str, list[str]]


class DomainsHandler(APIHandler):
    @operation("List domains", tag="domains", returns=Domain, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Domain]:
        return await self.manager.accounts.domains.page(self.caller, query)

    @operation(
        "Create a domain and its project 'default'",
        tag="domains",
        body=NewDomain,
        returns=Domain,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewDomain) -> records.Domain:
        return await self.manager.accounts.domains.create(self.caller, body.given_fields())


class DomainHandler(APIHandler):
    @operation("Read a domain", tag="domains", returns=Domain)
    async def get(self, key: str) -> records.Domain:
        return await self.manager.accounts.domains.get(self.caller, key)

    @operation("Change a domain", tag="domains", body=DomainChange, returns=Domain)
    async def patch(self, key: str, body: DomainChange) -> records.Domain:
        return await self.manager.accounts.domains.update(self.caller, key, body.given_fields())

    @operation("Delete an unused domain", tag="domains", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.domains.delete(self.caller, key)


ROUTES = [("/domains", DomainsHandler), (r"/domains/(?P<key>[^/]+)", DomainHandler)]
