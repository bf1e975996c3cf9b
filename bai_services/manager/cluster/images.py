"""Images of sessions, and their aliases."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.image_labels import ImageLabels, check_bounds, parse_labels
from bai_services.core.cluster.model import canonical_image
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.resources import ResourceSlots
from bai_services.db.cluster.images import ImageAliasStore, ImageStore, Row

from ..accounts import authorizer
from ..context import ManagerContext

_BOUNDS = ("min_slots", "max_slots")


class Images:
    """One method per verb. The labels of an image are read when it is registered."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = ImageStore(context.database)
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Row]:
        authorizer.require(caller, "image.read")
        page = await self._store.page(query)
        items = [_shown(row) for row in page.items]
        return Page(items, page.total, page.limit, page.offset)

    async def get(self, caller: Caller, key: str) -> Row:
        """Return the image with that id, alias or name (``latest`` without a tag).

        Raises
        ------
        NotFound
            If there is none.
        InvalidRequest
            If the name exists for several architectures.
        """
        authorizer.require(caller, "image.read")
        return _shown(await self._one(key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Row:
        """Register an image; amounts that are not given are taken from its labels.

        Raises
        ------
        InvalidRequest
            If the name or a label is malformed, or amounts contradict each other.
        AlreadyExists
            If there is one of that name and architecture.
        """
        authorizer.require(caller, "image.write")
        facts = parse_labels(spec.get("labels", {}))
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "architecture": platform.machine(),
            "description": "",
            "digest": "",
            "size_bytes": 0,
            "labels": {},
            "is_active": True,
            **spec,
            "name": canonical_image(spec["name"]),
            **_bounds(spec, facts),
        }
        check_bounds(values["min_slots"], values["max_slots"])
        entry = self._entry(caller, "create", values["name"])
        return _shown(await self._store.create(values, entry))

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Row:
        """Change an image; new labels also change its amounts unless these are given."""
        authorizer.require(caller, "image.write")
        image = await self._one(key)
        values = dict(changes)
        if "name" in values:
            values["name"] = canonical_image(values["name"])
        if "labels" in values:
            values.update(_bounds(values, parse_labels(values["labels"])))
        for field in _BOUNDS:
            if field in values and not isinstance(values[field], ResourceSlots):
                values[field] = ResourceSlots.parse(values[field])
        after = {**image, **values}
        check_bounds(after["min_slots"], after["max_slots"])
        entry = self._entry(caller, "update", image["name"], fields=sorted(changes))
        return _shown(await self._store.update(image["id"], values, entry))

    async def delete(self, caller: Caller, key: str) -> None:
        authorizer.require(caller, "image.write")
        image = await self._one(key)
        await self._store.delete(image["id"], self._entry(caller, "delete", image["name"]))

    async def _one(self, key: str) -> Row:
        return await only_image(self._store, key)

    def _entry(self, caller: Caller, verb: str, name: str, **details: Any) -> Any:
        return self._audit.entry(caller, f"image.{verb}", name, **details)


class ImageAliases:
    """Short names; an alias names one image and can be changed to name another."""

    def __init__(self, context: ManagerContext) -> None:
        self._store = ImageAliasStore(context.database)
        self._images = ImageStore(context.database)
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Row]:
        authorizer.require(caller, "image.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, alias: str) -> Row:
        authorizer.require(caller, "image.read")
        return await self._store.one(alias)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Row:
        """Create ``alias`` as a name of ``image`` (id or name).

        Raises
        ------
        AlreadyExists
            If the alias is taken.
        NotFound
            If there is no such image.
        """
        authorizer.require(caller, "image.write")
        alias = check_slug("image alias", spec["alias"])
        image = await only_image(self._images, spec["image"])
        values = {"alias": alias, "created_at": self._clock(), "image_id": image["id"]}
        return await self._store.create(values, self._entry(caller, "create", alias))

    async def update(self, caller: Caller, alias: str, changes: Mapping[str, Any]) -> Row:
        authorizer.require(caller, "image.write")
        if "image" not in changes:
            return await self._store.one(alias)
        image = await only_image(self._images, changes["image"])
        entry = self._entry(caller, "update", alias, image=image["name"])
        return await self._store.update(alias, image["id"], entry)

    async def delete(self, caller: Caller, alias: str) -> None:
        authorizer.require(caller, "image.write")
        await self._store.delete(alias, self._entry(caller, "delete", alias))

    def _entry(self, caller: Caller, verb: str, alias: str, **details: Any) -> Any:
        return self._audit.entry(caller, f"image-alias.{verb}", alias, **details)


async def only_image(store: ImageStore, key: str) -> Row:
    """Return the one image that ``key`` names: an id, an alias or a name.

    Raises
    ------
    NotFound
        If there is none.
    InvalidRequest
        If the name exists for several architectures.
    """
    try:
        canonical = canonical_image(key)
    except InvalidRequest:
        canonical = None
    rows = await store.named(key, canonical)
    if not rows:
        raise NotFound(f"there is no image {key!r}", image=key)
    if len(rows) > 1:
        built = [row["architecture"] for row in rows]
        raise InvalidRequest(f"image {key!r} exists for {', '.join(built)}; use its id", image=key)
    return rows[0]


def _bounds(fields: Mapping[str, Any], facts: ImageLabels) -> dict[str, ResourceSlots]:
    of_labels = {"min_slots": facts.min_slots, "max_slots": facts.max_slots}
    return {
        field: ResourceSlots.parse(fields[field]) if fields.get(field) else of_labels[field]
        for field in _BOUNDS
    }


def _shown(row: Row) -> Row:
    """Return an image with the content of its labels, in the format of the REST API."""
    facts = parse_labels(row["labels"])
    preferred = facts.preferred_shared_memory_bytes
    return {
        **row,
        "apps": facts.apps,
        "features": sorted(facts.features),
        "role": facts.role,
        "is_private": facts.is_private,
        "preferred_slots": facts.preferred_slots,
        "preferred_shared_memory": (
            None if preferred is None else ResourceSlots({"mem": preferred}).format().get("mem")
        ),
    }
