"""Quota scopes: enforce the limits of policies and administrators, and count usage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bai_services.core.accounts.roles import Caller, Owner, Role, Target
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import percent_of
from bai_services.db.folders.quota_scopes import UNLIMITED, QuotaScopeRow, QuotaStore
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.single_flight import SingleFlight
from bai_services.storage.base import Capability, Location, Scope

from ..accounts import authorizer
from ..context import ManagerContext
from ..loop import Loop
from .open_uploads import OpenUploads
from .storage_hosts import StorageHosts

log = logging.getLogger(__name__)

TICK_SECONDS = 30.0
# Maximum age of usage values from a counter of the file system, and from a scan of the files.
MAX_COUNTER_AGE_SECONDS = 60.0
MAX_SCAN_AGE_SECONDS = 600.0
# Limits of one round of scans; the next round scans the remaining folders.
MAX_ROUND_SECONDS = 20.0
MAX_ROUND_FOLDERS = 50
# Maximum wait of a round for the scan of one folder; a longer scan continues in the background.
SCAN_TIMEOUT_SECONDS = 5.0
# A folder whose last scan took longer than this is not scanned for every request.
FAST_SCAN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FolderUsage:
    """Files and bytes of a folder at ``counted_at``."""

    files: int
    bytes: int
    counted_at: datetime


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """A quota scope; with ``limit_bytes`` None it has no limit.

    With ``is_enforced`` the file system enforces the limit, also for sessions. Otherwise the
    manager rejects uploads, copies and other operations that would exceed the limit.
    ``policy_bytes`` is the limit of the policy (None: no limit). ``override_bytes`` is the limit
    set by an administrator (-1: no limit, None: not set). ``used_bytes`` and ``counted_at`` are
    None before the first count. ``source`` is ``counter`` if the file system counts the usage, and
    ``scan`` if the manager scans the files.
    """

    host: str
    scope: str
    kind: str
    domain: str | None
    owner: str | None
    project: str | None
    limit_bytes: int | None
    policy_bytes: int | None
    override_bytes: int | None
    used_bytes: int | None
    percent: int | None
    counted_at: datetime | None
    source: str
    is_enforced: bool


class Quotas:
    """Enforces limits and counts usage."""

    def __init__(
        self, context: ManagerContext, hosts: StorageHosts, open_uploads: OpenUploads
    ) -> None:
        self._open_uploads = open_uploads
        self._store = QuotaStore(context.database)
        self._folders = VfolderStore(context.database)
        self._hosts = hosts
        self._clock = context.clock
        self._audit = context.audit
        self._loop = Loop("quotas", self.step, TICK_SECONDS)
        # By host and scope: the bytes that each folder has received since its last scan.
        self._received: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._reservations: dict[tuple[str, str], set[Reservation]] = defaultdict(set)
        # By host and scope. Without the lock, a check could read the stored usage before a scan is
        # recorded and the received bytes afterwards; it would then miss the scanned bytes.
        self._usage_locks: dict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slow_folders: set[str] = set()
        self._scans: SingleFlight[str, FolderUsage] = SingleFlight()

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        scans = list(self._scans.running.values())
        for task in scans:
            task.cancel()
        await asyncio.gather(*scans, return_exceptions=True)

    def wake(self) -> None:
        """Wake the loop to apply changed limits."""
        self._loop.wake()

    async def page(self, caller: Caller, query: ListQuery) -> Page[QuotaScope]:
        """Return the scopes that the caller may see.

        Users see their own scopes and those of their projects. Domain administrators see the scopes
        of the domain; superadmins and monitors see all scopes. With the filter ``mine=true``, every
        role sees only the caller's own scopes and those of the caller's projects.
        """
        visible = authorizer.visibility(caller, "quota.read")
        domain, owner_id = visible.domain, visible.owner_id
        filters = dict(query.filters)
        if filters.pop("mine", "false").lower() == "true":
            domain, owner_id = None, caller.user_id or ""
        query = replace(query, filters=filters)
        page = await self._store.page(query, domain, owner_id, caller.projects)
        return Page([self._view(row) for row in page.items], page.total, page.limit, page.offset)

    async def get(self, caller: Caller, host: str, scope: str) -> QuotaScope:
        return self._view(await self._authorized_row(caller, "quota.read", host, scope))

    async def put(
        self, caller: Caller, host: str, scope: str, limit_bytes: int | None
    ) -> QuotaScope:
        """Override the limit of a scope (-1: no limit); None restores the limit of the policy."""
        before = self._view(await self._authorized_row(caller, "quota.write", host, scope))
        details = self._audit.changes(fields_of(before), {"limit_bytes": limit_bytes})
        entry = self._audit.entry(
            caller, "quota.override", f"{host}/{scope}", limit_bytes=limit_bytes, **details
        )
        await self._store.override(host, scope, limit_bytes, entry)
        row = await self._store.get(host, scope)
        assert row is not None  # written above
        await self._enforce(row)
        return self._view(await self._authorized_row(caller, "quota.read", host, scope))

    async def require_space(self, row: VfolderRow, size_bytes: int) -> None:
        """Raise if ``size_bytes`` more bytes would exceed a limit that the file system does not
        enforce. Nothing is reserved.

        Raises
        ------
        QuotaExceeded
            If a limit would be exceeded; the details contain the limit, the usage and the requested
            size.
        """
        with self.reservation(row) as space:
            await space.require(size_bytes)

    def reservation(
        self, row: VfolderRow, scope: str | None = None, uploads: Collection[str] = ()
    ) -> Reservation:
        """Return an empty reservation for a folder; see ``Reservation``.

        Parameters
        ----------
        scope
            The quota scope; default: the quota scope of the folder.
        uploads
            Ids of unfinished uploads that the reservation covers; their announced bytes are not
            counted in addition.
        """
        return Reservation(self, row, scope or row.scope, frozenset(uploads))

    async def remaining_bytes(self, row: VfolderRow, uploads: Collection[str] = ()) -> int | None:
        """Return how many bytes may still be uploaded; None if the manager checks no limit.

        The announced bytes of ``uploads`` are not subtracted.
        """
        with self.reservation(row, uploads=uploads) as space:
            async with self._usage_locks[space.key]:
                found = await self._limited(space)
                return None if found is None else max(found.limit_bytes - self._used(found), 0)

    async def extend(self, space: Reservation, size_bytes: int, more_bytes: int) -> None:
        """Implement ``Reservation.require``."""
        async with self._usage_locks[space.key]:
            found = await self._limited(space)
            # Do not await from here on: no other task may run between the check and the change.
            if space.has_ended:
                raise Conflict("the operation was aborted")
            added = max(size_bytes - space.size, 0)
            if found is None:
                space.size += added
                return
            used = self._used(found)
            if used + added > found.limit_bytes:
                whose = found.owner or f"project {found.project}"
                raise QuotaExceeded(
                    f"{whose} may use {found.limit_bytes} bytes on storage host {found.host}; "
                    f"{used} are in use or reserved and {added} more are needed. "
                    "Remove files, or ask an administrator for a higher quota",
                    limit=found.limit_bytes,
                    used=used,
                    asked=added,
                )
            space.size += min(added + more_bytes, found.limit_bytes - used)

    def begin(self, space: Reservation) -> None:
        """Count the bytes of a reservation as used, until ``end`` is called."""
        self._reservations[space.key].add(space)

    def end(self, space: Reservation) -> None:
        """Stop counting a reservation; idempotent."""
        self._reservations[space.key].discard(space)

    async def _limited(self, space: Reservation) -> QuotaScopeRow | None:
        """Return the scope of a reservation; None if the manager checks no limit."""
        host, scope = space.key
        if space.row.unmanaged_path is not None or self._enforces(host):
            return None
        # Read only this host, because another host may not respond.
        await self._open_uploads.read_host(host)
        found = await self._store.get(host, scope)
        return None if found is None or found.limit_bytes == UNLIMITED else found

    def _used(self, found: QuotaScopeRow) -> int:
        """Return the bytes of a scope that are stored, received, reserved or announced."""
        key = (found.host, found.scope)
        spaces = self._reservations[key]
        replaced = {upload for space in spaces for upload in space.uploads}
        return (
            (found.used_bytes or 0)
            + self._received[key].total()
            + sum(space.size for space in spaces)
            + self._open_uploads.announced_bytes(*key, replaced)
        )

    def add_received(self, row: VfolderRow, size_bytes: int) -> None:
        """Add received bytes to the usage until the next scan of the folder."""
        self._received[row.host, row.scope][row.id] += size_bytes

    def discard_received(self, row: VfolderRow) -> None:
        """Drop the count of received bytes of a folder that was deleted or has left its scope."""
        self._received[row.host, row.scope].pop(row.id, None)

    def sums_scopes(self, host: str) -> bool:
        """Return whether the usage of a scope is the sum of its folders, not a counter."""
        return Capability.FAST_USAGE not in self._hosts.get(host).capabilities

    async def enforce_new(self, host: str, scope: str) -> None:
        """Enforce the limit of a scope that may be new."""
        row = await self._store.get(host, scope)
        if row is not None:
            await self._enforce(row, is_new=True)

    async def usage(self, row: VfolderRow, is_fresh: bool) -> FolderUsage:
        """Return the usage of a folder.

        The folder is scanned now, unless its last scan was slow. After a slow scan, it is scanned
        only with ``is_fresh``, or if its usage is outdated.
        """
        known = row.counted_at is not None and row.used_bytes is not None
        if known and not is_fresh and row.id in self._slow_folders:
            assert row.counted_at is not None
            if self._clock() - row.counted_at < timedelta(seconds=MAX_SCAN_AGE_SECONDS):
                return FolderUsage(row.used_files or 0, row.used_bytes or 0, row.counted_at)
        return await self._count(row)

    async def step(self) -> None:
        """Enforce all limits, then scan the least recently scanned folders.

        Unavailable hosts are skipped; an error on one host does not affect the others.
        """
        hosts = {host.name for host in self._hosts.available()}
        for scope in await self._store.all_scopes():
            if scope.host not in hosts:
                continue
            try:
                await self._enforce(scope)
                await self._read_counter(scope)
            except (BaiError, OSError) as error:
                log.warning(
                    "the quota of %s on %s cannot be applied: %s", scope.scope, scope.host, error
                )
        started = time.monotonic()
        before = self._clock() - timedelta(seconds=MAX_SCAN_AGE_SECONDS)
        for folder_id in await self._store.least_recently_measured(
            before, MAX_ROUND_FOLDERS, hosts
        ):
            if time.monotonic() - started > MAX_ROUND_SECONDS:
                self._loop.wake()
                return
            for row in await self._folders.by_id(folder_id):
                if row.id not in self._scans.running:
                    await self._try_count(row)

    async def _try_count(self, row: VfolderRow) -> None:
        try:
            async with asyncio.timeout(SCAN_TIMEOUT_SECONDS):
                await self._count(row)
        except TimeoutError:
            # The folder is large, or the mount does not respond. The scan continues in the
            # background.
            log.info("the scan of folder %s takes more than %g s", row.id, SCAN_TIMEOUT_SECONDS)
        except (BaiError, OSError) as error:
            log.warning("folder %s cannot be scanned: %s", row.id, error)

    async def _count(self, row: VfolderRow) -> FolderUsage:
        # Concurrent requests share one scan.
        return await self._scans(row.id, lambda: self._scan(row))

    async def _scan(self, row: VfolderRow) -> FolderUsage:
        at, started = self._clock(), time.monotonic()
        received = self._received[row.host, row.scope]
        before = received[row.id]
        found = await self._hosts.get(row.host).usage(location_of(row))
        if time.monotonic() - started > FAST_SCAN_SECONDS:
            self._slow_folders.add(row.id)
        else:
            self._slow_folders.discard(row.id)
        async with self._usage_locks[row.host, row.scope]:
            await self._store.record_folder_usage(
                row.id, found.files, found.bytes, at, self.sums_scopes(row.host)
            )
            # The scan includes the bytes received before it; bytes received during it stay counted.
            received[row.id] -= before
            if not received[row.id]:
                del received[row.id]
        return FolderUsage(found.files, found.bytes, at)

    async def _read_counter(self, row: QuotaScopeRow) -> None:
        now = self._clock()
        # Use half of the maximum, because the next check is ``TICK_SECONDS`` later.
        if row.counted_at is not None and (now - row.counted_at).total_seconds() < (
            MAX_COUNTER_AGE_SECONDS / 2
        ):
            return
        used = await self._hosts.get(row.host).scope_bytes(Scope.parse(row.scope))
        if used is not None:
            await self._store.record_scope_usage(row.host, row.scope, used, now)

    async def _enforce(self, row: QuotaScopeRow, is_new: bool = False) -> None:
        enforced = UNLIMITED if row.enforced_bytes is None else row.enforced_bytes
        if enforced == row.limit_bytes and not (is_new and row.limit_bytes != UNLIMITED):
            return
        if not self._enforces(row.host):
            return
        limit = None if row.limit_bytes == UNLIMITED else row.limit_bytes
        await self._hosts.get(row.host).set_quota(Scope.parse(row.scope), limit)
        await self._store.record_enforced_limit(row.host, row.scope, row.limit_bytes)

    def _enforces(self, host: str) -> bool:
        return Capability.QUOTA in self._hosts.get(host).capabilities

    async def _authorized_row(
        self, caller: Caller, action: str, host: str, scope: str
    ) -> QuotaScopeRow:
        authorizer.require(caller, action)
        self._hosts.get(host)
        kind, _, key = scope.partition(":")
        if kind not in ("user", "project") or not key or "\0" in scope:
            raise InvalidRequest("a quota scope must be user:ID or project:ID", field="scope")
        row = await self._store.get(host, scope)
        if row is None:
            is_known = await self._store.owner_exists(kind, key)
            if action != "quota.write" or not is_known:
                raise NotFound(f"{scope} has no folders on storage host {host}")
            return _empty_scope(host, scope)
        is_of_project = row.project_id is not None and row.project_id in caller.projects
        if not (action == "quota.read" and is_of_project):
            authorizer.require(caller, action, _target(row))
        return row

    def _view(self, row: QuotaScopeRow) -> QuotaScope:
        capabilities = self._capabilities(row.host)
        return QuotaScope(
            host=row.host,
            scope=row.scope,
            kind=row.scope.partition(":")[0],
            domain=row.domain,
            owner=row.owner,
            project=row.project,
            limit_bytes=_limit_or_none(row.limit_bytes),
            policy_bytes=_limit_or_none(row.policy_bytes),
            override_bytes=row.override_bytes,
            used_bytes=row.used_bytes,
            percent=_percent(row),
            counted_at=row.counted_at,
            source="counter" if Capability.FAST_USAGE in capabilities else "scan",
            is_enforced=Capability.QUOTA in capabilities,
        )

    def _capabilities(self, host: str) -> frozenset[Capability]:
        try:
            return self._hosts.get(host).capabilities
        except NotFound:
            return frozenset()  # the host is no longer configured


class Reservation:
    """Bytes of a quota scope that one operation may write; a context manager.

    Reserved bytes count as used, so that concurrent operations together do not exceed the limit.
    At the end of the block, the bytes that are still reserved are released.

    Each manager counts only its own reservations. A standby manager also serves requests, so limits
    are exact only if all clients use one manager (administrator guide, "Monitoring").
    """

    def __init__(
        self, quotas: Quotas, row: VfolderRow, scope: str, uploads: frozenset[str]
    ) -> None:
        self.row = row
        self.key = (row.host, scope)
        self.uploads = uploads
        self.size = 0
        self.has_ended = False
        self._quotas = quotas
        quotas.begin(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    async def require(self, size_bytes: int, more_bytes: int = 0) -> None:
        """Reserve ``size_bytes`` in total and, if the limit allows, up to ``more_bytes`` more.

        Raises
        ------
        QuotaExceeded
            If the limit would be exceeded.
        Conflict
            If the reservation was already released.
        """
        if size_bytes > self.size:
            await self._quotas.extend(self, size_bytes, more_bytes)

    def use(self, size_bytes: int) -> None:
        """Replace all reserved bytes by ``size_bytes`` received bytes."""
        self.size = 0
        self._quotas.add_received(self.row, size_bytes)

    def release(self) -> None:
        """Release the reserved bytes; idempotent."""
        self.has_ended = True
        self._quotas.end(self)


def headroom_bytes(size_bytes: int) -> int:
    """Return how many bytes to reserve in addition, for an operation that may need more later.

    They are a constant fraction of the reserved bytes, so the number of reservations grows with
    the logarithm of the final size. The fraction is small, so that an operation does not withhold
    much space from others.
    """
    return size_bytes // 8


def location_of(row: VfolderRow) -> Location:
    return Location(Scope.parse(row.scope), row.id, row.unmanaged_path)


def _target(row: QuotaScopeRow) -> Target:
    owner = None
    if row.owner_id is not None:
        assert row.owner_role is not None  # set whenever owner_id is set
        owner = Owner(row.owner_id, Role(row.owner_role))
    return Target(row.domain, owner=owner)


def _percent(row: QuotaScopeRow) -> int | None:
    """Return the usage in percent of the limit; None without a limit or before the first count."""
    if row.used_bytes is None or row.limit_bytes == UNLIMITED:
        return None
    return min(100, percent_of(row.used_bytes, row.limit_bytes))


def _limit_or_none(limit: int) -> int | None:
    return None if limit == UNLIMITED else limit


def _empty_scope(host: str, scope: str) -> QuotaScopeRow:
    return QuotaScopeRow(
        host,
        scope,
        None,
        None,
        None,
        None,
        None,
        None,
        UNLIMITED,
        UNLIMITED,
        None,
        None,
        None,
        None,
    )
