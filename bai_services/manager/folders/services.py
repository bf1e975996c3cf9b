"""Build the folder services."""

from __future__ import annotations

from dataclasses import dataclass

from ..accounts.projects import Projects
from ..accounts.users import Users
from ..context import ManagerContext
from ..settings import Settings
from .files import Files
from .folder_changes import FolderChanges
from .grants import Grants
from .invitations import Invitations
from .mounts import Mounts
from .open_uploads import OpenUploads
from .quotas import Quotas
from .storage_hosts import StorageHosts
from .tasks import VFolderTasks
from .uploads import Uploads
from .user_purges import UserPurges
from .vfolders import VFolders


@dataclass(frozen=True, slots=True)
class FolderServices:
    """Services for folders, their files, grants and invitations, quotas and storage hosts."""

    storage_hosts: StorageHosts
    quotas: Quotas
    tasks: VFolderTasks
    vfolders: VFolders
    mounts: Mounts
    grants: Grants
    invitations: Invitations
    files: Files
    uploads: Uploads
    changes: FolderChanges
    user_purges: UserPurges

    async def start(self) -> None:
        """Start the storage hosts, the background tasks of folders, and the quota loop."""
        await self.vfolders.start()
        self.quotas.start()

    async def stop(self) -> None:
        """Stop the loops and the storage workers, and wait for them."""
        await self.files.stop()
        await self.changes.stop()
        await self.quotas.stop()
        await self.vfolders.stop()


def folder_services(
    context: ManagerContext, settings: Settings, projects: Projects, users: Users
) -> FolderServices:
    """Build the services and pass them their dependencies."""
    hosts = StorageHosts(context, settings)
    open_uploads = OpenUploads(hosts, settings.max_open_uploads)
    quotas = Quotas(context, hosts, open_uploads)
    changes = FolderChanges(context)
    tasks = VFolderTasks(context, hosts, quotas, changes, settings.trash_days)
    vfolders = VFolders(context, hosts, quotas, tasks, projects, changes)
    files = Files(context, hosts, quotas, changes, settings)
    return FolderServices(
        storage_hosts=hosts,
        quotas=quotas,
        tasks=tasks,
        vfolders=vfolders,
        mounts=Mounts(context, hosts),
        grants=Grants(context, hosts, changes),
        invitations=Invitations(context, hosts),
        files=files,
        uploads=Uploads(files, open_uploads, settings),
        changes=changes,
        user_purges=UserPurges(context, users, vfolders),
    )
