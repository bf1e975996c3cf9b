"""Store of shares of session apps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.group_options import PROXY_ADDRESS
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions.lifecycle import Status

from ..accounts.user_domains import lock_active_in
from ..audit import record
from ..database import Database
from ..integrity import insert_new, raise_on_violation
from ..listing import Listing
from ..records import first_record
from ..tables.accounts import memberships, projects, user_policies, users
from ..tables.apps import app_shares, used_entry_tokens
from ..tables.cluster import resource_groups
from ..tables.sessions import sessions

_owners = users.alias("owners")
_visitors = users.alias("visitors")


@dataclass(frozen=True, slots=True)
class AppShare:
    """A share of a session's app.

    Depending on ``audience``, ``user`` or ``project`` is the name of the recipient; both are None
    for a public share.
    """

    id: str
    created_at: datetime
    session_id: str
    session: str
    domain: str
    owner: str
    owner_id: str
    app: str
    audience: str
    user: str | None
    user_id: str | None
    project: str | None
    project_id: str | None
    allowed_addresses: list[str] | None
    expires_at: datetime
    created_by: str
    status: Status
    hub_user: str
    hub_server: str
    # The proxy address of the session's resource group; None or "": use the Hub's address.
    proxy_address: str | None
    # The widest audience permitted by the owner's current policy.
    allowed: str


@dataclass(frozen=True, slots=True)
class SharingPolicy:
    """Widest audience and maximum duration in seconds (0: no limit) of a user's shares."""

    app_sharing: str
    max_app_share_seconds: int


_ROWS = (
    sa.select(
        *(c for c in app_shares.c if c.name != "status"),
        sessions.c.name.label("session"),
        sessions.c.domain,
        sessions.c.owner_id,
        sessions.c.status,
        sessions.c.hub_user,
        sessions.c.hub_server,
        resource_groups.c.scheduler_opts[PROXY_ADDRESS].as_string().label("proxy_address"),
        _owners.c.username.label("owner"),
        _visitors.c.username.label("user"),
        projects.c.name.label("project"),
        user_policies.c.app_sharing.label("allowed"),
    )
    .join_from(app_shares, sessions, app_shares.c.session_id == sessions.c.id)
    .join(_owners, sessions.c.owner_id == _owners.c.id)
    .join(resource_groups, sessions.c.resource_group == resource_groups.c.name)
    .join(user_policies, _owners.c.resource_policy == user_policies.c.name)
    .outerjoin(_visitors, app_shares.c.user_id == _visitors.c.id)
    .outerjoin(projects, app_shares.c.project_id == projects.c.id)
)
_LISTING = Listing(
    columns={
        "id": app_shares.c.id,
        "created_at": app_shares.c.created_at,
        "expires_at": app_shares.c.expires_at,
        "app": app_shares.c.app,
        "audience": app_shares.c.audience,
        "session": sessions.c.name,
        "session_id": app_shares.c.session_id,
        "owner": _owners.c.username,
    },
    default_sort=("-created_at", "-id"),
)


class AppShareStore:
    """Reads and writes app shares.

    Each public method is one transaction. Expired shares are not returned.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def of_session(self, session_id: str, query: ListQuery, now: datetime) -> Page[AppShare]:
        return await self._page(app_shares.c.session_id == session_id, query, now)

    async def of_user(self, user_id: str, query: ListQuery, now: datetime) -> Page[AppShare]:
        """Return the shares of a user's sessions, and shares with the user or the user's projects.

        Shares of sessions in other domains are omitted, except for the user's own sessions.
        """
        domain = sa.select(users.c.domain).where(users.c.id == user_id).scalar_subquery()
        project_ids = sa.select(memberships.c.project_id).where(memberships.c.user_id == user_id)
        condition = sa.or_(
            sessions.c.owner_id == user_id,
            sa.and_(
                sessions.c.domain == domain,
                sa.or_(app_shares.c.user_id == user_id, app_shares.c.project_id.in_(project_ids)),
            ),
        )
        return await self._page(condition, query, now)

    async def find(self, share_id: str, now: datetime) -> AppShare | None:
        live = sa.and_(app_shares.c.id == share_id, app_shares.c.expires_at > now)
        async with self._db.read() as tx:
            return first_record(_share, await tx.execute(_ROWS.where(live)))

    async def policy(self, user_id: str) -> SharingPolicy:
        async with self._db.read() as tx:
            result = await tx.execute(
                sa.select(user_policies.c.app_sharing, user_policies.c.max_app_share_seconds)
                .join(users, users.c.resource_policy == user_policies.c.name)
                .where(users.c.id == user_id)
            )
        return SharingPolicy(*result.one())

    async def create(self, values: Mapping[str, Any], now: datetime, audit: AuditEntry) -> None:
        """Insert a share, and delete expired shares.

        Raises
        ------
        NotFound
            If the user, the project or the session no longer exists.
        Conflict
            If the user is no longer active or not in the session's domain.
        """
        domain = sa.select(sessions.c.domain).where(sessions.c.id == values["session_id"])
        async with self._db.write() as tx:
            if values["user_id"] is not None:
                await lock_active_in(tx, values["user_id"], str(await tx.scalar(domain)))
            await tx.execute(app_shares.delete().where(app_shares.c.expires_at <= now))
            with raise_on_violation(
                NotFound("the user, the project or the session no longer exists")
            ):
                await tx.execute(app_shares.insert().values(values))
            await record(tx, audit)

    async def revoke(self, session_id: str, share_id: str, audit: AuditEntry) -> None:
        """Delete a share of a session; raise ``NotFound`` if it does not exist."""
        is_share = sa.and_(app_shares.c.id == share_id, app_shares.c.session_id == session_id)
        async with self._db.write() as tx:
            deleted = await tx.execute(app_shares.delete().where(is_share))
            if not deleted.rowcount:
                raise NotFound(f"the session has no share {share_id}")
            await record(tx, audit)

    async def redeem(self, nonce: str, expires_at: datetime, now: datetime) -> bool:
        """Record the use of an entry token; return whether this is the first use."""
        async with self._db.write() as tx:
            await tx.execute(
                used_entry_tokens.delete().where(used_entry_tokens.c.expires_at <= now)
            )
            values = {"nonce": nonce, "expires_at": expires_at}
            return await insert_new(tx, used_entry_tokens, values)

    async def _page(
        self, condition: sa.ColumnElement[bool], query: ListQuery, now: datetime
    ) -> Page[AppShare]:
        rows = _ROWS.where(condition, app_shares.c.expires_at > now)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, _share)


def _share(*, status: str, **columns: Any) -> AppShare:
    return AppShare(status=Status(status), **columns)
