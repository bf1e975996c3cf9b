"""Create storage hosts from the settings, probe them, and determine permissions on them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.cluster.storage_checks import StorageCheck
from bai_services.core.errors import BaiError, Forbidden, NotFound
from bai_services.core.folders.storage_hosts import PERMISSIONS, granted_on
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.db.folders.quota_scopes import QuotaStore
from bai_services.storage.backends.registry import find_backend
from bai_services.storage.base import HostStatus
from bai_services.storage.host import StorageHost

from ..accounts import authorizer
from ..context import ManagerContext
from ..loop import Loop
from ..settings import Settings

log = logging.getLogger(__name__)

# Group id of shared files; session images must contain the same group.
SHARED_GID = 1000
PROBE_INTERVAL_SECONDS = 30.0
FILTER_FIELDS = ("name", "backend", "status", "is_default")


@dataclass(frozen=True, slots=True)
class HostView:
    """A storage host in the API; ``path`` is only set for superadmins."""

    name: str
    backend: str
    capabilities: list[str]
    status: str
    message: str
    total_bytes: int
    free_bytes: int
    checked_at: datetime
    permissions: list[str]
    is_default: bool
    path: str | None


def create_hosts(settings: Settings) -> dict[str, StorageHost]:
    """Create the storage hosts; return them by name, the default one first.

    Files are shared with a group only if the manager runs as root. This is not needed otherwise,
    because all sessions then have the uid of the manager.
    """
    shared_gid = SHARED_GID if os.geteuid() == 0 else None
    return {
        spec.name: StorageHost(spec.name, find_backend(spec.backend)(spec.path), shared_gid)
        for spec in settings.hosts
    }


class StorageHosts:
    """The storage hosts of this manager; an unavailable host does not stop the manager."""

    def __init__(self, context: ManagerContext, settings: Settings) -> None:
        self._by_name: Mapping[str, StorageHost] = create_hosts(settings)
        self._backends = {spec.name: spec.backend for spec in settings.hosts}
        self._store = QuotaStore(context.database)
        self._loop = Loop("storage hosts", self._probe, PROBE_INTERVAL_SECONDS)
        self._is_started = False
        self._cleanups: dict[str, asyncio.Task[None]] = {}

    @property
    def default(self) -> str:
        """Return the name of the default host."""
        return next(iter(self._by_name))

    def all(self) -> list[StorageHost]:
        """Return all hosts, the default one first."""
        return list(self._by_name.values())

    def available(self) -> list[StorageHost]:
        """Return the hosts whose status was not GONE at the last probe."""
        return [host for host in self.all() if host.health.status is not HostStatus.GONE]

    def checks(self) -> list[StorageCheck]:
        """Return the checks for agents, without the hosts that do not respond to the manager.

        The failure of such a host is reported when a session starts.
        """
        return [
            StorageCheck(host.name, str(host.backend.root.absolute()), host.marker)
            for host in self.available()
        ]

    def get(self, name: str) -> StorageHost:
        """Return a host.

        Raises
        ------
        NotFound
            If the settings contain no host of that name.
        """
        host = self._by_name.get(name)
        if host is None:
            known = ", ".join(self._by_name)
            raise NotFound(f"there is no storage host {name!r}; the hosts are: {known}", host=name)
        return host

    async def start(self) -> None:
        await asyncio.gather(*(host.start() for host in self._by_name.values()))
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        cleanups = list(self._cleanups.values())
        for task in cleanups:
            task.cancel()
        await asyncio.gather(*cleanups, return_exceptions=True)
        await asyncio.gather(*(host.stop() for host in self._by_name.values()))

    def probe_soon(self) -> None:
        """Probe the hosts in the background now, for example after a mount was repaired."""
        self._loop.wake()

    async def page(self, caller: Caller, query: ListQuery) -> Page[HostView]:
        """Return the hosts that the caller may use; superadmins and monitors see all hosts."""
        authorizer.require(caller, "storage-host.read")
        granted = {name: await self.permissions(caller, name) for name in self._by_name}
        is_reader = caller.role in (Role.SUPERADMIN, Role.MONITOR)
        names = [name for name in self._by_name if granted[name] or is_reader]
        views = [self._view(caller, name, granted[name]) for name in names]
        return page_of(views, query, FILTER_FIELDS)

    async def permissions(
        self, caller: Caller, host: str, project_id: str | None = None
    ) -> frozenset[str]:
        """Return a caller's permissions on a host: the union of all grants.

        With ``project_id``, grants of the caller's other projects are ignored. Superadmins have all
        permissions, because they could grant these to themselves.
        """
        if caller.role is Role.SUPERADMIN:
            return frozenset(PERMISSIONS)
        if caller.user_id is None:
            return frozenset()
        projects = caller.projects if project_id is None else caller.projects & {project_id}
        return await self.granted(caller.user_id, caller.access_key, projects, host)

    async def granted(
        self, user_id: str, access_key: str | None, projects: Collection[str], host: str
    ) -> frozenset[str]:
        """Return a user's permissions on a host.

        The permissions include those of the keypair's policy. Without ``access_key``, the main
        keypair counts.
        """
        return granted_on(
            host, await self._store.host_permission_maps(user_id, access_key, projects)
        )

    async def require(
        self, caller: Caller, host: str, permission: str, project_id: str | None = None
    ) -> None:
        """Raise ``Forbidden`` if the caller does not have ``permission`` on a host."""
        if permission not in await self.permissions(caller, host, project_id):
            raise Forbidden(
                f"you do not have the permission {permission} on storage host {host}: neither your "
                "domain nor your projects nor your keypair policy grants it",
                host=host,
                permission=permission,
            )

    def _view(self, caller: Caller, name: str, granted: Collection[str]) -> HostView:
        host = self._by_name[name]
        health = host.health
        return HostView(
            name=name,
            backend=self._backends[name],
            capabilities=sorted(host.capabilities),
            status=health.status,
            message=health.message,
            total_bytes=health.total_bytes,
            free_bytes=health.free_bytes,
            checked_at=health.checked_at,
            permissions=[permission for permission in PERMISSIONS if permission in granted],
            is_default=name == self.default,
            path=str(host.backend.root) if caller.role is Role.SUPERADMIN else None,
        )

    async def _probe(self) -> None:
        is_start, self._is_started = not self._is_started, True
        await asyncio.gather(*(host.probe() for host in self.all()))
        for host in self.available():
            if host.name not in self._cleanups:
                # Run in the background, because a mount may stop responding.
                task = asyncio.create_task(
                    self._clean_up(host, is_start), name=f"clean up {host.name}"
                )
                self._cleanups[host.name] = task

    async def _clean_up(self, host: StorageHost, is_start: bool) -> None:
        try:
            await host.sweep(is_start)
        except BaiError as error:
            log.info("storage host %s cannot be cleaned up: %s", host.name, error.message)
        finally:
            del self._cleanups[host.name]
