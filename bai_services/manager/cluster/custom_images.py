"""Create custom images by commits of sessions or builds of recipes; list, share and delete them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.custom_images import (
    BuildLog,
    CommitEvent,
    CommitRequest,
    CommitStatus,
    CustomImage,
    Visibility,
    check_commit_labels,
    check_custom_name,
    custom_image_name,
    labels_of,
)
from bai_services.core.cluster.recipes import MAX_LOG_CHARACTERS, check_recipe
from bai_services.core.cluster.registries import registry_host
from bai_services.core.coded_text import TextTemplate, refusal
from bai_services.core.errors import BaiError, Conflict, Forbidden, InvalidTransition, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.lifecycle import ENDED, SessionType, Status
from bai_services.core.sessions.spec import spec_of
from bai_services.db.cluster.custom_images import CustomImageRow, CustomImageStore
from bai_services.db.cluster.image_pulls import ImagePullStore
from bai_services.db.cluster.images import ImageRow, ImageStore
from bai_services.db.cluster.registries import RegistryStore
from bai_services.db.sessions.rows import SessionKernels, SessionRow
from bai_services.db.sessions.store import SessionStore

from ..accounts import authorizer
from ..context import ManagerContext
from ..sessions.sessions import Sessions, target_of
from .pull_secrets import PullSecrets

COMMIT = "commit"
DISCARD = "discard"
PUSH_STAGE, BUILD_STAGE = "push", "build"
# The command of a session that reserves the resources of a build.
WAIT_COMMAND = "exec sleep 86400"
MAX_MESSAGE_CHARACTERS = 500
MAX_DIGEST_CHARACTERS = 128
# Another manager may have created commits, so the open ones are read again after this time.
CACHE_TTL_SECONDS = 5.0
# Interval of the search for images whose commit was cancelled or whose custom image was deleted.
DISCARD_SECONDS = 60.0


class CustomImages:
    """Creates commits, passes them to agents, and registers the images that they make."""

    def __init__(
        self,
        context: ManagerContext,
        sessions: Sessions,
        registries: RegistryStore,
        secrets: PullSecrets,
        *,
        registry: str,
        max_bytes: int,
        builds_recipes: bool,
        build_timeout_seconds: int,
        wake: Callable[[Iterable[str]], None],
    ) -> None:
        """``registry``: name of the registry object for the images; empty: they stay on the agent.

        ``max_bytes``: maximum size of the changes in a commit; 0: no limit.
        ``builds_recipes``: whether users may build images from recipes.
        """
        self._store = CustomImageStore(context.database)
        self._images = ImageStore(context.database)
        self._sessions = sessions
        self._session_store = SessionStore(context.database)
        self._registries = registries
        self._secrets = secrets
        self._registry = registry
        self._max_bytes = max_bytes
        self._builds_recipes = builds_recipes
        self._build_timeout_seconds = build_timeout_seconds
        # An attribute, so that tests can set a shorter time.
        self.discard_seconds = DISCARD_SECONDS
        self._wake = wake
        self._clock = context.clock
        self._audit = context.audit
        # Open commits by agent, and the monotonic time at which they were read.
        self._open: tuple[float, Mapping[str, Sequence[CustomImageRow]]] | None = None
        self._agents = ImagePullStore(context.database)
        # For each agent, the images that it must remove, and the monotonic time at which they were
        # read.
        self._discarded: tuple[float, Mapping[str, Sequence[str]]] | None = None

    async def page(self, caller: Caller, query: ListQuery) -> Page[CustomImage]:
        """Return the caller's custom images, those of the users that the caller may see, and those
        that are shared with the caller.
        """
        visible = authorizer.visibility(caller, "custom-image.read")
        page = await self._store.page(query, visible, caller.user_id or "")
        return page.with_items([_shown(row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> CustomImage:
        authorizer.require(caller, "custom-image.read")
        row = await self._store.find(key)
        is_shared = row.status == CommitStatus.DONE and (
            row.visibility == Visibility.PUBLIC
            or (row.visibility == Visibility.PROJECT and row.project_id in caller.projects)
        )
        if not is_shared:
            authorizer.require(caller, "custom-image.read", _target(row))
        return _shown(row)

    async def commit(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> CustomImage:
        """Request the commit of a running session; the image belongs to the session's owner.

        Raises
        ------
        Conflict
            If the session is not a running interactive session with one kernel, or its commit has
            not ended.
        InvalidRequest
            If the name or a label is not valid.
        AlreadyExists
            If the owner has a custom image with this name.
        QuotaExceeded
            If the owner or the project has too many custom images.
        Forbidden
            If the caller may not commit the session, or not share the image so widely.
        """
        authorizer.require(caller, "custom-image.write")
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        authorizer.require(caller, "custom-image.write", target_of(row))
        name, labels = check_custom_name(spec["name"]), check_commit_labels(spec.get("labels", {}))
        visibility = Visibility(spec.get("visibility", Visibility.PRIVATE))
        _require_sharing(caller, visibility, row.domain, row.project_id)
        view = await self._session_store.with_kernels(row.id)
        agent_id = _committing_agent(view)
        values = {
            **await self._new_row(str(uuid.uuid4()), row, name, visibility),
            "description": spec.get("description", ""),
            "labels": labels,
            "kernel_id": view.kernels[0].id,
            "agent_id": agent_id,
        }
        entry = self._audit.entry(
            caller,
            "session.commit",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            image=values["image"],
            visibility=visibility,
        )
        made = await self._store.create(values, entry)
        self.forget()
        self._wake([agent_id])
        return _shown(made)

    async def build(self, caller: Caller, spec: Mapping[str, Any]) -> CustomImage:
        """Build an image from a recipe, in a batch session that reserves the resources.

        The session waits in the queue like others. When it runs, its agent builds the recipe with
        the session's limits and network, but without its folders, variables and credentials.

        Raises
        ------
        Forbidden
            If the installation does not build recipes, or the caller may not share the image so
            widely.
        InvalidRequest
            If the name, a label or the recipe is not valid.
        AlreadyExists
            If the caller has a custom image with this name.
        QuotaExceeded
            If the caller or the project has too many custom images.
        BaiError
            The errors of ``Sessions.create``.
        """
        authorizer.require(caller, "custom-image.write")
        if not self._builds_recipes:
            raise Forbidden(
                refusal(RefusalText.RECIPES_DISABLED),
                action="custom-image.write",
            )
        name, labels = check_custom_name(spec["name"]), check_commit_labels(spec.get("labels", {}))
        recipe = check_recipe(spec["recipe"])
        visibility = Visibility(spec.get("visibility", Visibility.PRIVATE))
        custom_id = str(uuid.uuid4())
        names = ("image", "project", "resource_group", "resources")
        request = {field: spec[field] for field in names if spec.get(field)}
        request |= {
            "name": f"build-{name[:20].lower().strip('-_')}-{custom_id[:8]}",
            "type": SessionType.BATCH,
            "startup_command": WAIT_COMMAND,
            "batch_timeout": self._build_timeout_seconds,
        }
        session, _ = await self._sessions.create(caller, spec_of(request))
        try:
            row = await self._sessions.find_visible(caller, session.id)
            _require_sharing(caller, visibility, row.domain, row.project_id)
            values = {
                **await self._new_row(custom_id, row, name, visibility),
                "description": spec.get("description", ""),
                "labels": labels,
                # Set when the session runs.
                "kernel_id": "",
                "agent_id": "",
                "is_built": True,
                "recipe": recipe,
            }
            entry = self._audit.entry(
                caller,
                "custom-image.build",
                custom_id,
                domain=row.domain,
                owner_id=row.owner_id,
                name=name,
                image=values["image"],
                visibility=visibility,
            )
            made = await self._store.create(values, entry)
        except BaiError:
            await self._end(session.id, name)
            raise
        self.forget()
        return _shown(made)

    async def _new_row(
        self, custom_id: str, session: SessionRow, name: str, visibility: Visibility
    ) -> dict[str, Any]:
        """Return the columns that a commit and a build derive from their session."""
        host = (await self._registries.find(self._registry)).host if self._registry else ""
        now = self._clock()
        return {
            "id": custom_id,
            "created_at": now,
            "changed_at": now,
            "name": name,
            "image": custom_image_name(host, session.owner, name, custom_id),
            "base_image": session.image,
            "architecture": session.architecture,
            "owner_id": session.owner_id,
            "project_id": session.project_id,
            "visibility": visibility,
            "is_publish_requested": False,
            "session_id": session.id,
            "session_name": session.name,
            "status": CommitStatus.PENDING,
        }

    async def log(self, caller: Caller, key: str) -> BuildLog:
        """Return the output of a build, for users that may change its image."""
        return BuildLog(await self._store.log((await self._changeable(caller, key)).id))

    async def _end(self, session_id: str, name: str) -> None:
        """End the session of a build."""
        await self._sessions.end(session_id, TextTemplate.BUILD_ENDED.text(name=name))

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> CustomImage:
        """Rename a custom image, or change its description or visibility.

        Raises
        ------
        Forbidden
            If the caller may not change it, is not a superadmin but publishes it, or is not a
            member of the project but shares it with the project.
        """
        row = await self._changeable(caller, key)
        values = dict(changes)
        if "name" in values:
            values["name"] = check_custom_name(values["name"])
        if "visibility" in values:
            visibility = values["visibility"] = Visibility(values["visibility"])
            if visibility != row.visibility:
                _require_sharing(caller, visibility, row.domain, row.project_id)
                if visibility is Visibility.PUBLIC:
                    values["is_publish_requested"] = False
            elif visibility is Visibility.PUBLIC:
                # Another request may end the publication at the same time.
                del values["visibility"]
        details = self._audit.changes(fields_of(row), values)
        entry = self._entry(caller, "update", row, **details)
        return _shown(await self._store.update(row.id, values, entry))

    async def request_publication(self, caller: Caller, key: str) -> CustomImage:
        """Ask an administrator to publish a custom image.

        Raises
        ------
        Conflict
            If the commit is not done, or the image is public.
        """
        row = await self._changeable(caller, key)
        if row.status != CommitStatus.DONE or row.visibility == Visibility.PUBLIC:
            raise Conflict(refusal(RefusalText.IMAGE_NOT_PUBLISHABLE))
        entry = self._entry(caller, "request-publication", row)
        values = {"is_publish_requested": True}
        return _shown(await self._store.update(row.id, values, entry))

    async def cancel(self, caller: Caller, key: str) -> CustomImage:
        """Cancel a commit that has not ended; its agent stops at its next report.

        Raises
        ------
        InvalidTransition
            If the commit has ended.
        """
        row = await self._changeable(caller, key)
        values = {"changed_at": self._clock()}
        entry = self._entry(caller, "cancel", row)
        changed = await self._store.apply(row.id, None, CommitEvent.CANCELLED, values, audit=entry)
        self.forget()
        if row.is_built:
            await self._end(row.session_id, row.name)
        return _shown(changed)

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a custom image; agents remove their copies when no container uses them."""
        row = await self._changeable(caller, key)
        await self._store.delete(row.id, self._entry(caller, "delete", row))

    async def _changeable(self, caller: Caller, key: str) -> CustomImageRow:
        """Return a custom image that the caller may change."""
        authorizer.require(caller, "custom-image.write")
        row = await self._store.find(key)
        authorizer.require(caller, "custom-image.write", _target(row))
        return row

    def forget(self) -> None:
        """Clear the cache of open commits; the next poll of an agent reads them again."""
        self._open = None

    async def _discarded_images(self) -> Mapping[str, Sequence[str]]:
        """Return the images of deleted custom images and cancelled commits, by agent."""
        discarded = await self._store.discarded_images()
        return {
            agent.agent_id: sorted(discarded & agent.digests.keys())
            for agent in (await self._agents.agents() if discarded else ())
        }

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the open commits of an agent, and the images that it must remove."""
        if self._open is None or time.monotonic() - self._open[0] > CACHE_TTL_SECONDS:
            rows = await self._store.open()
            if rows:
                text = "the session ended before the commit was complete"
                await self._store.fail_abandoned(self._clock(), text)
            by_agent: dict[str, list[CustomImageRow]] = {}
            for row in [assigned for one in rows if (assigned := await self._assigned(one))]:
                by_agent.setdefault(row.agent_id, []).append(row)
            self._open = time.monotonic(), by_agent
        discarded = self._discarded
        if discarded is None or time.monotonic() - discarded[0] > self.discard_seconds:
            discarded = self._discarded = time.monotonic(), await self._discarded_images()
        discards = [
            {"id": f"{DISCARD}-{name}", "kind": DISCARD, "image": name}
            for name in discarded[1].get(agent_id, ())
        ]
        return discards + [
            {
                **(await self._request(row)).to_json(),
                "kind": COMMIT,
                **await self._secrets.of_image(row.image),
            }
            for row in self._open[1].get(agent_id, ())
        ]

    async def _assigned(self, row: CustomImageRow) -> CustomImageRow | None:
        """Return the row of a commit with its agent; None if the row is a build whose session does
        not run.

        A build whose session has ended fails.
        """
        if not row.is_built:
            return row
        view = await self._session_store.with_kernels(row.session_id)
        if view.row.status in ENDED:
            text = "the session of the build ended before the image was complete"
            values = {"changed_at": self._clock(), "message": text}
            with suppress(InvalidTransition):
                await self._store.apply(row.id, None, CommitEvent.BROKEN, values)
            return None
        if row.agent_id or view.row.status is not Status.RUNNING:
            return row if row.agent_id else None
        kernel, architecture = view.kernels[0], view.row.architecture
        assigned = replace(
            row, agent_id=kernel.agent_id or "", kernel_id=kernel.id, architecture=architecture
        )
        await self._store.assign(assigned)
        return assigned

    async def _request(self, row: CustomImageRow) -> CommitRequest:
        return CommitRequest(
            id=f"commit-{row.id}",
            session_id=row.session_id,
            kernel_id=row.kernel_id,
            image=row.image,
            labels=labels_of(row.labels, row.name, row.owner, row.id, row.base_image),
            max_bytes=self._max_bytes,
            is_pushed=not row.image.startswith("localhost/"),
            recipe=await self._store.recipe(row.id) if row.is_built else {},
        )

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None:
        """Process the progress or result of a commit.

        Raises
        ------
        NotFound
            If the commit was cancelled; the agent then stops it.
        """
        custom_id = str(report.get("work_id")).removeprefix("commit-")
        values: dict[str, Any] = {"changed_at": self._clock()}
        image = None
        if isinstance(text := report.get("log"), str):
            values["log"] = text.replace("\0", "")[-MAX_LOG_CHARACTERS:]
        if report["state"] == "progress":
            progress = report.get("progress") or {}
            event = _STAGES.get(str(progress.get("stage")), CommitEvent.COMMIT_REPORTED)
            percent = progress.get("percent")
            values["percent"] = min(100, max(0, percent)) if isinstance(percent, int) else None
        elif report["state"] == "done":
            event = CommitEvent.COMPLETED
            row = await self._store.find(custom_id)
            reported = report.get("image") or {}
            size = reported.get("size_bytes")
            values |= {
                "percent": 100,
                "size_bytes": size if isinstance(size, int) and 0 <= size < 2**62 else 0,
                "digest": str(reported.get("digest") or "")[:MAX_DIGEST_CHARACTERS],
            }
            image = await self._image(row, values)
        else:
            event = CommitEvent.BROKEN
            message = (report.get("error") or {}).get("message") or "the commit failed"
            values["message"] = str(message)[:MAX_MESSAGE_CHARACTERS]
        try:
            row = await self._store.apply(custom_id, agent_id, event, values, image)
        except InvalidTransition:
            raise NotFound("the commit has ended", id=custom_id) from None
        if report["state"] != "progress":
            self.forget()
            if row.is_built:
                await self._end(row.session_id, row.name)

    async def _image(self, row: CustomImageRow, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of the image that a commit registers."""
        rows = await self._images.named(row.base_image)
        base: ImageRow | None = next((r for r in rows if r.architecture == row.architecture), None)
        return {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "name": row.image,
            "registry": registry_host(row.image),
            "architecture": row.architecture,
            "description": row.description or f"{row.name}, from {row.base_image}"[:512],
            "digest": facts["digest"],
            "registry_digest": facts["digest"],
            "size_bytes": facts["size_bytes"],
            "labels": labels_of(
                {**(base.labels if base is not None else {}), **row.labels},
                row.name,
                row.owner,
                row.id,
                row.base_image,
            ),
            "min_slots": base.min_slots if base is not None else ResourceSlots(),
            "max_slots": base.max_slots if base is not None else ResourceSlots(),
            "is_active": True,
        }

    def _entry(self, caller: Caller, verb: str, row: CustomImageRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"custom-image.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **details,
        )


_STAGES = {
    PUSH_STAGE: CommitEvent.PUSH_REPORTED,
    BUILD_STAGE: CommitEvent.BUILD_REPORTED,
}


def _require_sharing(caller: Caller, visibility: Visibility, domain: str, project_id: str) -> None:
    """Raise ``Forbidden`` if the caller may not share an image of a project so widely."""
    if visibility is Visibility.PUBLIC:
        authorizer.require(caller, "custom-image.publish")
    is_shared = visibility is Visibility.PROJECT
    if is_shared and not reaches(caller, "project.read", Target(domain, project_id)):
        raise Forbidden(refusal(RefusalText.NOT_IN_PROJECT_OF_IMAGE), action="custom-image.write")


def _committing_agent(view: SessionKernels) -> str:
    """Return the agent of a session that can be committed."""
    row = view.row
    if row.status is not Status.RUNNING:
        raise Conflict(refusal(RefusalText.COMMIT_NOT_RUNNING, name=row.name, status=row.status))
    if row.type != SessionType.INTERACTIVE or len(view.kernels) != 1:
        raise Conflict(refusal(RefusalText.COMMIT_ONLY_INTERACTIVE))
    agent_id = view.kernels[0].agent_id
    if not row.image or agent_id is None:
        raise Conflict(refusal(RefusalText.COMMIT_ONLY_IMAGES))
    return agent_id


def _target(row: CustomImageRow) -> Target:
    return Target(
        domain=row.domain, project_id=row.project_id, owner=Owner(row.owner_id, row.owner_role)
    )


def _shown(row: CustomImageRow) -> CustomImage:
    values = fields_of(row)
    for name in ("owner_role", "kernel_id"):
        del values[name]
    return CustomImage(**values)
