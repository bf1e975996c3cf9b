"""Share apps of sessions, and authorize the visitors of shared apps."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from cryptography.fernet import Fernet, InvalidToken

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.apps.records import AdmittedVisit, ListedShare
from bai_services.core.apps.shares import (
    ENTRY_LIFETIME,
    VISIT_LIFETIME,
    Audience,
    VisitorToken,
    VisitorTokenKind,
    check_addresses,
    check_app,
    check_sharing,
    decode_token,
    encode_token,
    share_end,
)
from bai_services.core.client_networks import is_inside
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.accounts.users import UserStore
from bai_services.db.apps.shares import AppShare, AppShareStore
from bai_services.db.folders.grants import GrantStore
from bai_services.db.sessions.rows import SessionRow

from ..accounts import authorizer
from ..accounts.callers import refusal
from ..context import ManagerContext
from ..sessions.sessions import Sessions, target_of
from ..sessions.view import url_of
from ..settings import Settings

IsSignedIn = Callable[[str], Awaitable[bool]]


class AppShares:
    """Create, list and revoke app shares; authorize their visitors."""

    def __init__(self, context: ManagerContext, settings: Settings, sessions: Sessions) -> None:
        self._store = AppShareStore(context.database)
        self._grants = GrantStore(context.database)
        self._users = UserStore(context.database)
        self._accounts = AccountStore(context.database)
        self._fernet = Fernet(settings.key)
        self._sessions = sessions
        self._settings = settings
        self._clock = context.clock
        self._audit = context.audit

    async def page_of_session(
        self, caller: Caller, key: str, query: ListQuery
    ) -> Page[ListedShare]:
        """Return the shares of a session."""
        row = await self._sessions.find_visible(caller, key)
        return self._to_page(await self._store.of_session(row.id, query, self._clock()))

    async def page_of_caller(self, caller: Caller, query: ListQuery) -> Page[ListedShare]:
        """Return the shares of the caller's sessions, and all shares that admit the caller."""
        if caller.user_id is None:
            raise Forbidden(f"{caller.role} is a system component, not a user")
        return self._to_page(await self._store.of_user(caller.user_id, query, self._clock()))

    async def create(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> ListedShare:
        """Share one app of a live session.

        Raises
        ------
        Forbidden
            If the policy of the session's owner does not allow the audience.
        InvalidRequest
            If the app cannot be shared, or audience, addresses or expiry are invalid.
        NotFound
            If the user or project does not exist.
        Conflict
            If the session has ended.
        """
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.share", target_of(row))
        if row.status in ENDED:
            raise Conflict(f"session {row.name} is {row.status}; its apps cannot be shared")
        audience, audience_id = await self._audience(row, spec)
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
            "user_id": audience_id if audience is Audience.USER else None,
            "project_id": audience_id if audience is Audience.PROJECT else None,
            "allowed_addresses": check_addresses(audience, spec.get("allowed_addresses") or ()),
            "expires_at": share_end(now, spec.get("expires_in"), policy.max_app_share_seconds),
            "created_by": caller.username,
        }
        entry = self._audit.entry(
            caller,
            "session.share-app",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            app=values["app"],
            audience=audience,
            to=audience_id,
        )
        await self._store.create(values, now, entry)
        return self._listed(await self._require_share(share_id))

    async def revoke(self, caller: Caller, key: str, share_id: str) -> None:
        """Revoke a share; visitors lose access within seconds."""
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.unshare", target_of(row))
        entry = self._audit.entry(
            caller,
            "session.unshare-app",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            share=share_id,
        )
        await self._store.revoke(row.id, share_id, entry)

    async def is_public(self, share_id: str) -> bool:
        """Return whether a share can be used without signing in."""
        share = await self._store.find(share_id, self._clock())
        return share is not None and share.audience == Audience.PUBLIC

    async def create_entry_url(
        self, share_id: str, caller: Caller | None, client_ip: str, token: str = ""
    ) -> str:
        """Return a single-use URL of the app, valid for one minute.

        ``token`` is the Hub token that identifies the caller; revoking the token ends the visit.

        Raises
        ------
        NotFound
            If the share does not exist, or does not admit this user or address.
        Conflict
            If the session is not running.
        """
        share = await self._require_share(share_id)
        user_id = "" if caller is None else caller.user_id or ""
        await self._require_access(share, user_id, client_ip)
        if share.status is not Status.RUNNING:
            raise Conflict(
                f"session {share.session} is {share.status}; its apps are available while it runs"
            )
        await self._audit.record_access(
            caller or Caller(Role.USER, username="anonymous", client_ip=client_ip),
            "session.visit-app",
            share.session_id,
            owner_id=share.owner_id,
            domain=share.domain,
            name=share.session,
            app=share.app,
        )
        entry = VisitorToken(
            VisitorTokenKind.ENTRY,
            share.id,
            user_id,
            self._clock() + ENTRY_LIFETIME,
            secrets.token_urlsafe(12),
            self._encrypt(token) if token else "",
        )
        proxy_address = share.proxy_address or ""
        url = url_of(self._settings, share.hub_user, share.hub_server, proxy_address)
        encoded = encode_token(self._settings.key, entry)
        return f"{url}shared/{quote(share.app)}/?{urlencode({'bai_entry': encoded})}"

    async def authorize_visit(
        self, caller: Caller, facts: Mapping[str, str], is_signed_in: IsSignedIn
    ) -> AdmittedVisit:
        """Authorize a visitor of an app of the calling session; return a visit token.

        ``facts`` contains ``session_id``, ``app``, ``client_ip``, and the credential of the
        visitor: a single-use entry token (``entry``) or a visit token (``visit``).
        ``is_signed_in`` returns whether a Hub token is still valid.

        Raises
        ------
        Forbidden
            If the token is invalid, expired or used, if the visitor has signed out, or if the share
            no longer covers the visitor.
        """
        now = self._clock()
        kind = VisitorTokenKind.ENTRY if facts.get("entry") else VisitorTokenKind.VISIT
        token = decode_token(self._settings.key, facts.get(kind) or "", kind, now)
        refused = Forbidden(
            "this app is not shared with you, or its share has ended; open its link again"
        )
        if token is None:
            raise refused
        if kind is VisitorTokenKind.ENTRY and not await self._store.redeem(
            token.nonce, token.expires_at, now
        ):
            raise refused
        share = await self._store.find(token.share_id, now)
        is_of_session = share is not None and (share.session_id, share.app, share.owner_id) == (
            facts["session_id"],
            facts["app"],
            caller.user_id,
        )
        if share is None or not is_of_session:
            raise refused
        if share.audience != Audience.PUBLIC and not await is_signed_in(self._token_of(token)):
            raise refused
        try:
            await self._require_access(share, token.user_id, facts.get("client_ip", ""))
        except NotFound:
            raise refused from None
        until = min(share.expires_at, now + VISIT_LIFETIME)
        visit = replace(token, kind=VisitorTokenKind.VISIT, expires_at=until)
        text = (
            encode_token(self._settings.key, visit)
            if kind is VisitorTokenKind.ENTRY
            else facts["visit"]
        )
        return AdmittedVisit(text, until, share.audience)

    async def _audience(self, row: SessionRow, spec: Mapping[str, Any]) -> tuple[Audience, str]:
        """Return the audience of a share and the id of its user or project (public: empty)."""
        given = [each for each in Audience if spec.get(each.value)]
        if len(given) != 1:
            raise InvalidRequest(
                f"the request names {' and '.join(given) or 'no audience'}; a share needs exactly "
                "one of user, project and public",
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
        user = await self._grants.find_user(spec["user"], row.domain)
        if user is None or user.status != "active":
            raise NotFound(f"there is no user named {spec['user']!r} in domain {row.domain}")
        if user.id == row.owner_id:
            raise InvalidRequest("this user is the owner of the session", field="user")
        return given[0], str(user.id)

    async def _require_access(self, share: AppShare, user_id: str, client_ip: str) -> None:
        """Raise ``NotFound`` if the share does not admit the user now.

        The policy of the session's owner and the client address are checked. Unless the share is
        public, the user's account, domain and project memberships are also checked.
        """
        refused = _no_such_share()
        try:
            check_sharing(share.allowed, Audience(share.audience))
        except Forbidden:
            raise refused from None
        if not is_inside(client_ip, share.allowed_addresses):
            raise refused
        if share.audience == Audience.PUBLIC:
            return
        user = await self._users.find(user_id) if user_id else None
        if user is None or user.id != user_id or user.domain != share.domain:
            raise refused
        account = await self._accounts.by_username(user.username)
        if account is None or refusal(account, client_ip) is not None:
            raise refused
        is_member = share.project_id in {project.id for project in user.projects}
        if user_id != share.user_id and not (share.project_id and is_member):
            raise refused

    def _encrypt(self, token: str) -> str:
        # Remove the padding, because "=" is not allowed in visitor tokens.
        return self._fernet.encrypt(token.encode()).decode().rstrip("=")

    def _token_of(self, visitor: VisitorToken) -> str:
        """Return the visitor's Hub token; empty if the visitor token has none."""
        padding = "=" * (-len(visitor.sign_in) % 4)
        try:
            return self._fernet.decrypt(visitor.sign_in + padding).decode()
        except InvalidToken:
            return ""

    async def _require_share(self, share_id: str) -> AppShare:
        share = await self._store.find(share_id, self._clock())
        if share is None:
            raise _no_such_share()
        return share

    def _to_page(self, page: Page[AppShare]) -> Page[ListedShare]:
        return page.with_items([self._listed(item) for item in page.items])

    def _listed(self, share: AppShare) -> ListedShare:
        base = self._settings.base_url.rstrip("/")
        return ListedShare(
            id=share.id,
            session_id=share.session_id,
            session=share.session,
            owner=share.owner,
            app=share.app,
            audience=share.audience,
            user=share.user,
            project=share.project,
            allowed_addresses=share.allowed_addresses,
            expires_at=share.expires_at,
            created_at=share.created_at,
            created_by=share.created_by,
            url=f"{base}/shared/{share.id}",
        )


def _no_such_share() -> NotFound:
    """Return the error for a missing or inaccessible share; it must be the same in both cases."""
    return NotFound(
        "there is no such share, or it is not for you; ask the user who sent you the link"
    )
