"""List models, and clone and deploy them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Target
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, NotFound
from bai_services.core.listing import MAX_LIMIT, ListQuery, Page
from bai_services.core.models.cards import fitting, satisfies, smallest
from bai_services.core.models.records import ModelCard, ModelReadme
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import ResourceSlots
from bai_services.core.serving.definition import parse_definition
from bai_services.core.serving.records import Endpoint
from bai_services.core.serving.variants import VARIANTS
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.tags import separated
from bai_services.db.models.cards import CardRow, CardStore, needs_of

from ..accounts import authorizer
from ..cluster.presets import Presets
from ..folders.vfolders import VFolder, VFolders
from ..serving.endpoints import Endpoints
from ..sessions.requests.options import Options, limits
from .refresher import CardRefresher

_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")
_MAX_ENDPOINT_NAME = 48
_CUSTOM = "custom"


class Models:
    """Manages the models of the stores visible to the caller; ``key`` is a folder's id or name.

    A store is a project of type model-store. Its members and administrators see its models.
    """

    def __init__(
        self,
        store: CardStore,
        refresher: CardRefresher,
        *,
        folders: VFolders,
        endpoints: Endpoints,
        options: Options,
        presets: Presets,
    ) -> None:
        self._store = store
        self._refresher = refresher
        self._folders = folders
        self._endpoints = endpoints
        self._options = options
        self._presets = presets

    async def page(
        self,
        caller: Caller,
        query: ListQuery,
        project: str | None = None,
        is_fitting: bool | None = None,
    ) -> Page[ModelCard]:
        """Return a page of the visible models.

        ``project``: the project whose quotas apply; default: the project that a new session of
        the caller would use. ``is_fitting``: True for models of which a
        replica fits in the quotas, False for the other models, None for all models.
        """
        visible = authorizer.visibility(caller, "model.read")
        maxima = await self._maxima(caller, project)
        resources = None
        if is_fitting is not None:
            known = await self._store.resources(visible)
            suitable = set(fitting(known, maxima or {}))
            resources = suitable if is_fitting else set(known) - suitable
        page = await self._store.page(query, visible, resources)
        return page.with_items([_record(row, maxima) for row in page.items])

    async def get(self, caller: Caller, key: str) -> ModelCard:
        row = await self.find(caller, key)
        return _record(row, await self._maxima(caller, None))

    async def readme(self, caller: Caller, key: str) -> ModelReadme:
        row = await self.find(caller, key)
        return ModelReadme(id=row.id, text=await self._store.readme(row.id))

    async def versions(self, caller: Caller, key: str, query: ListQuery) -> Page[ModelCard]:
        """Return the models of the same project with the same name; each has its own folder."""
        row = await self.find(caller, key)
        same = {"project_id": row.project_id, "name": row.name}
        if not row.name:
            same = {"id": row.id}
        return await self.page(caller, replace(query, filters={**query.filters, **same}))

    async def refresh(self, caller: Caller, key: str) -> ModelCard:
        """Read the card of a folder again, or create its first card."""
        visible = authorizer.visibility(caller, "model.read")
        found = await self._store.folders_named(_checked(key), visible)
        if not found:
            raise _no_model(key)
        if len(found) > 1:
            raise _ambiguous(key, [folder.id for folder in found])
        folder = found[0]
        authorizer.require(caller, "model.refresh", Target(folder.domain, folder.project_id))
        await self._refresher.refresh(folder, is_forced=True)
        return await self.get(caller, folder.id)

    async def clone(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> VFolder:
        """Clone the folder of a model in the background; see ``VFolders.clone``."""
        row = await self.find(caller, key)
        given = {"usage_mode": "model", **spec, "name": spec.get("name") or row.folder}
        return await self._folders.clone(caller, row.id, given)

    async def deploy(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> Endpoint:
        """Create an endpoint that serves a model with the settings of its definition.

        Without a preset and resources, the smallest preset with at least the model's minimum
        resources is used; if no preset is large enough, the minimum resources are used.

        Raises
        ------
        InvalidRequest
            If the definition is missing or not valid, or if neither it nor ``spec`` gives a
            command or runtime variant.
        BaiError
            The errors of ``Endpoints.create``.
        """
        authorizer.require(caller, "endpoint.write")
        row = await self.find(caller, key)
        text = await self._refresher.definition(row.id)
        if text is None:
            raise InvalidRequest(f"folder {row.folder} has no model definition", field="variant")
        definition = await asyncio.to_thread(parse_definition, text)
        variant = spec.get("variant") or _CUSTOM
        command = spec.get("command")
        if variant == _CUSTOM and not (definition.command or command):
            names = ", ".join(name for name in VARIANTS if name != _CUSTOM)
            raise InvalidRequest(
                f"the definition of {row.folder} has no command; choose a runtime variant: {names}",
                field="variant",
            )
        request = {
            name: spec[name]
            for name in ("image", "environ", "shared_memory")
            if spec.get(name) is not None
        }
        request |= await self._resources(caller, row, spec)
        settings = {
            "variant": variant,
            "command": command,
            "model_folder": row.id,
            "model_path": definition.model_path,
            "request": request,
        }
        return await self._endpoints.create(
            caller,
            {
                "name": spec.get("name") or endpoint_name(row.folder),
                "project": spec.get("project"),
                "replicas": spec.get("replicas", 1),
                "is_public": spec.get("is_public", False),
                "settings": {name: value for name, value in settings.items() if value},
                "definition": text if variant == _CUSTOM else None,
            },
        )

    async def _resources(
        self, caller: Caller, row: CardRow, spec: Mapping[str, Any]
    ) -> dict[str, Any]:
        group = spec.get("resource_group")
        if spec.get("preset") or spec.get("resources"):
            given = {name: spec.get(name) for name in ("preset", "resources", "resource_group")}
            return {name: value for name, value in given.items() if value}
        found = await self._options.start_facts(
            caller, spec.get("project"), group, SessionType.INFERENCE
        )
        group = found.group.name
        needs = needs_of(row)
        query = ListQuery(limit=MAX_LIMIT, sort=("name",))
        page = await self._presets.page(caller, query, spec.get("project"), group)
        # Prefer a preset with which the replica can start now.
        for offers in ([each for each in page.items if each.allocatable], page.items):
            preset = smallest([(each, each.resource_slots) for each in offers], needs)
            if preset is not None:
                return {"preset": preset.name, "resource_group": group}
        resources = {"resources": ResourceSlots(needs).format()} if needs else {}
        return {**resources, "resource_group": group}

    async def find(self, caller: Caller, key: str) -> CardRow:
        """Return a visible card.

        Raises
        ------
        NotFound
            If no visible card matches.
        Conflict
            If several folders have the name; the details contain the ids.
        """
        visible = authorizer.visibility(caller, "model.read")
        found = await self._store.named(_checked(key), visible)
        if not found:
            raise _no_model(key)
        if len(found) > 1:
            raise _ambiguous(key, [row.id for row in found])
        return found[0]

    async def _maxima(self, caller: Caller, project: str | None) -> ResourceSlots | None:
        """Return the maximum resources of a session; None if the caller can create no session."""
        try:
            authorizer.require(caller, "session.create")
            found = await self._options.start_facts(caller, project, None, SessionType.INFERENCE)
        except BaiError:
            return None
        return ResourceSlots.parse({slot: each.max for slot, each in limits(found).items()})


def endpoint_name(folder: str) -> str:
    """Return a name for the endpoint of a folder."""
    name = _NOT_IN_NAME.sub("-", folder.lower()).strip("-")
    name = name if name[:1].isalpha() else f"model-{name}"
    return name[:_MAX_ENDPOINT_NAME].strip("-") if len(name) > 1 else f"model-{name}"


def _record(row: CardRow, maxima: ResourceSlots | None) -> ModelCard:
    needs = needs_of(row)
    values = fields_of(row)
    values |= {
        "frameworks": separated(row.frameworks),
        "labels": separated(row.labels),
        "min_resources": needs.format(),
        "is_fitting": None if maxima is None else satisfies(maxima, needs),
    }
    return ModelCard(**values)


def _checked(key: str) -> str:
    if "\0" in key:
        raise _no_model(key)
    return key


def _no_model(key: str) -> NotFound:
    return NotFound(f"there is no model {key!r}, or you may not see it", model=key)


def _ambiguous(key: str, ids: list[str]) -> Conflict:
    return Conflict(
        f"there are {len(ids)} models in folders named {key!r}; use an id: {', '.join(ids)}",
        candidates=ids,
    )
