"""`/vfolders`: folders, with their trash, clones, owners, usage and grants."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import StringConstraints

from bai_services.core.folders import sharing
from bai_services.core.folders.vfolders import Permission, UsageMode
from bai_services.core.listing import ListQuery, Page
from bai_services.manager.folders import quotas, vfolders
from bai_services.manager.folders.vfolders import VFolder

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel

_TAG = "vfolders"


class VFolderChange(Body):
    name: NameText = ""
    permission: Literal["ro", "rw"] = "rw"
    usage_mode: UsageMode = UsageMode.GENERAL
    cloneable: bool = False


class VFolderClone(VFolderChange):
    """``project``: create a folder of this project. ``host``: default: the host of the source."""

    name: NameText
    project: NameText | None = None
    host: NameText | None = None


class NewVFolder(VFolderClone):
    """``project``: create a folder of this project. ``unmanaged_path``: use an existing directory;
    superadmins only.
    """

    unmanaged_path: Annotated[str, StringConstraints(max_length=1024)] | None = None


class NewOwner(Body):
    """``user``: id, user name or e-mail address."""

    user: NameText


class GrantRequest(Body):
    permission: Permission = Permission.RO


class Grant(ResponseModel):
    """``is_pending``: the user has not accepted the invitation ``invitation_id`` yet."""

    user: str
    user_id: str
    permission: Permission
    granted_by: str
    created_at: datetime
    is_pending: bool
    invitation_id: str | None


class FolderUsage(ResponseModel):
    """Number of files in a folder and their size in bytes at ``counted_at``."""

    files: int
    bytes: int
    counted_at: datetime


class VFoldersHandler(APIHandler):
    @operation(
        "List the folders that the caller may see",
        tag=_TAG,
        returns=VFolder,
        is_list=True,
        is_for_sessions=True,
    )
    async def get(self, query: ListQuery) -> Page[vfolders.VFolder]:
        return await self.manager.folders.vfolders.page(self.caller, query)

    @operation(
        "Create a folder", tag=_TAG, body=NewVFolder, returns=VFolder, status=HTTPStatus.CREATED
    )
    async def post(self, body: NewVFolder) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.create(self.caller, body.given_fields())


class VFolderHandler(APIHandler):
    @operation("Read a folder", tag=_TAG, returns=VFolder)
    async def get(self, key: str) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.get(self.caller, key)

    @operation("Rename or change a folder", tag=_TAG, body=VFolderChange, returns=VFolder)
    async def patch(self, key: str, body: VFolderChange) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.update(self.caller, key, body.given_fields())

    @operation("Move a folder to the trash", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.folders.vfolders.trash(self.caller, key)


class RestoreHandler(APIHandler):
    @operation("Restore a folder from the trash", tag=_TAG, returns=VFolder)
    async def post(self, key: str) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.restore(self.caller, key)


class PurgeHandler(APIHandler):
    @operation(
        "Permanently delete a folder in the trash",
        tag=_TAG,
        returns=VFolder,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.purge(self.caller, key)


class CloneHandler(APIHandler):
    @operation(
        "Clone a cloneable folder, in the background",
        tag=_TAG,
        body=VFolderClone,
        returns=VFolder,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: VFolderClone) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.clone(self.caller, key, body.given_fields())


class OwnerHandler(APIHandler):
    @operation(
        "Transfer a folder to another user, in the background",
        tag=_TAG,
        body=NewOwner,
        returns=VFolder,
        status=HTTPStatus.ACCEPTED,
    )
    async def put(self, key: str, body: NewOwner) -> vfolders.VFolder:
        return await self.manager.folders.vfolders.change_owner(self.caller, key, body.user)


class UsageHandler(APIHandler):
    @operation(
        "Read the number and size of the files in a folder",
        tag=_TAG,
        returns=FolderUsage,
        parameters={
            "fresh": "true: count now, even if it takes long; default: count now only if the "
            "previous count was fast or is outdated"
        },
    )
    async def get(self, key: str) -> quotas.FolderUsage:
        is_fresh = self.get_query_argument("fresh", "") == "true"
        return await self.manager.folders.files.usage(self.caller, key, is_fresh)


class GrantsHandler(APIHandler):
    @operation(
        "List the accepted grants of a folder",
        tag=_TAG,
        returns=Grant,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[sharing.Grant]:
        return await self.manager.folders.grants.page(self.caller, key, query)


class GrantHandler(APIHandler):
    @operation("Read a user's grant for a folder", tag=_TAG, returns=Grant)
    async def get(self, key: str, user: str) -> sharing.Grant:
        return await self.manager.folders.grants.get(self.caller, key, user)

    @operation(
        "Share a folder with a user, or change the user's permission",
        tag=_TAG,
        body=GrantRequest,
        returns=Grant,
    )
    async def put(self, key: str, user: str, body: GrantRequest) -> sharing.Grant:
        return await self.manager.folders.grants.put(self.caller, key, user, body.permission)

    @operation("Stop sharing a folder with a user", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, user: str) -> None:
        await self.manager.folders.grants.delete(self.caller, key, user)


ROUTES = [
    ("/vfolders", VFoldersHandler),
    (r"/vfolders/(?P<key>[^/]+)", VFolderHandler),
    (r"/vfolders/(?P<key>[^/]+)/restore", RestoreHandler),
    (r"/vfolders/(?P<key>[^/]+)/purge", PurgeHandler),
    (r"/vfolders/(?P<key>[^/]+)/clone", CloneHandler),
    (r"/vfolders/(?P<key>[^/]+)/owner", OwnerHandler),
    (r"/vfolders/(?P<key>[^/]+)/usage", UsageHandler),
    (r"/vfolders/(?P<key>[^/]+)/grants", GrantsHandler),
    (r"/vfolders/(?P<key>[^/]+)/grants/(?P<user>[^/]+)", GrantHandler),
]
