"""Invitations to folders."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from bai_services.core.folders import sharing
from bai_services.core.folders.vfolders import InvitationStatus, Permission
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel

_TAG = "storage"


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
    (r"/vfolders/(?P<key>[^/]+)/invitations", FolderInvitationsHandler),
    ("/vfolder-invitations", InvitationsHandler),
    (r"/vfolder-invitations/(?P<key>[^/]+)", InvitationHandler),
    (r"/vfolder-invitations/(?P<key>[^/]+)/accept", AcceptHandler),
    (r"/vfolder-invitations/(?P<key>[^/]+)/decline", DeclineHandler),
]
