"""Manage the images of sessions and their aliases."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.image_labels import (
    ImageLabels,
    check_bounds,
    parse_labels,
    parse_new_labels,
)
from bai_services.core.cluster.model import canonical_image
from bai_services.core.cluster.records import Image, ImageAlias
from bai_services.core.cluster.registries import registry_host
from bai_services.core.coded_text import refusal
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.resources import ResourceSlots
from bai_services.db.cluster.images import ImageAliasStore, ImageRow, ImageStore

from ..accounts import authorizer
from ..context import ManagerContext

_BOUNDS = ("min_slots", "max_slots")


class Images:
    """List, get, create, update and delete images.

    ``min_slots`` and ``max_slots`` are stored when an image is registered or changed; the other
    facts are parsed from the labels on each read.
    """

    def __init__(self, context: ManagerContext) -> None:
        self._store = ImageStore(context.database)
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Image]:
        authorizer.require(caller, "image.read")
        page = await self._store.page(query, _reader(caller))
        return page.with_items([_image(row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> Image:
        """Return the image with that id, alias or name; a name without a tag means ``latest``.

        Raises
        ------
        NotFound
            If no image matches.
        InvalidRequest
            If the name exists for several architectures.
        """
        authorizer.require(caller, "image.read")
        image, reader_id = await self._one(key), _reader(caller)
        if reader_id is not None and not await self._store.is_visible(image.id, reader_id):
            raise NotFound(refusal(RefusalText.NO_IMAGE, name=key), image=key)
        return _image(image)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Image:
        """Register an image; resource limits not given are taken from its labels.

        Raises
        ------
        InvalidRequest
            If the name or a label is malformed, or a minimum exceeds its maximum.
        AlreadyExists
            If an image with that name and architecture exists.
        """
        authorizer.require(caller, "image.write")
        facts = parse_new_labels(spec.get("labels", {}))
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "architecture": platform.machine(),
            "description": "",
            "digest": "",
            "size_bytes": 0,
            "labels": {},
            "is_active": True,
            "registry_digest": "",
            **spec,
            "name": canonical_image(spec["name"]),
            **_bounds(spec, facts),
        }
        values["registry"] = registry_host(values["name"])
        check_bounds(values["min_slots"], values["max_slots"])
        entry = self._entry(caller, "create", values["name"])
        return _image(await self._store.create(values, entry))

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Image:
        """Update an image; new labels replace the resource limits that ``changes`` does not set."""
        authorizer.require(caller, "image.write")
        image = await self._one(key)
        values = dict(changes)
        if "name" in values:
            values["name"] = canonical_image(values["name"])
            values["registry"] = registry_host(values["name"])
        if "labels" in values:
            values.update(_bounds(values, parse_new_labels(values["labels"])))
        for field in _BOUNDS:
            if field in values and not isinstance(values[field], ResourceSlots):
                values[field] = ResourceSlots.parse(values[field])
        check_bounds(
            values.get("min_slots", image.min_slots), values.get("max_slots", image.max_slots)
        )
        details = self._audit.changes(fields_of(image), values)
        entry = self._entry(caller, "update", image.name, **details)
        return _image(await self._store.update(image.id, values, entry))

    async def delete(self, caller: Caller, key: str) -> None:
        authorizer.require(caller, "image.write")
        image = await self._one(key)
        await self._store.delete(image.id, self._entry(caller, "delete", image.name))

    async def _one(self, key: str) -> ImageRow:
        return await resolve_image(self._store, key)

    def _entry(self, caller: Caller, verb: str, name: str, **details: Any) -> AuditEntry:
        return self._audit.entry(caller, f"image.{verb}", name, **details)


class ImageAliases:
    """Manage aliases: short names that refer to one image each."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = ImageAliasStore(context.database)
        self._images = ImageStore(context.database)
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[ImageAlias]:
        authorizer.require(caller, "image.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, alias: str) -> ImageAlias:
        authorizer.require(caller, "image.read")
        return await self._store.one(alias)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> ImageAlias:
        """Create ``alias`` for ``image`` (id, alias or name).

        Raises
        ------
        InvalidRequest
            If the alias is malformed, or the image name exists for several architectures.
        AlreadyExists
            If the alias exists.
        NotFound
            If the image does not exist.
        """
        authorizer.require(caller, "image.write")
        alias = check_slug("image alias", spec["alias"])
        image = await resolve_image(self._images, spec["image"])
        values = {"alias": alias, "created_at": self._clock(), "image_id": image.id}
        return await self._store.create(values, self._entry(caller, "create", alias))

    async def update(self, caller: Caller, alias: str, changes: Mapping[str, Any]) -> ImageAlias:
        authorizer.require(caller, "image.write")
        if "image" not in changes:
            return await self._store.one(alias)
        image = await resolve_image(self._images, changes["image"])
        entry = self._entry(caller, "update", alias, image=image.name)
        return await self._store.update(alias, image.id, entry)

    async def delete(self, caller: Caller, alias: str) -> None:
        authorizer.require(caller, "image.write")
        await self._store.delete(alias, self._entry(caller, "delete", alias))

    def _entry(self, caller: Caller, verb: str, alias: str, **details: Any) -> AuditEntry:
        return self._audit.entry(caller, f"image-alias.{verb}", alias, **details)


def _reader(caller: Caller) -> str | None:
    """Return the user whose images the caller may see; None: administrators see all images."""
    return caller.user_id if caller.role in (Role.USER, Role.SESSION) else None


async def resolve_image(store: ImageStore, key: str) -> ImageRow:
    """Return the image with that id, alias or name.

    Raises
    ------
    NotFound
        If no image matches.
    InvalidRequest
        If the name exists for several architectures.
    """
    try:
        canonical = canonical_image(key)
    except InvalidRequest:
        canonical = None
    rows = await store.named(key, canonical)
    if not rows:
        raise NotFound(refusal(RefusalText.NO_IMAGE, name=key), image=key)
    if len(rows) > 1:
        architectures = [row.architecture for row in rows]
        raise InvalidRequest(
            refusal(RefusalText.IMAGE_AMBIGUOUS, name=key, names=", ".join(architectures)),
            image=key,
        )
    return rows[0]


def _bounds(fields: Mapping[str, Any], facts: ImageLabels) -> dict[str, ResourceSlots]:
    from_labels = {"min_slots": facts.min_slots, "max_slots": facts.max_slots}
    return {
        field: ResourceSlots.parse(fields[field]) if fields.get(field) else from_labels[field]
        for field in _BOUNDS
    }


def _image(row: ImageRow) -> Image:
    """Return an image with the content of its labels."""
    facts = parse_labels(row.labels)
    preferred = facts.preferred_shared_memory_bytes
    return Image(
        **fields_of(row),
        apps=facts.apps,
        features=sorted(facts.features),
        role=facts.role,
        is_private=facts.is_private,
        preferred_slots=facts.preferred_slots,
        preferred_shared_memory=(
            None if preferred is None else ResourceSlots({"mem": preferred}).format().get("mem")
        ),
    )
