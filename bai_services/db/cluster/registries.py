"""Store of image registries: their projects, scans, and the images that scans find."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.registries import (
    MAX_REGISTRIES,
    OPEN_SCANS,
    ImageRegistry,
    ScanEvent,
    ScanStatus,
    next_scan_status,
)
from bai_services.core.coded_text import refusal
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    InUse,
    InvalidTransition,
    NotFound,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.core.refusal_texts import RefusalText

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..records import first_record, records
from ..scheduling.caps import CHUNK
from ..tables.accounts import projects
from ..tables.cluster import custom_images, image_registries, image_registry_projects, images
from .deleted_custom_images import record_deleted
from .images import find_images, require_unused_image

_SPECIAL: Mapping[str, Any] = {"has_password": image_registries.c.password_encrypted != ""}
_FIELDS = {
    name: _SPECIAL[name] if name in _SPECIAL else image_registries.c[name]
    for name in ImageRegistry.__dataclass_fields__
    if name != "allowed_projects"
}
_ROWS = sa.select(*(column.label(name) for name, column in _FIELDS.items()))
_LISTING = Listing(
    columns={
        name: column
        for name, column in _FIELDS.items()
        if name not in ("repositories", "patterns", "ca_certificate")
    },
    default_sort=("name",),
)
# Maximum number of characters of an image's problem.
MAX_PROBLEM = 255
_COUNTS = ("scan_tags", "scan_checked", "scan_new", "scan_changed", "scan_skipped", "scan_removed")


@dataclass(frozen=True, slots=True)
class PullSecret:
    """User name and encrypted password for the images of a registry."""

    host: str
    username: str
    password_encrypted: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScanRow:
    """An open scan, with the data for reading the registry."""

    scan_id: str
    password_encrypted: str = field(repr=False)
    registry: ImageRegistry


class RegistryStore:
    """Reads and writes image registries. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[ImageRegistry]:
        async with self._db.read() as tx:
            page = await _LISTING.page(tx, _ROWS, query, _registry)
            return page.with_items(await _with_projects(tx, page.items))

    async def all(self) -> list[ImageRegistry]:
        async with self._db.read() as tx:
            found = records(_registry, await tx.execute(_ROWS.order_by(image_registries.c.name)))
            return await _with_projects(tx, found)

    async def find(self, key: str) -> ImageRegistry:
        """Return the registry with that name.

        Raises
        ------
        NotFound
            If there is no such registry.
        """
        async with self._db.read() as tx:
            return await _one(tx, _is_named(key))

    async def create(
        self, values: Mapping[str, Any], project_ids: Sequence[str], audit: AuditEntry
    ) -> ImageRegistry:
        """Insert a registry.

        Raises
        ------
        AlreadyExists
            If another registry has the name or the host.
        Conflict
            If there are too many registries.
        """
        async with self._db.write() as tx:
            count = await tx.scalar(sa.select(sa.func.count()).select_from(image_registries)) or 0
            if count >= MAX_REGISTRIES:
                raise Conflict(refusal(RefusalText.TOO_MANY_REGISTRIES, count=count))
            with raise_on_violation(_already_exists(values)):
                await tx.execute(image_registries.insert().values(values))
            await _set_projects(tx, values["id"], project_ids)
            await record(tx, audit)
            return await _one(tx, _has_id(values["id"]))

    async def update(
        self,
        key: str,
        changes: Mapping[str, Any],
        project_ids: Sequence[str] | None,
        audit: AuditEntry,
    ) -> ImageRegistry:
        """Change a registry; with ``project_ids`` None, the allowed projects remain."""
        async with self._db.write() as tx:
            found = await _one(tx, _is_named(key))
            if changes:
                with raise_on_violation(_already_exists({"host": found.host, **changes})):
                    of_row = image_registries.update().where(_has_id(found.id))
                    await tx.execute(of_row.values(changes))
            if project_ids is not None:
                await _set_projects(tx, found.id, project_ids)
            await record(tx, audit)
            return await _one(tx, _has_id(found.id))

    async def delete(self, registry_id: str, audit: AuditEntry) -> None:
        """Delete a registry; its images remain registered."""
        async with self._db.write() as tx:
            deleted = await tx.execute(image_registries.delete().where(_has_id(registry_id)))
            if not deleted.rowcount:
                raise _no_registry()
            await record(tx, audit)

    async def secrets(self) -> list[PullSecret]:
        """Return the secrets of enabled registries with a password."""
        select = sa.select(
            image_registries.c.host,
            image_registries.c.username,
            image_registries.c.password_encrypted,
        ).where(image_registries.c.is_enabled, image_registries.c.password_encrypted != "")
        async with self._db.read() as tx:
            return records(PullSecret, await tx.execute(select))

    async def open_scans(self) -> list[ScanRow]:
        select = sa.select(
            *_ROWS.selected_columns,
            image_registries.c.scan_id,
            image_registries.c.password_encrypted,
        ).where(image_registries.c.scan_status.in_(sorted(OPEN_SCANS)))
        async with self._db.read() as tx:
            rows = (await tx.execute(select.order_by(image_registries.c.name))).mappings().all()
        found = []
        for row in rows:
            values = dict(row)
            scan_id, password = values.pop("scan_id"), values.pop("password_encrypted")
            found.append(ScanRow(scan_id, password, _registry(**values)))
        return found

    async def request_scan(
        self, key: str, requested_by: str, now: datetime, audit: AuditEntry | None = None
    ) -> ImageRegistry:
        """Queue a scan of a registry.

        Raises
        ------
        InvalidTransition
            If the last scan has not ended.
        """
        values = {
            "scan_id": str(uuid.uuid4()),
            "scan_requested_by": requested_by,
            "scan_started_at": now,
            "scan_ended_at": None,
            "scan_problem": "",
            **dict.fromkeys(_COUNTS, 0),
        }
        return await self._apply(key, None, ScanEvent.REQUESTED, values, audit)

    async def apply(
        self,
        key: str,
        scan_id: str | None,
        event: ScanEvent,
        changes: Mapping[str, Any] | None = None,
        audit: AuditEntry | None = None,
    ) -> ImageRegistry:
        """Apply an event to a scan; with ``scan_id`` None, to the last scan.

        Raises
        ------
        InvalidTransition
            If the event is not valid in the status of the scan, or another scan has begun.
        NotFound
            If the registry does not exist.
        """
        return await self._apply(key, scan_id, event, dict(changes or {}), audit)

    async def known_digests(self, host: str) -> dict[str, str]:
        """Return the digest of each registered image of a registry, as found by the last scan.

        Names with different digests for several architectures are omitted.
        """
        select = sa.select(images.c.name, images.c.registry_digest).where(
            images.c.registry == host, images.c.registry_digest != ""
        )
        found: dict[str, set[str]] = defaultdict(set)
        async with self._db.read() as tx:
            for name, digest in await tx.execute(select):
                found[name].add(digest)
        return {name: digests.pop() for name, digests in found.items() if len(digests) == 1}

    async def scanned_names(self, host: str) -> dict[str, str]:
        """Return the problem of each image that scans or pulls have found in a registry, by name.

        Custom images are omitted, because their owners delete them.
        """
        is_custom = sa.exists().where(custom_images.c.image == images.c.name)
        select = sa.select(images.c.name, images.c.registry_problem).where(
            images.c.registry == host, images.c.registry_digest != "", ~is_custom
        )
        async with self._db.read() as tx:
            return {name: problem for name, problem in await tx.execute(select)}

    async def settle_tags(
        self,
        registry_id: str,
        scan_id: str,
        deleted: Sequence[str],
        existing: Sequence[str],
        entry: Callable[[str], AuditEntry],
    ) -> bool:
        """Delete the images of tags that were deleted in the registry.

        Images in use remain, with the reason as their problem. ``existing``: names of images whose
        tags exist again. ``entry`` returns the audit entry of a deleted image. If the scan is no
        longer running, change nothing and return False.
        """
        async with self._db.write() as tx:
            is_running = _is_running(registry_id, scan_id)
            if not await _lock_scan(tx, is_running, {}):
                return False
            for start in range(0, len(existing), CHUNK):
                of_chunk = images.c.name.in_(existing[start : start + CHUNK])
                await tx.execute(images.update().where(of_chunk).values(registry_problem=""))
            removed = 0
            for name in deleted:
                removed += await _delete_images(tx, name, entry)
            if removed:
                total = image_registries.c.scan_removed + removed
                await tx.execute(
                    image_registries.update().where(is_running).values(scan_removed=total)
                )
            return True

    async def record_images(
        self,
        registry_id: str,
        scan_id: str,
        found: Sequence[Mapping[str, Any]],
        counts: Mapping[str, int],
        now: datetime,
    ) -> bool:
        """Insert or update the images that a scan has found, and add ``counts`` to its progress.

        ``found``: columns of images, with the digest in ``registry_digest``. A registered image
        keeps its labels and its digest, if it has one. If the scan is no longer running, change
        nothing and return False.
        """
        async with self._db.write() as tx:
            is_running = _is_running(registry_id, scan_id)
            if not await _lock_scan(tx, is_running, counts):
                return False
            new = changed = 0
            for start in range(0, len(found), CHUNK):
                chunk = found[start : start + CHUNK]
                added, moved = await _record_chunk(tx, chunk, now)
                new, changed = new + added, changed + moved
            if new or changed:
                totals = {
                    "scan_new": image_registries.c.scan_new + new,
                    "scan_changed": image_registries.c.scan_changed + changed,
                }
                await tx.execute(image_registries.update().where(is_running).values(totals))
            return True

    async def _apply(
        self,
        key: str,
        scan_id: str | None,
        event: ScanEvent,
        values: Mapping[str, Any],
        audit: AuditEntry | None,
    ) -> ImageRegistry:
        async with self._db.write() as tx:
            # Lock the row, so that two events are applied one after the other.
            lock = image_registries.update().where(_is_named(key))
            await tx.execute(lock.values(scan_id=image_registries.c.scan_id))
            found = await _one(tx, _is_named(key))
            of_row = _has_id(found.id)
            current = await tx.scalar(sa.select(image_registries.c.scan_id).where(of_row))
            if scan_id is not None and current != scan_id:
                raise InvalidTransition(refusal(RefusalText.OTHER_SCAN))
            status = next_scan_status(ScanStatus(found.scan_status), event)
            await tx.execute(
                image_registries.update().where(of_row).values(scan_status=status, **values)
            )
            if audit is not None:
                await record(tx, audit)
            return await _one(tx, _has_id(found.id))


def _is_running(registry_id: str, scan_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        image_registries.c.id == registry_id,
        image_registries.c.scan_id == scan_id,
        image_registries.c.scan_status == ScanStatus.RUNNING,
    )


async def _lock_scan(
    tx: AsyncConnection, is_running: sa.ColumnElement[bool], counts: Mapping[str, int]
) -> bool:
    """Lock a scan, so that a concurrent cancellation waits, and add ``counts`` to its progress.

    Return False if it is no longer running.
    """
    values = {
        name: image_registries.c[name] + amount
        for name, amount in {"scan_checked": 0, **counts}.items()
    }
    locked = await tx.execute(image_registries.update().where(is_running).values(values))
    return bool(locked.rowcount)


async def _delete_images(tx: AsyncConnection, name: str, entry: Callable[[str], AuditEntry]) -> int:
    """Delete the unused images with a name, one for each architecture; return their number."""
    removed = 0
    # Lock the rows, so that no project or alias begins to use them.
    of_name = images.update().where(images.c.name == name)
    await tx.execute(of_name.values(created_at=images.c.created_at))
    for image in await find_images(tx, name):
        try:
            await require_unused_image(tx, image, forbids_aliases=True)
        except InUse as error:
            problem = f"the tag was deleted in the registry; {error.message}"[:MAX_PROBLEM]
            of_image = images.update().where(images.c.id == image.id)
            await tx.execute(of_image.values(registry_problem=problem))
            continue
        await record_deleted(tx, custom_images.c.image_id == image.id)
        await tx.execute(images.delete().where(images.c.id == image.id))
        await record(tx, entry(image.name))
        removed += 1
    return removed


async def _record_chunk(
    tx: AsyncConnection, found: Sequence[Mapping[str, Any]], now: datetime
) -> tuple[int, int]:
    """Insert or update images; return the numbers of new images and of changed digests."""
    names = sorted({image["name"] for image in found})
    rows = await tx.execute(
        sa.select(
            images.c.id,
            images.c.name,
            images.c.architecture,
            images.c.digest,
            images.c.registry_digest,
        ).where(images.c.name.in_(names))
    )
    registered = {(row.name, row.architecture): row for row in rows}
    new, changed = [], 0
    for image in found:
        row = registered.get((image["name"], image["architecture"]))
        digest = image["registry_digest"]
        if row is None:
            new.append({**image, "id": str(uuid.uuid4()), "created_at": now, "digest": digest})
            continue
        if row.registry_digest == digest and row.digest:
            continue
        values = {"registry_digest": digest}
        if not row.digest:
            values |= {"digest": digest, "size_bytes": image["size_bytes"]}
        elif row.digest != digest:
            changed += 1
        await tx.execute(images.update().where(images.c.id == row.id).values(values))
    if new:
        await tx.execute(images.insert(), new)
    return len(new), changed


async def _set_projects(tx: AsyncConnection, registry_id: str, project_ids: Sequence[str]) -> None:
    of_registry = image_registry_projects.c.registry_id == registry_id
    await tx.execute(image_registry_projects.delete().where(of_registry))
    rows = [{"registry_id": registry_id, "project_id": key} for key in sorted(set(project_ids))]
    if rows:
        with raise_on_violation(NotFound(refusal(RefusalText.PROJECT_REMOVED))):
            await tx.execute(image_registry_projects.insert(), rows)


def _is_named(name: str) -> sa.ColumnElement[bool]:
    return image_registries.c.name == name


def _has_id(registry_id: str) -> sa.ColumnElement[bool]:
    return image_registries.c.id == registry_id


async def _one(tx: AsyncConnection, condition: sa.ColumnElement[bool]) -> ImageRegistry:
    found = first_record(_registry, await tx.execute(_ROWS.where(condition)))
    if found is None:
        raise _no_registry()
    return (await _with_projects(tx, [found]))[0]


async def _with_projects(
    tx: AsyncConnection, registries: Sequence[ImageRegistry]
) -> list[ImageRegistry]:
    keys = [registry.id for registry in registries]
    rows = await tx.execute(
        sa.select(image_registry_projects.c.registry_id, projects.c.domain, projects.c.name)
        .join_from(
            image_registry_projects,
            projects,
            image_registry_projects.c.project_id == projects.c.id,
        )
        .where(image_registry_projects.c.registry_id.in_(keys))
        .order_by(projects.c.domain, projects.c.name)
    )
    allowed: dict[str, list[str]] = defaultdict(list)
    for registry_id, domain, name in rows:
        allowed[registry_id].append(f"{domain}/{name}")
    return [replace(found, allowed_projects=allowed[found.id]) for found in registries]


def _registry(**row: Any) -> ImageRegistry:
    return ImageRegistry(
        **{**row, "has_password": bool(row["has_password"]), "allowed_projects": ()}
    )


def _already_exists(values: Mapping[str, Any]) -> AlreadyExists:
    return AlreadyExists(
        refusal(RefusalText.REGISTRY_EXISTS, host=values["host"]), host=values["host"]
    )


def _no_registry() -> NotFound:
    return NotFound(refusal(RefusalText.NO_REGISTRY))
