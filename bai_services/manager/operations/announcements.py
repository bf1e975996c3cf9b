"""Announcements of administrators to users."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Role, Target, reaches
from bai_services.core.errors import Forbidden, InvalidRequest
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.core.operations.announcements import (
    ROLES,
    Announcement,
    Audience,
    CurrentAnnouncement,
    Level,
    is_addressed,
)
from bai_services.core.operations.periods import check_period, is_current, require_not_past
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.users import UserStore
from bai_services.db.operations.announcements import AnnouncementStore, no_announcement

from ..accounts import authorizer
from ..accounts.domains import Domains
from ..accounts.projects import Projects
from ..context import ManagerContext
from .periods import new_values

# Fields of a new announcement in its audit entry.
_AUDITED = ("title", "text", "level", "audience", "target", "starts_at", "ends_at")
_CURRENT_FIELDS = ("id", "title", "level", "is_dismissed")


class Announcements:
    """Manages announcements. Superadmins write them for any audience, domain admins for their
    domain and its projects. Domain admins cannot change announcements of superadmins.
    """

    def __init__(self, context: ManagerContext, domains: Domains, projects: Projects) -> None:
        self._store = AnnouncementStore(context.database)
        self._users = UserStore(context.database)
        self._domains = domains
        self._projects = projects
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Announcement]:
        """Return the announcements that the caller may read as an administrator."""
        visible = authorizer.visibility(caller, "announcement.read")
        return await self._store.page(query, visible.domain)

    async def get(self, caller: Caller, key: str) -> Announcement:
        authorizer.require(caller, "announcement.read")
        found = await self._find(key)
        if not reaches(caller, "announcement.read", Target(domain=found.domain)):
            raise no_announcement(key)
        return found

    async def current(self, caller: Caller, query: ListQuery) -> Page[CurrentAnnouncement]:
        """Return the current announcements for the caller."""
        authorizer.require(caller, "announcement.read-current")
        addressed = await self._addressed(caller)
        return page_of(addressed, query, _CURRENT_FIELDS)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Announcement:
        """Create an announcement; the period starts now unless ``starts_at`` is given.

        Raises
        ------
        InvalidRequest
            If the target does not fit the audience, or the period is not valid.
        """
        authorizer.require(caller, "announcement.write")
        now = self._clock()
        audience = Audience(spec.get("audience", Audience.EVERYONE))
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "title": spec["title"],
            "text": spec.get("text", ""),
            "level": Level(spec.get("level", Level.INFO)),
            "audience": audience,
            "starts_at": spec.get("starts_at") or now,
            "ends_at": spec.get("ends_at"),
            "author": caller.username,
            "changed_by_role": caller.role,
            **await self._target_columns(caller, audience, spec.get("target")),
        }
        check_period(values["starts_at"], values["ends_at"])
        require_not_past(values["ends_at"], now, "ends_at")
        _require_in_reach(caller, values["domain"])
        entry = self._audit.entry(
            caller,
            "announcement.create",
            values["id"],
            domain=values["domain"],
            name=values["title"],
            **self._audit.changes(
                dict.fromkeys(_AUDITED),
                {**{name: values[name] for name in _AUDITED}, "target": spec.get("target")},
            ),
        )
        return await self._store.create(values, entry)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Announcement:
        """Change an announcement; its audience cannot change."""
        found = await self._require_writable(caller, key)
        values = new_values(found, changes, self._clock())
        version = values.pop("version", found.version)
        details = self._audit.changes(fields_of(found), values)
        entry = self._audit.entry(
            caller,
            "announcement.update",
            found.id,
            domain=found.domain,
            name=found.title,
            **details,
        )
        values["changed_by_role"] = caller.role
        return await self._store.update(found.id, version, values, entry)

    async def delete(self, caller: Caller, key: str) -> None:
        found = await self._require_writable(caller, key)
        entry = self._audit.entry(
            caller, "announcement.delete", found.id, domain=found.domain, name=found.title
        )
        await self._store.delete(found.id, entry)

    async def dismiss(self, caller: Caller, key: str) -> None:
        """Hide the banner of an announcement for the caller; idempotent."""
        authorizer.require(caller, "announcement.dismiss")
        if key not in {each.id for each in await self._addressed(caller)}:
            raise no_announcement(key)
        await self._store.dismiss(key, caller.user_id or "")

    async def _addressed(self, caller: Caller) -> list[CurrentAnnouncement]:
        now = self._clock()
        found, dismissed = await self._store.current(now, caller.user_id or "")
        if not found:
            return []
        role = await self._role_of(caller)
        return [
            CurrentAnnouncement(
                id=each.id,
                title=each.title,
                text=each.text,
                level=Level(each.level),
                starts_at=each.starts_at,
                ends_at=each.ends_at,
                is_dismissed=each.id in dismissed,
            )
            for each in found
            if is_current(each, now) and is_addressed(each, caller, role)
        ]

    async def _role_of(self, caller: Caller) -> Role:
        """Return the role of the account; a session has the role of its owner."""
        if caller.role is not Role.SESSION:
            return caller.role
        user = await self._users.find(caller.user_id or "")
        return caller.role if user is None else Role(user.role)

    async def _target_columns(
        self, caller: Caller, audience: Audience, target: str | None
    ) -> dict[str, Any]:
        columns: dict[str, Any] = {"target": None, "domain": None, "project_id": None}
        if audience is Audience.EVERYONE:
            if target:
                raise InvalidRequest("the audience everyone has no target", field="target")
            return columns
        if not target:
            raise InvalidRequest(f"name the {audience} as target", field="target")
        if audience is Audience.ROLE:
            if target not in ROLES:
                raise InvalidRequest(f"target must be one of {', '.join(ROLES)}", field="target")
            return {**columns, "target": target}
        if audience is Audience.DOMAIN:
            domain = await self._domains.get(caller, target)
            return {**columns, "target": domain.name, "domain": domain.name}
        project = await self._projects.get(caller, target)
        return {**columns, "domain": project.domain, "project_id": project.id}

    async def _require_writable(self, caller: Caller, key: str) -> Announcement:
        authorizer.require(caller, "announcement.write")
        found = await self._find(key)
        if not reaches(caller, "announcement.read", Target(domain=found.domain)):
            raise no_announcement(key)
        _require_in_reach(caller, found.domain)
        authorizer.require_not_above(
            caller, "announcement.write", "announcement", found.changed_by_role
        )
        return found

    async def _find(self, key: str) -> Announcement:
        if "\0" in key:
            raise no_announcement(key)
        return await self._store.one(key)


def _require_in_reach(caller: Caller, domain: str | None) -> None:
    if not reaches(caller, "announcement.write", Target(domain=domain)):
        raise Forbidden(
            "you may create announcements only for your domain and its projects",
            action="announcement.write",
        )
