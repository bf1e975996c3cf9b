"""Shares of session apps, and access of the users they are shared with."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from bai_services.core.accounts.roles import Caller
from bai_services.core.apps.shares import (
    ENTRY_LIFE,
    PASS_LIFE,
    Audience,
    Pass,
    PassKind,
    check_addresses,
    check_app,
    check_sharing,
    seal,
    share_end,
    unseal,
)
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import is_inside
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.db.accounts.users import UserStore
from bai_services.db.apps.shares import AppShare, AppShareStore
from bai_services.db.folders.grants import GrantStore
from bai_services.db.sessions.rows import SessionRow

from ..accounts import authorizer
from ..context import ManagerContext
from ..sessions.sessions import Sessions, target_of
from ..sessions.view import url_of
from ..settings import Settings

Row = Mapping[str, Any]


class AppShares:
    """Shares of apps: created, listed and revoked; visits through them."""

    def __init__(self, context: ManagerContext, settings: Settings, sessions: Sessions) -> None:
        self._store = AppShareStore(context.database)
        self._people = GrantStore(context.database)
        self._users = UserStore(context.database)
        self._sessions = sessions
        self._settings = settings
        self._clock = context.clock
        self._audit = context.audit
        # Each entry is valid for one visit; expired entries are recognized by their signed time.
        self._used: dict[str, datetime] = {}

    async def of_session(self, caller: Caller, key: str, query: ListQuery) -> Page[Row]:
        row = await self._sessions.visible(caller, key)
        return self._shown(await self._store.of_session(row.id, query, self._clock()))

    async def mine(self, caller: Caller, query: ListQuery) -> Page[Row]:
        """Return the shares that the caller has created and received."""
        if caller.user_id is None:
            raise Forbidden(f"{caller.role} is a system component, not a user")
        return self._shown(await self._store.of_user(caller.user_id, query, self._clock()))

    async def create(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> Row:
        """Share one app of a live session.

        Raises
        ------
        Forbidden
            If the policy of the session's owner does not allow that audience.
        InvalidRequest
            If the app cannot be shared, or audience, addresses or expiry are invalid.
        NotFound
            If there is no such user or project.
        Conflict
            If the session has ended.
        """
        row = await self._sessions.visible(caller, key)
        authorizer.require(caller, "session.share", target_of(row))
        if row.status in ENDED:
            raise Conflict(f"session {row.name} is {row.status}; its apps cannot be shared")
        audience, person = await self._audience(row, spec)
        policy = await self._store.policy(row.owner_id)
        check_sharing(policy.app_sharing, audience)
        now = self._clock()
        share_id = str(uuid.uuid4())
        values = {
            "id": share_id,
            "created_at": now,
            "session_id": row.id,
            "app": check_app(spec["app"]),
            "audience": audience,
            "user_id": person if audience is Audience.USER else None,
            "project_id": person if audience is Audience.PROJECT else None,
            "allowed_addresses": check_addresses(audience, spec.get("allowed_addresses") or ()),
            "expires_at": share_end(now, spec.get("expires_in"), policy.max_app_share_seconds),
            "created_by": caller.username,
        }
        entry = self._audit.entry(
            caller,
            "session.share-app",
            row.id,
            domain=row.domain,
            name=row.name,
            app=values["app"],
            audience=audience,
            to=person or "",
        )
        await self._store.create(values, now, entry)
        return self._described(await self._live(share_id))

    async def revoke(self, caller: Caller, key: str, share_id: str) -> None:
        """Revoke a share; visitors lose access within seconds."""
        row = await self._sessions.visible(caller, key)
        authorizer.require(caller, "session.unshare", target_of(row))
        entry = self._audit.entry(
            caller, "session.unshare-app", row.id, domain=row.domain, name=row.name, share=share_id
        )
        await self._store.revoke(row.id, share_id, entry)

    async def is_public(self, share_id: str) -> bool:
        """Return whether a share can be used without signing in."""
        found = await self._store.find(share_id, self._clock())
        return found is not None and found.audience == Audience.PUBLIC

    async def entrance(self, share_id: str, caller: Caller | None, client_ip: str) -> str:
        """Return the address of one visit, valid for one use within a minute.

        Raises
        ------
        NotFound
            If there is no such share (any more), or it is not for this user.
        Conflict
            If its session is not running.
        """
        share = await self._live(share_id)
        user_id = "" if caller is None else caller.user_id or ""
        await self._check(share, user_id, client_ip)
        if share.status is not Status.RUNNING:
            raise Conflict(
                f"session {share.session} is {share.status}; its apps are available while it runs"
            )
        entry = Pass(
            PassKind.ENTRY,
            share.id,
            user_id,
            self._clock() + ENTRY_LIFE,
            secrets.token_urlsafe(12).replace(".", "-"),
        )
        url = url_of(self._settings, share.hub_user, share.hub_server)
        sealed = seal(self._settings.key, entry)
        return f"{url}shared/{quote(share.app)}/?{urlencode({'bai_entry': sealed})}"

    async def visit(self, caller: Caller, facts: Mapping[str, str]) -> Row:
        """Answer to a session whether a visitor may use an app of it, by an entry or a visit's
        pass.

        Raises
        ------
        Forbidden
            If the visitor may not, or no longer.
        """
        now = self._clock()
        kind = PassKind.ENTRY if facts.get("entry") else PassKind.VISIT
        shown = unseal(self._settings.key, facts.get(kind) or "", kind, now)
        refused = Forbidden("this app is not shared with you (any more); open its link again")
        if shown is None or (kind is PassKind.ENTRY and not self._first_use(shown, now)):
            raise refused
        share = await self._store.find(shown.share_id, now)
        is_theirs = share is not None and (share.session_id, share.app, share.owner_id) == (
            facts["session_id"],
            facts["app"],
            caller.user_id,
        )
        if share is None or not is_theirs:
            raise refused
        try:
            await self._check(share, shown.user_id, facts.get("client_ip", ""))
        except NotFound:
            raise refused from None
        until = min(share.expires_at, now + PASS_LIFE)
        visit = replace(shown, kind=PassKind.VISIT, expires_at=until)
        text = seal(self._settings.key, visit) if kind is PassKind.ENTRY else facts["visit"]
        return {"visit": text, "expires_at": until, "audience": share.audience}

    async def _audience(self, row: SessionRow, spec: Mapping[str, Any]) -> tuple[Audience, str]:
        """Return the audience of a share, with the id of the user or project."""
        given = [each for each in Audience if spec.get(each.value)]
        if len(given) != 1:
            raise InvalidRequest(
                "name the audience of the share: exactly one of user, project or public",
                field="user",
            )
        if given[0] is Audience.PUBLIC:
            return given[0], ""
        if given[0] is Audience.PROJECT:
            if spec["project"] not in (row.project, row.project_id):
                raise InvalidRequest(
                    f"session {row.name} belongs to project {row.project}; "
                    "its apps can only be shared with that project",
                    field="project",
                )
            return given[0], row.project_id
        person = await self._people.find_user(spec["user"], row.domain)
        if person is None or person["status"] != "active":
            raise NotFound(f"there is no user named {spec['user']!r} in domain {row.domain}")
        if person["id"] == row.owner_id:
            raise InvalidRequest("this user is the owner of the session", field="user")
        return given[0], str(person["id"])

    async def _check(self, share: AppShare, user_id: str, client_ip: str) -> None:
        """Return if that user may visit now, according to their account and all current
        policies.
        """
        refused = NotFound("there is no such share, or not for you; ask who sent you the link")
        try:
            check_sharing(share.allowed, Audience(share.audience))
        except Forbidden:
            raise refused from None
        if not is_inside(client_ip, share.allowed_addresses):
            raise refused
        if share.audience == Audience.PUBLIC:
            return
        person = await self._users.find(user_id) if user_id else None
        if person is None or person["id"] != user_id or person["status"] != "active":
            raise refused
        is_member = share.project_id in {project["id"] for project in person["projects"]}
        if user_id != share.user_id and not (share.project_id and is_member):
            raise refused

    def _first_use(self, entry: Pass, now: datetime) -> bool:
        self._used = {nonce: end for nonce, end in self._used.items() if end > now}
        if entry.nonce in self._used:
            return False
        self._used[entry.nonce] = entry.expires_at
        return True

    async def _live(self, share_id: str) -> AppShare:
        found = await self._store.find(share_id, self._clock())
        if found is None:
            raise NotFound("there is no such share, or not for you; ask who sent you the link")
        return found

    def _shown(self, page: Page[AppShare]) -> Page[Row]:
        items = [self._described(item) for item in page.items]
        return Page(items, page.total, page.limit, page.offset)

    def _described(self, share: AppShare) -> Row:
        base = self._settings.base_url.rstrip("/")
        return {
            "id": share.id,
            "session_id": share.session_id,
            "session": share.session,
            "owner": share.owner,
            "app": share.app,
            "audience": share.audience,
            "user": share.user,
            "project": share.project,
            "allowed_addresses": share.allowed_addresses,
            "expires_at": share.expires_at,
            "created_at": share.created_at,
            "created_by": share.created_by,
            "url": f"{base}/shared/{share.id}",
        }
