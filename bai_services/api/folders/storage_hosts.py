"""`/storage-hosts`, `/quota-scopes` and the invitations to folders."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field

from bai_services.core.folders import sharing
from bai_services.core.folders.vfolders import InvitationStatus, Permission
from bai_services.core.listing import ListQuery, Page
from bai_services.manager.folders import quotas, storage_hosts

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel

_TAG = "storage"


class StorageHost(ResponseModel):
    """A storage host, as the caller sees it."""

    name: str
    backend: str
    capabilities: list[str]
    status: Literal["ready", "full", "read-only", "slow", "gone"]
    message: str
    total_bytes: int
    free_bytes: int
    checked_at: datetime
    permissions: list[str] = Field(description="The caller's permissions.")
    is_default: bool
    path: str | None = Field(description="Null except for superadmins.")


class QuotaScope(ResponseModel):
    """The limit and usage of a user or project on a storage host."""

    host: str
    scope: str
    kind: str
    domain: str | None
    owner: str | None
    project: str | None
    limit_bytes: int | None = Field(description="The effective limit; null: no limit.")
    policy_bytes: int | None
    override_bytes: int | None
    used_bytes: int | None = Field(description="Usage at `counted_at`.")
    counted_at: datetime | None
    source: Literal["counter", "scan"]
    is_enforced: bool = Field(
        description="Whether the file system enforces the limit, also for sessions. Otherwise the "
        "manager only rejects uploads above the limit."
    )


class QuotaRequest(Body):
    """A new limit of a quota scope."""

    limit_bytes: Annotated[int, Field(ge=-1, le=2**60)] | None = Field(
        description="-1: no limit; null: the limit of the policy."
    )


class NewInvitation(Body):
    """``user``: id, user name or e-mail address."""

    user: NameText
    permission: Permission = Permission.RO


class InvitationChange(Body):
    permission: Permission


class Invitation(ResponseModel):
    id: str
    created_at: datetime
    vfolder_id: str
    vfolder: str
    domain: str
    owner: str | None
    invitee_id: str
    invitee: str
    inviter_id: str
    inviter: str
    permission: Permission
    status: InvitationStatus
    status_changed_at: datetime


class HostsHandler(APIHandler):
    @operation("List storage hosts", tag=_TAG, returns=StorageHost, is_list=True)
    async def get(self, query: ListQuery) -> Page[storage_hosts.HostView]:
        return await self.manager.folders.storage_hosts.page(self.caller, query)


class ScopesHandler(APIHandler):
    @operation(
        "List quota scopes", tag=_TAG, returns=QuotaScope, is_list=True, is_for_sessions=True
    )
    async def get(self, query: ListQuery) -> Page[quotas.QuotaScope]:
        return await self.manager.folders.quotas.page(self.caller, query)


class ScopeHandler(APIHandler):
    @operation("Read a quota scope", tag=_TAG, returns=QuotaScope)
    async def get(self, host: str, scope: str) -> quotas.QuotaScope:
        return await self.manager.folders.quotas.get(self.caller, host, scope)

    @operation("Set the limit of a quota scope", tag=_TAG, body=QuotaRequest, returns=QuotaScope)
    async def put(self, host: str, scope: str, body: QuotaRequest) -> quotas.QuotaScope:
        return await self.manager.folders.quotas.put(self.caller, host, scope, body.limit_bytes)


class FolderInvitationsHandler(APIHandler):
    @operation("List the invitations to a folder", tag=_TAG, returns=Invitation, is_list=True)
    async def get(self, key: str, query: ListQuery) -> Page[sharing.Invitation]:
        return await self.manager.folders.invitations.page_of_folder(self.caller, key, query)

    @operation(
        "Invite a user to a folder",
        tag=_TAG,
        body=NewInvitation,
        returns=Invitation,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str, body: NewInvitation) -> sharing.Invitation:
        return await self.manager.folders.invitations.create(
            self.caller, key, body.user, body.permission
        )


class InvitationsHandler(APIHandler):
    @operation(
        "List invitations that the caller received or sent",
        tag=_TAG,
        returns=Invitation,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[sharing.Invitation]:
        return await self.manager.folders.invitations.page(self.caller, query)


class InvitationHandler(APIHandler):
    @operation("Read an invitation", tag=_TAG, returns=Invitation)
    async def get(self, key: str) -> sharing.Invitation:
        return await self.manager.folders.invitations.get(self.caller, key)

    @operation(
        "Change the permission of an invitation",
        tag=_TAG,
        body=InvitationChange,
        returns=Invitation,
    )
    async def patch(self, key: str, body: InvitationChange) -> sharing.Invitation:
        return await self.manager.folders.invitations.update(self.caller, key, body.permission)

    @operation("Withdraw an invitation", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.folders.invitations.withdraw(self.caller, key)


class AcceptHandler(APIHandler):
    @operation("Accept an invitation", tag=_TAG, returns=Invitation)
    async def post(self, key: str) -> sharing.Invitation:
        return await self.manager.folders.invitations.accept(self.caller, key)


class DeclineHandler(APIHandler):
    @operation("Decline an invitation", tag=_TAG, returns=Invitation)
    async def post(self, key: str) -> sharing.Invitation:
        return await self.manager.folders.invitations.decline(self.caller, key)


ROUTES: list[tuple[str, type[APIHandler]]] = [
    ("/storage-hosts", HostsHandler),
    ("/quota-scopes", ScopesHandler),
    (r"/quota-scopes/(?P<host>[^/]+)/(?P<scope>[^/]+)", ScopeHandler),
    (r"/vfolders/(?P<key>[^/]+)/invitations", FolderInvitationsHandler),
    ("/vfolder-invitations", InvitationsHandler),
    (r"/vfolder-invitations/(?P<key>[^/]+)", InvitationHandler),
    (r"/vfolder-invitations/(?P<key>[^/]+)/accept", AcceptHandler),
    (r"/vfolder-invitations/(?P<key>[^/]+)/decline", DeclineHandler),
]
